//! The daemon process: watches its Node and brings the machine to the desired config.
//!
//! ```text
//! Node ─ cache ─┐
//! disk ─ state ─┴─ core::daemon::next_step ─→ AgentStep ─→ effects on Node and disk ─→ …
//! ```
//!
//! Performs effects and decides nothing: what happens next is decided by `core::daemon` from what is
//! observed and from the [`Session`]. Started by `machinist daemon start` and by the joined service.
//!
//! | module | does |
//! |---|---|
//! | `reconcile` | one step: observe, let core decide, perform |
//! | `identity` | the claim on the Node, against clones |
//! | `rebuild_config` | a damaged `currentconfig`, written again |
//! | `update` | an update: check, download, drain, write |
//! | `post_apply` | the actions after a change, and the reboot |
//! | `finish` | the end of an update |
//! | `health_gate` | health checks on the new config, and the rollback |
//! | `boot_guard` | the unit that rolls back a host on which the kubelet does not start this daemon |
//! | `os` | the operating system: fetched, staged, checked after the reboot |
//! | `drift_watch` | drift: detected, reported, healed |
//! | `observe` | what a config would change, on a machine that is only observed |
//! | `own_node` | the Node: the watch, and all writes of annotations |
//! | `certificates` | files that the cluster keeps up to date next to the config |
//! | `kubelet_health` | probes of the kubelet |
//! | `answer` | answers `machinist logs` and `machinist diff --live` |
//! | `upgrade` | upgrades this daemon |
//! | `report` | MachineConfigNode and events, written in the background |
//! | `disk` | all work on the disk, on blocking threads |
//! | `heartbeat` | the Node and its lease, on a host without kubelet |
//! | `renew_certificate` | the client certificate, before it expires |
//! | `stalled_disk` | a disk that does not answer, reported |
//! | `metrics` | Prometheus metrics |
//!
//! SIGTERM is honoured between two steps only. A step that has begun is completed.

mod answer;
pub(crate) mod boot_guard;
mod certificates;
mod disk;
mod drift_watch;
mod finish;
mod health_gate;
mod heartbeat;
mod identity;
mod kubelet_health;
mod metrics;
mod observe;
mod os;
mod own_node;
mod post_apply;
mod rebuild_config;
mod reconcile;
mod renew_certificate;
mod report;
mod run_command;
mod stalled_disk;
mod update;
mod upgrade;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use machinist_core::api::names::annotation::machinist::HEAL;
use machinist_core::api::names::state;
use machinist_core::daemon::session::SigtermProtection;
use machinist_core::daemon::{Phase, Session, SessionEvent, annotations, reports};
use machinist_core::drift::DriftPolicy;
use machinist_core::node::{MachineMode, NodeView};
use machinist_hub::failure_log::FailureLog;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::drift::DriftWatcher;
use super::os::detect::{self, OsBackend};
use super::running;
use super::status::DaemonNote;
use super::transaction::Recovered;
use crate::kubernetes::connect::server_address;
use crate::liveness::{Liveness, RunningPass};
use crate::metrics::{MetricsEndpoint, MetricsOptions, Readiness};
use crate::systemd_notify;
use crate::telemetry::RecentLog;
use certificates::ClusterCertificates;
use disk::MachineDisk;
pub(crate) use heartbeat::{NodeRegistration, new_node};
use metrics::DaemonMetrics;
use own_node::OwnNode;
use report::Reporter;
use stalled_disk::StallReporter;

/// The task under which it is reported that the API server is out of reach.
const REACH_TASK: &str = "reach the API server";
/// The task under which it is reported that a state cannot be written.
const STATE_TASK: &str = "write the state to the Node";

/// How to run the daemon.
#[derive(Debug, Clone)]
pub(crate) struct DaemonOptions {
    /// The name of its Node.
    pub(crate) name: String,
    /// The root of the machine.
    pub(crate) root: PathBuf,
    /// Where to serve metrics, if anywhere.
    pub(crate) metrics: Option<MetricsOptions>,
    /// The Node to register on a host without kubelet.
    pub(crate) registration: Option<NodeRegistration>,
    /// The last lines of the log of this process.
    pub(crate) log: RecentLog,
    /// What to do about drift if the Node does not say.
    pub(crate) drift_policy: DriftPolicy,
    /// Whether the machine is changed if the Node does not say.
    pub(crate) mode: MachineMode,
    /// Whether the machine has a client certificate of its own, which the daemon renews.
    pub(crate) renews_certificate: bool,
    /// The health endpoint of the kubelet, if there is one.
    pub(crate) kubelet_healthz: Option<http::Uri>,
}

/// Why the daemon ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitReason {
    /// It was asked to stop.
    Stopped,
    /// The client certificate was renewed: start again with the new one.
    CertificateRenewed,
    /// The machine leaves.
    Left,
    /// Another binary is in the place of this one: systemd starts it.
    Upgraded,
}

/// Ends the daemon between two steps, for the first reason that is given.
#[derive(Debug, Clone)]
struct DaemonExit {
    stop: CancellationToken,
    reason: Arc<OnceLock<ExitReason>>,
}

impl DaemonExit {
    fn end(&self, reason: ExitReason) {
        self.reason.get_or_init(|| reason);
        self.stop.cancel();
    }
}

/// A running machine cannot change to the config.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Unreconcilable(String);

/// A failure for which another attempt is useless before a certain time.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
struct RetryLater {
    reason: String,
    retry_in: Duration,
}

/// When to reconcile again.
#[derive(Debug)]
enum NextReconcile {
    /// There is more to do.
    Immediately,
    /// When something changes, or after this long at most.
    Wait(Option<Duration>),
}

/// The daemon: handles to the outside, and the session that decisions depend on.
struct Agent {
    client: Client,
    own_node: OwnNode,
    disk: MachineDisk,
    reporter: Reporter,
    metrics: DaemonMetrics,
    /// What fails right now.
    failures: FailureLog,
    /// Whether the loop makes progress, and its pass if one is running.
    liveness: Liveness,
    pass: Option<RunningPass>,
    heartbeat: Option<heartbeat::NodeHeartbeat>,
    certificates: ClusterCertificates,
    /// How the operating system of this host is changed.
    os_backend: Arc<OsBackend>,
    /// The health endpoint of the kubelet, if there is one.
    kubelet: Option<http::Uri>,
    /// Detects drift while the machine is idle.
    drift_watcher: Option<DriftWatcher>,
    /// What to do about drift if the Node does not say.
    drift_policy: DriftPolicy,
    /// Whether the machine is changed if the Node does not say.
    mode: MachineMode,
    boot_id: String,
    stop: CancellationToken,
    /// `Session::phase` as the task that reports a deferred SIGTERM sees it.
    defers_sigterm: Arc<AtomicBool>,
    /// The note in `/run` as it was last written.
    last_note: DaemonNote,
    /// Becomes true when this daemon is stored as the last good one.
    is_good: watch::Sender<bool>,
    /// Whether it is noted on the disk that this daemon has come up.
    is_up_noted: bool,
    /// The zero of all times in the session.
    started: Instant,
    session: Session,
}

/// Runs until it is asked to stop.
///
/// # Errors
/// A background task of the daemon failed in a way that only a new process can mend.
pub(crate) async fn run(
    client: Client,
    options: DaemonOptions,
    liveness: Liveness,
    shutdown: CancellationToken,
) -> Result<ExitReason> {
    let stop = shutdown.child_token();
    let exit = DaemonExit { stop: stop.clone(), reason: Arc::default() };
    let disk = MachineDisk::new(&options.root);
    let mut session = Session::default();
    // The state of a disk never keeps the daemon from starting: only a running daemon can report it.
    session.after(match disk.recover().await {
        Ok(recovered) => recovered_event(&recovered),
        Err(error) => {
            let error = format_args!("{error:#}");
            tracing::error!(%error, "cannot recover an interrupted change; trying again");
            SessionEvent::RecoveryFailed
        }
    });
    let root = options.root.clone();
    let os_backend = tokio::task::spawn_blocking(move || detect::detect(&root)).await?;
    let backend = os_backend.os.backend_name();
    tracing::info!(backend, reason = os_backend.reason, "detected the operating system");
    let metrics = DaemonMetrics::default();
    let failures = FailureLog::default().of_server(server_address());
    metrics.set_host(&options.root);
    let mut tasks = JoinSet::new();
    if let Some(serve) = &options.metrics {
        let endpoint = MetricsEndpoint {
            sources: vec![metrics.source()],
            readiness: Readiness::always(failures.clone()),
        };
        // A port that is in use must not keep the machine from its configs.
        tasks.spawn(endpoint.serve_with_retries(serve.clone(), client.clone()));
    }
    // The Node may be out of reach for long; waiting for it here would block the units after this one.
    systemd_notify::ready();
    let (reporter, write_reports) = Reporter::new(client.clone(), failures.clone());
    tasks.spawn(write_reports);
    let own_node = OwnNode::new(client.clone(), &options.name);
    tasks.spawn(own_node.run_watch(failures.clone()));
    let heartbeat = options.registration.clone().map(|registration| {
        let (name, failures) = (options.name.clone(), failures.clone());
        heartbeat::NodeHeartbeat::new(client.clone(), name, registration, failures)
    });
    tasks.spawn(
        answer::Answers::new(&own_node, &reporter, &disk, options.log.clone()).answer_forever(),
    );
    let (certificates, watch_certificates) =
        ClusterCertificates::new(client.clone(), failures.clone());
    tasks.spawn(watch_certificates);
    if let Some(endpoint) = options.kubelet_healthz.clone() {
        tasks.spawn(kubelet_health::probe_forever(endpoint, metrics.clone()));
    }
    let mut agent = Agent {
        failures: failures.clone(),
        liveness,
        pass: None,
        client,
        own_node,
        disk,
        reporter,
        metrics,
        heartbeat,
        certificates,
        os_backend: Arc::new(os_backend),
        kubelet: options.kubelet_healthz,
        drift_watcher: None,
        drift_policy: options.drift_policy,
        mode: options.mode,
        boot_id: super::state::boot_id(&options.root)?,
        stop: stop.clone(),
        defers_sigterm: Arc::new(AtomicBool::new(false)),
        last_note: DaemonNote::default(),
        is_good: watch::Sender::default(),
        is_up_noted: false,
        started: Instant::now(),
        session,
    };
    tasks.spawn(agent.report_deferred_sigterm());
    let upgrades = upgrade::Upgrades {
        client: agent.client.clone(),
        own_node: agent.own_node.clone(),
        reporter: agent.reporter.clone(),
        root: options.root.clone(),
        exit: exit.clone(),
        is_good: agent.is_good.subscribe(),
    };
    tasks.spawn(upgrades.run());
    if let Some(heartbeat) = agent.heartbeat.clone() {
        let own_node = agent.own_node.clone();
        tasks.spawn(async move {
            heartbeat.register().await;
            heartbeat.run(own_node).await;
        });
    }
    if options.renews_certificate {
        tasks.spawn(renew_certificate::renew(
            options.root.clone(),
            options.name.clone(),
            failures.clone(),
            exit.clone(),
        ));
    }
    // Whatever systemd has started, it ends.
    let is_alone = options.renews_certificate && !systemd_notify::is_service();
    let _running = if is_alone { running::hold(&options.root) } else { None };
    if is_alone {
        let (left, exit) = (running::wait_for_leave(options.root.clone()), exit.clone());
        tasks.spawn(async move {
            left.await;
            tracing::info!("this machine leaves: ending");
            exit.end(ExitReason::Left);
        });
    }
    agent.wait_for_node().await;
    agent.run_loop().await;
    agent.reporter.flush().await;
    let reason = exit.reason.get().copied().filter(|_| !shutdown.is_cancelled());
    Ok(reason.unwrap_or(ExitReason::Stopped))
}

/// Logs what recovery did.
fn recovered_event(recovered: &Recovered) -> SessionEvent {
    let report = recovered.report();
    if let Some(recovered) = &report {
        tracing::warn!(recovered, "recovered an interrupted change");
    }
    SessionEvent::Recovered { report }
}

impl Agent {
    /// The time that the session counts in.
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Reports a SIGTERM that has to wait.
    fn report_deferred_sigterm(&self) -> impl Future<Output = ()> + use<> {
        let (stop, defers_sigterm) = (self.stop.clone(), Arc::clone(&self.defers_sigterm));
        let (reporter, own_node) = (self.reporter.clone(), self.own_node.clone());
        async move {
            stop.cancelled().await;
            if defers_sigterm.load(Ordering::Relaxed) {
                // MCO's literal line.
                tracing::warn!("Got SIGTERM, but actively updating");
                if let Some(node) = own_node.get() {
                    let message = "Got SIGTERM, but actively updating";
                    reporter.warn(&node, "GotSigtermDuringUpdate", message);
                }
            }
        }
    }

    /// Waits until the Node is in the cache. A machine that has just rebooted into a config that cut
    /// it off from the API server would wait forever: it checks its health and rolls back.
    async fn wait_for_node(&mut self) {
        let (own_node, stop) = (self.own_node.clone(), self.stop.clone());
        let mut changes = own_node.subscribe();
        let seen = async { while own_node.get().is_none() && changes.changed().await.is_ok() {} };
        tokio::select! {
            () = seen => {}
            () = stop.cancelled() => {}
            rolled_back = self.check_health_offline() => {
                if let Err(error) = rolled_back {
                    tracing::error!(error = %format_args!("{error:#}"), "cannot roll back");
                }
            }
        }
    }

    /// Reconciles until it is asked to stop.
    async fn run_loop(&mut self) {
        let mut changes = self.own_node.subscribe();
        let mut certificates = self.certificates.subscribe();
        loop {
            if self.stop.is_cancelled() {
                return;
            }
            changes.borrow_and_update();
            let limit = Phase::Idle.time_limit();
            self.pass = Some(self.liveness.begin("reconcile", limit));
            let next = match self.own_node.get() {
                None => self.register_again().await,
                Some(node) => {
                    self.session.node_missing_since = None;
                    let (name, config) = (&self.own_node.name, NodeView(&node).desired_config());
                    let span = tracing::info_span!("reconcile", node = name, config);
                    self.reconcile_with_backoff(&node).instrument(span).await
                }
            };
            self.pass = None;
            let pause = match next {
                NextReconcile::Immediately => continue,
                NextReconcile::Wait(pause) => pause,
            };
            let sleep = async {
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.stop.cancelled() => return,
                _ = changes.changed() => {}
                _ = certificates.changed() => self.session.after(SessionEvent::RetryNow),
                () = sleep => {}
                () = drift_watch::next_drift(&mut self.drift_watcher) => self.report_drift().await,
            }
        }
    }

    /// Reconciles, unless the last attempt failed a moment ago and nothing has changed since.
    async fn reconcile_with_backoff(&mut self, node: &Arc<Node>) -> NextReconcile {
        let now = self.now();
        let delay = self.session.retry_delay(now, &annotations::external_inputs(node));
        if delay.is_some() {
            return NextReconcile::Wait(delay);
        }
        let stalls = StallReporter {
            own_node: self.own_node.clone(),
            reporter: self.reporter.clone(),
            metrics: self.metrics.clone(),
        };
        let reconciled = tokio::select! {
            reconciled = self.reconcile(node) => reconciled,
            never = stalls.report_stalls() => match never {},
        };
        // Before a pause the certificates are refreshed, even if the config cannot be applied.
        let is_held = NodeView(node).held().is_some();
        let refreshed = match reconciled {
            Ok(NextReconcile::Immediately) => Ok(()),
            // Nothing is written to a machine that is left alone.
            _ if is_held || self.is_observed(node) => Ok(()),
            _ => self.refresh_certificates().await,
        };
        let next = match (reconciled, refreshed) {
            (Ok(next), Ok(())) => {
                self.failures.succeeded(REACH_TASK, "");
                self.note_came_up().await;
                next
            }
            (Err(error), _) | (Ok(_), Err(error)) => {
                NextReconcile::Wait(Some(self.report_failure(node, &error).await))
            }
        };
        self.write_note();
        next
    }

    /// Notes on the machine itself what the daemon is doing, for `machinist daemon status`.
    fn write_note(&mut self) {
        let Some(node) = self.own_node.get() else { return };
        let view = NodeView(&node);
        let note = DaemonNote {
            node: self.own_node.name.clone(),
            state: view.state().to_owned(),
            reason: view.reason().to_owned(),
            desired: view.desired_config().to_owned(),
            waiting: self.session.waiting.as_ref().map(|waiting| waiting.request.clone()),
            refused: self.refusal(),
            held: view.held().map(str::to_owned),
        };
        if note != self.last_note {
            let written = note.write(self.disk.path());
            if self.failures.record("note the state on the disk", "", written).is_some() {
                self.last_note = note;
            }
        }
    }

    /// Reports that a reconcile of a Node failed. Returns how long to wait for the next one.
    async fn report_failure(&mut self, node: &Arc<Node>, error: &anyhow::Error) -> Duration {
        self.enter(node, Phase::Idle);
        let now = self.now();
        // Those of the attempt: what was written meanwhile is another attempt's input, and makes it due.
        let inputs = annotations::external_inputs(node);
        let desired = NodeView(node).desired_config().to_owned();
        let heal_requested = NodeView(node).annotation(HEAL).is_some();
        let node = self.own_node.get().unwrap_or_else(|| Arc::clone(node));
        let retry_in = match error.downcast_ref::<RetryLater>() {
            Some(later) => self.session.fail_for(now, later.retry_in, inputs),
            None => self.session.fail(now, inputs),
        };
        let reason = format!("{error:#}");
        if own_node::is_unreachable(error) {
            self.failures.failed(REACH_TASK, "", &reason);
            return retry_in;
        }
        let state = match error.downcast_ref::<Unreconcilable>() {
            Some(_) => state::UNRECONCILABLE,
            None => state::DEGRADED,
        };
        // MCO's literal line.
        tracing::error!("Marking {state} due to: {reason}");
        self.metrics.set_state(state, &reason);
        self.reporter.write_status(&node, reports::degraded(&self.own_node.name, &reason));
        let mut failed = annotations::failed(state, &reason, &desired, &self.session.drifted);
        if heal_requested {
            failed.extend(annotations::clear_heal());
        }
        let written = self.own_node.annotate(failed).await;
        if self.failures.record(STATE_TASK, &self.own_node.name, written).is_some() {
            self.failures.succeeded(REACH_TASK, "");
        }
        retry_in
    }

    /// Enters a phase, and reports when that changes whether SIGTERM has to wait.
    fn enter(&mut self, node: &Arc<Node>, phase: Phase) {
        if let Some(pass) = &self.pass {
            pass.extend(phase.time_limit());
        }
        let (reason, message) = match self.session.enter(phase) {
            None => return,
            Some(SigtermProtection::Added) => ("AddSigtermProtection", "Adding SIGTERM protection"),
            Some(SigtermProtection::Removed) => {
                ("RemoveSigtermProtection", "Removing SIGTERM protection")
            }
        };
        self.defers_sigterm.store(phase.defers_sigterm(), Ordering::Relaxed);
        self.reporter.event(node, reason, message);
    }
}
