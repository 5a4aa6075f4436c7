//! The daemon as a process: it watches its Node, and makes the machine so.
//!
//! ```text
//! Node ─ cache ─┐
//! disk ─ state ─┴─ core::agent::next ─→ one step ─→ Node, disk ─→ …
//! ```
//!
//! | file | does |
//! |---|---|
//! | `turn` | sees, asks what comes next, does it |
//! | `update` | from one config to another: check, policy, drain, disk |
//! | `finish` | what is to be done after a change, and its end |
//! | `gate` | whether the machine is well on its new config, and the way back |
//! | `os` | the operating system beneath the files: fetched, staged, looked at after the restart |
//! | `watch` | drift: seen, told, put right |
//! | `node` | its Node: the watch, and the only way to write annotations |
//! | `certificates` | what the cluster keeps up to date beside the config |
//! | `kubelet` | whether the kubelet answers |
//! | `report` | MachineConfigNode and events, beside the work |
//! | `disk` | the disk, beside the loop |
//! | `register` | the Node of a host without kubelet |
//! | `renew` | the machine's certificate, before it ends |
//! | `memory` | what a daemon that rests does not need |
//! | `metrics` | figures |
//!
//! A signal to stop is looked at between two steps only: what has begun is brought to its end.

mod certificates;
mod disk;
mod drift_watch;
mod health_gate;
mod heartbeat;
mod kubelet_health;
mod metrics;
mod os;
mod own_node;
mod post_apply;
mod reconcile;
mod renew_certificate;
mod report;
mod trim_memory;
mod update;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use machinist_core::api::names::state;
use machinist_core::daemon::{annotations, backoff, reports};
use machinist_core::drift::DriftPolicy;
use machinist_core::node::NodeView;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::drift::DriftWatcher;
use super::os::detect::{self, OsBackend};
use super::status::DaemonNote;
use crate::listen;
use crate::metrics::MetricsEndpoint;
use crate::systemd_notify;
use certificates::ClusterCertificates;
use disk::MachineDisk;
pub(crate) use heartbeat::{NodeRegistration, new_node};
use metrics::DaemonMetrics;
use own_node::OwnNode;
use report::Reporter;

/// How a daemon is to run.
#[derive(Debug, Clone)]
pub(crate) struct DaemonOptions {
    /// The name of its Node.
    pub(crate) name: String,
    /// The root of the machine.
    pub(crate) root: PathBuf,
    /// Where figures are served, if anywhere.
    pub(crate) metrics_listen: Option<SocketAddr>,
    /// The Node of a host on which no kubelet looks after it.
    pub(crate) registration: Option<NodeRegistration>,
    /// What happens to drift where the Node does not say it.
    pub(crate) drift_policy: DriftPolicy,
    /// Whether the machine's identity is its own, and renewed by it.
    pub(crate) renews_certificate: bool,
    /// Where the kubelet says that it is well, if there is one.
    pub(crate) kubelet_healthz: Option<http::Uri>,
}

/// Why a daemon has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitReason {
    /// It was told to.
    Stopped,
    /// The machine has a new certificate: begin again with it.
    CertificateRenewed,
}

/// The config cannot be reached from the present one.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Unreconcilable(String);

/// What a turn ends with.
#[derive(Debug)]
enum NextReconcile {
    /// There is more to do at once.
    Immediately,
    /// Nothing to do until the Node changes, or for so long at most.
    Wait(Option<Duration>),
}

/// A daemon.
struct Agent {
    client: Client,
    own_node: OwnNode,
    disk: MachineDisk,
    reporter: Reporter,
    metrics: DaemonMetrics,
    heartbeat: Option<heartbeat::NodeHeartbeat>,
    certificates: ClusterCertificates,
    boot_id: String,
    stop: CancellationToken,
    /// Whether a signal has to wait.
    defer_sigterm: Arc<AtomicBool>,
    /// Whether the disk has been compared with its config.
    is_checked: bool,
    /// Whether a restart has been ordered.
    reboot_ordered: bool,
    /// What happens to drift where the Node does not say it.
    drift_policy: DriftPolicy,
    /// Sees what somebody does to the disk while nothing is to be done.
    drift_watcher: Option<DriftWatcher>,
    /// The config on which the machine was found well.
    healthy_on: Option<String>,
    /// The config whose actions have been done.
    actions_run_for: Option<String>,
    /// How the operating system of this host is changed.
    os_backend: Arc<OsBackend>,
    /// The change whose image is on the machine already.
    fetched_os_change: Option<machinist_core::os::OsChange>,
    /// What became of a change that had been interrupted, until it has been told.
    unreported_recovery: Option<String>,
    /// What was noted last.
    last_note: DaemonNote,
    /// What is waited for, since when, and whether that was said to be too long.
    waiting: Option<(String, Instant, bool)>,
    failures: u32,
    /// The next attempt after a failure, and what was wanted then.
    retry: Option<(Instant, Vec<Option<String>>)>,
}

/// Runs until it is told to stop.
///
/// # Errors
/// It cannot begin: an interrupted change cannot be put right, or the address for its figures is
/// taken.
pub(crate) async fn run(
    client: Client,
    options: DaemonOptions,
    told: CancellationToken,
) -> Result<ExitReason> {
    let stop = told.child_token();
    let disk = MachineDisk::new(&options.root);
    let recovered = disk.recover().await?.map(|recovered| recovered.to_string());
    if let Some(recovered) = &recovered {
        tracing::warn!("{recovered}");
    }
    let root = options.root.clone();
    let os = tokio::task::spawn_blocking(move || detect::detect(&root)).await?;
    tracing::info!("operating system: {}: {}", os.os.backend_name(), os.reason);
    let metrics = DaemonMetrics::default();
    metrics.set_host(&options.root);
    let mut tasks = JoinSet::new();
    if let Some(address) = options.metrics_listen {
        let listener = listen::bind(address, "--metrics-listen").await?;
        let page = MetricsEndpoint { sources: vec![metrics.source()], health: None };
        tasks.spawn(page.serve(listener));
    }
    // The Node may be out of reach for long; waiting for it here would block the units after this one.
    systemd_notify::ready();
    let (reporter, reporting) = Reporter::new(client.clone());
    tasks.spawn(reporting);
    let own = OwnNode::new(client.clone(), &options.name);
    tasks.spawn(own.run_watch());
    let heart = options.registration.clone().map(|registration| {
        heartbeat::NodeHeartbeat::new(client.clone(), options.name.clone(), registration)
    });
    let (certificates, following) = ClusterCertificates::new(client.clone());
    tasks.spawn(following);
    if let Some(endpoint) = options.kubelet_healthz.clone() {
        tasks.spawn(kubelet_health::probe_forever(endpoint, metrics.clone()));
    }
    let is_protected = Arc::new(AtomicBool::new(false));
    let mut agent = Agent {
        client,
        own_node: own,
        disk,
        reporter,
        metrics,
        heartbeat: heart,
        certificates,
        boot_id: super::state::boot_id(&options.root)?,
        stop: stop.clone(),
        defer_sigterm: is_protected,
        is_checked: false,
        reboot_ordered: false,
        drift_policy: options.drift_policy,
        drift_watcher: None,
        healthy_on: None,
        actions_run_for: None,
        os_backend: Arc::new(os),
        fetched_os_change: None,
        unreported_recovery: recovered,
        last_note: DaemonNote::default(),
        waiting: None,
        failures: 0,
        retry: None,
    };
    tasks.spawn(agent.report_deferred_sigterm());
    if let Some(heart) = agent.heartbeat.clone() {
        tasks.spawn(async move {
            heart.register().await;
            heart.run().await;
        });
    }
    if options.renews_certificate {
        tasks.spawn(renew_certificate::renew(
            options.root.clone(),
            options.name.clone(),
            stop.clone(),
        ));
    }
    agent.wait_for_node().await;
    agent.run_loop().await;
    agent.reporter.flush().await;
    Ok(if told.is_cancelled() { ExitReason::Stopped } else { ExitReason::CertificateRenewed })
}

impl Agent {
    /// Says so when a signal has to wait.
    fn report_deferred_sigterm(&self) -> impl Future<Output = ()> + use<> {
        let (stop, is_protected) = (self.stop.clone(), Arc::clone(&self.defer_sigterm));
        let (reporter, own) = (self.reporter.clone(), self.own_node.clone());
        async move {
            stop.cancelled().await;
            if is_protected.load(Ordering::Relaxed) {
                tracing::warn!("Got SIGTERM, but actively updating");
                if let Some(node) = own.get() {
                    let message = "Got SIGTERM, but actively updating";
                    reporter.warn(&node, "GotSigtermDuringUpdate", message);
                }
            }
        }
    }

    /// Waits for the first sight of the Node. Whoever has just restarted into a config that cut it off
    /// from its home would wait for ever, and goes back.
    async fn wait_for_node(&mut self) {
        let (own, stop) = (self.own_node.clone(), self.stop.clone());
        let mut changes = own.subscribe();
        let seen = async { while own.get().is_none() && changes.changed().await.is_ok() {} };
        tokio::select! {
            () = seen => {}
            () = stop.cancelled() => {}
            done = self.check_health_offline() => {
                if let Err(error) = done {
                    tracing::error!("the machine cannot go back: {error:#}");
                }
            }
        }
    }

    /// Takes one turn after the other until it is told to stop.
    async fn run_loop(&mut self) {
        let mut changes = self.own_node.subscribe();
        let mut certificates = self.certificates.subscribe();
        loop {
            if self.stop.is_cancelled() {
                return;
            }
            changes.borrow_and_update();
            let flow = match self.own_node.get() {
                None => NextReconcile::Wait(None),
                Some(node) => self.reconcile_with_backoff(&node).await,
            };
            let pause = match flow {
                NextReconcile::Immediately => continue,
                NextReconcile::Wait(pause) => pause,
            };
            let sleep = async {
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            let rest = trim_memory::trim_after(trim_memory::IDLE_DELAY);
            tokio::select! {
                () = self.stop.cancelled() => return,
                _ = changes.changed() => {}
                _ = certificates.changed() => self.retry = None,
                () = sleep => {}
                () = drift_watch::next_drift(&mut self.drift_watcher) => self.report_drift().await,
                never = rest => match never {},
            }
        }
    }

    /// A turn, unless the last one failed a moment ago and nothing has changed since.
    async fn reconcile_with_backoff(&mut self, node: &Arc<Node>) -> NextReconcile {
        if let Some((at, wanted)) = &self.retry {
            let pause = at.saturating_duration_since(Instant::now());
            if *wanted == annotations::external_inputs(node) && !pause.is_zero() {
                return NextReconcile::Wait(Some(pause));
            }
        }
        self.retry = None;
        let turned = self.reconcile(node).await;
        // Whatever becomes of the config, before a pause the certificates are brought up to date.
        let refreshed = match turned {
            Ok(NextReconcile::Immediately) => Ok(()),
            _ => self.refresh_certificates().await,
        };
        let flow = match (turned, refreshed) {
            (Ok(flow), Ok(())) => flow,
            (Err(error), _) | (Ok(_), Err(error)) => {
                NextReconcile::Wait(Some(self.report_failure(node, &error).await))
            }
        };
        self.write_note();
        flow
    }

    /// Notes on the machine itself what the daemon is doing.
    fn write_note(&mut self) {
        let Some(node) = self.own_node.get() else { return };
        let view = NodeView(&node);
        let note = DaemonNote {
            node: self.own_node.name.clone(),
            state: view.state().to_owned(),
            reason: view.reason().to_owned(),
            desired: view.desired_config().to_owned(),
            waiting: self.waiting.as_ref().map(|(request, ..)| request.clone()),
        };
        if note != self.last_note {
            note.write(self.disk.path());
            self.last_note = note;
        }
    }

    /// Tells everyone that a turn failed; how long to wait for the next.
    async fn report_failure(&mut self, node: &Arc<Node>, error: &anyhow::Error) -> Duration {
        self.set_sigterm_protection(node, false);
        self.failures += 1;
        let pause = backoff(self.failures);
        let node = self.own_node.get().unwrap_or_else(|| Arc::clone(node));
        self.retry = Some((Instant::now() + pause, annotations::external_inputs(&node)));
        let reason = format!("{error:#}");
        if own_node::is_unreachable(error) {
            tracing::warn!("the home does not answer, trying again in {pause:?}: {reason}");
            return pause;
        }
        let state = match error.downcast_ref::<Unreconcilable>() {
            Some(_) => state::UNRECONCILABLE,
            None => state::DEGRADED,
        };
        tracing::error!("Marking {state} due to: {reason}");
        self.metrics.set_state(state, &reason);
        self.reporter.write_status(&node, reports::degraded(&self.own_node.name, &reason));
        if let Err(error) = self.own_node.annotate(annotations::failed(state, &reason)).await {
            tracing::warn!("cannot say so on the Node: {error:#}");
        }
        pause
    }

    /// From now on a signal waits, or does not any more.
    fn set_sigterm_protection(&self, node: &Arc<Node>, is: bool) {
        if self.defer_sigterm.swap(is, Ordering::Relaxed) == is {
            return;
        }
        let (reason, message) = if is {
            ("AddSigtermProtection", "Adding SIGTERM protection")
        } else {
            ("RemoveSigtermProtection", "Removing SIGTERM protection")
        };
        tracing::info!("{message}");
        self.reporter.event(node, reason, message);
    }
}
