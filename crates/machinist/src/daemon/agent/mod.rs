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
mod finish;
mod gate;
mod kubelet;
mod memory;
mod metrics;
mod node;
mod os;
mod register;
mod renew;
mod report;
mod turn;
mod update;
mod watch;

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
use machinist_core::rollout::NodeView;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::drift::Watch;
use super::os::host::{self, Found};
use super::status::Note;
use crate::figures::Page;
use crate::listen;
use certificates::Certificates;
use disk::Disk;
use metrics::Metrics;
use node::Own;
pub(crate) use register::{Registration, new_node};
use report::Reporter;

/// How a daemon is to run.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The name of its Node.
    pub(crate) name: String,
    /// The root of the machine.
    pub(crate) root: PathBuf,
    /// Where figures are served, if anywhere.
    pub(crate) listen: Option<SocketAddr>,
    /// The Node of a host on which no kubelet looks after it.
    pub(crate) registration: Option<Registration>,
    /// What happens to drift where the Node does not say it.
    pub(crate) drift: DriftPolicy,
    /// Whether the machine's identity is its own, and renewed by it.
    pub(crate) renews: bool,
    /// Where the kubelet says that it is well, if there is one.
    pub(crate) kubelet: Option<http::Uri>,
}

/// Why a daemon has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was told to.
    Told,
    /// The machine has a new certificate: begin again with it.
    Renewed,
}

/// The config cannot be reached from the present one.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Unreconcilable(String);

/// What a turn ends with.
#[derive(Debug)]
enum Flow {
    /// There is more to do at once.
    Again,
    /// Nothing to do until the Node changes, or for so long at most.
    Wait(Option<Duration>),
}

/// A daemon.
struct Agent {
    client: Client,
    own: Own,
    disk: Disk,
    reporter: Reporter,
    metrics: Metrics,
    heart: Option<register::Heart>,
    certificates: Certificates,
    boot: String,
    stop: CancellationToken,
    /// Whether a signal has to wait.
    is_protected: Arc<AtomicBool>,
    /// Whether the disk has been compared with its config.
    is_checked: bool,
    /// Whether a restart has been ordered.
    goes_down: bool,
    /// What happens to drift where the Node does not say it.
    drift: DriftPolicy,
    /// Sees what somebody does to the disk while nothing is to be done.
    watch: Option<Watch>,
    /// The config on which the machine was found well.
    well: Option<String>,
    /// The config whose actions have been done.
    acted: Option<String>,
    /// How the operating system of this host is changed.
    os: Arc<Found>,
    /// The change whose image is on the machine already.
    fetched: Option<machinist_core::os::OsChange>,
    /// What became of a change that had been interrupted, until it has been told.
    recovered: Option<String>,
    /// What was noted last.
    note: Note,
    /// What is waited for, since when, and whether that was said to be too long.
    waited: Option<(String, Instant, bool)>,
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
    options: Options,
    told: CancellationToken,
) -> Result<Ended> {
    let stop = told.child_token();
    let disk = Disk::new(&options.root);
    let recovered = disk.recover().await?.map(|recovered| recovered.to_string());
    if let Some(recovered) = &recovered {
        tracing::warn!("{recovered}");
    }
    let root = options.root.clone();
    let os = tokio::task::spawn_blocking(move || host::find(&root)).await?;
    tracing::info!("operating system: {}: {}", os.os.name(), os.reason);
    let metrics = Metrics::default();
    metrics.host(&options.root);
    let mut tasks = JoinSet::new();
    if let Some(address) = options.listen {
        let listener = listen::bind(address, "--listen").await?;
        let page = Page { sources: vec![metrics.source()], health: None };
        tasks.spawn(page.serve(listener));
    }
    let (reporter, reporting) = Reporter::new(client.clone());
    tasks.spawn(reporting);
    let own = Own::new(client.clone(), &options.name);
    tasks.spawn(own.follow());
    let heart = options.registration.clone().map(|registration| {
        register::Heart::new(client.clone(), options.name.clone(), registration)
    });
    let (certificates, following) = Certificates::new(client.clone());
    tasks.spawn(following);
    if let Some(endpoint) = options.kubelet.clone() {
        tasks.spawn(kubelet::ask_again_and_again(endpoint, metrics.clone()));
    }
    let is_protected = Arc::new(AtomicBool::new(false));
    let mut agent = Agent {
        client,
        own,
        disk,
        reporter,
        metrics,
        heart,
        certificates,
        boot: super::state::boot_id(&options.root)?,
        stop: stop.clone(),
        is_protected,
        is_checked: false,
        goes_down: false,
        drift: options.drift,
        watch: None,
        well: None,
        acted: None,
        os: Arc::new(os),
        fetched: None,
        recovered,
        note: Note::default(),
        waited: None,
        failures: 0,
        retry: None,
    };
    tasks.spawn(agent.complain_of_signals());
    if let Some(heart) = agent.heart.clone() {
        tasks.spawn(async move {
            heart.register().await;
            heart.beat().await;
        });
    }
    if options.renews {
        tasks.spawn(renew::renew(options.root.clone(), options.name.clone(), stop.clone()));
    }
    agent.see_node().await;
    agent.live().await;
    agent.reporter.flush().await;
    Ok(if told.is_cancelled() { Ended::Told } else { Ended::Renewed })
}

impl Agent {
    /// Says so when a signal has to wait.
    fn complain_of_signals(&self) -> impl Future<Output = ()> + use<> {
        let (stop, is_protected) = (self.stop.clone(), Arc::clone(&self.is_protected));
        let (reporter, own) = (self.reporter.clone(), self.own.clone());
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
    async fn see_node(&mut self) {
        let (own, stop) = (self.own.clone(), self.stop.clone());
        let mut changes = own.changes();
        let seen = async { while own.get().is_none() && changes.changed().await.is_ok() {} };
        tokio::select! {
            () = seen => {}
            () = stop.cancelled() => {}
            done = self.judge_alone() => {
                if let Err(error) = done {
                    tracing::error!("the machine cannot go back: {error:#}");
                }
            }
        }
    }

    /// Takes one turn after the other until it is told to stop.
    async fn live(&mut self) {
        let mut changes = self.own.changes();
        let mut certificates = self.certificates.changes();
        loop {
            if self.stop.is_cancelled() {
                return;
            }
            changes.borrow_and_update();
            let flow = match self.own.get() {
                None => Flow::Wait(None),
                Some(node) => self.attempt(&node).await,
            };
            let pause = match flow {
                Flow::Again => continue,
                Flow::Wait(pause) => pause,
            };
            let sleep = async {
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            let rest = memory::give_back_after(memory::QUIET);
            tokio::select! {
                () = self.stop.cancelled() => return,
                _ = changes.changed() => {}
                _ = certificates.changed() => self.retry = None,
                () = sleep => {}
                () = watch::next(&mut self.watch) => self.drifted().await,
                never = rest => match never {},
            }
        }
    }

    /// A turn, unless the last one failed a moment ago and nothing has changed since.
    async fn attempt(&mut self, node: &Arc<Node>) -> Flow {
        if let Some((at, wanted)) = &self.retry {
            let pause = at.saturating_duration_since(Instant::now());
            if *wanted == annotations::external_inputs(node) && !pause.is_zero() {
                return Flow::Wait(Some(pause));
            }
        }
        self.retry = None;
        let turned = self.turn(node).await;
        // Whatever becomes of the config, before a pause the certificates are brought up to date.
        let refreshed = match turned {
            Ok(Flow::Again) => Ok(()),
            _ => self.refresh().await,
        };
        let flow = match (turned, refreshed) {
            (Ok(flow), Ok(())) => flow,
            (Err(error), _) | (Ok(_), Err(error)) => {
                Flow::Wait(Some(self.fail(node, &error).await))
            }
        };
        self.take_note();
        flow
    }

    /// Notes on the machine itself what the daemon is doing.
    fn take_note(&mut self) {
        let Some(node) = self.own.get() else { return };
        let view = NodeView(&node);
        let note = Note {
            node: self.own.name.clone(),
            state: view.state().to_owned(),
            reason: view.reason().to_owned(),
            desired: view.desired_config().to_owned(),
            waiting: self.waited.as_ref().map(|(request, ..)| request.clone()),
        };
        if note != self.note {
            note.write(self.disk.path());
            self.note = note;
        }
    }

    /// Tells everyone that a turn failed; how long to wait for the next.
    async fn fail(&mut self, node: &Arc<Node>, error: &anyhow::Error) -> Duration {
        self.protect(node, false);
        self.failures += 1;
        let pause = backoff(self.failures);
        let node = self.own.get().unwrap_or_else(|| Arc::clone(node));
        self.retry = Some((Instant::now() + pause, annotations::external_inputs(&node)));
        let reason = format!("{error:#}");
        if node::is_unreachable(error) {
            tracing::warn!("the home does not answer, trying again in {pause:?}: {reason}");
            return pause;
        }
        let state = match error.downcast_ref::<Unreconcilable>() {
            Some(_) => state::UNRECONCILABLE,
            None => state::DEGRADED,
        };
        tracing::error!("Marking {state} due to: {reason}");
        self.metrics.state(state, &reason);
        self.reporter.tell(&node, reports::degraded(&self.own.name, &reason));
        if let Err(error) = self.own.annotate(annotations::failed(state, &reason)).await {
            tracing::warn!("cannot say so on the Node: {error:#}");
        }
        pause
    }

    /// From now on a signal waits, or does not any more.
    fn protect(&self, node: &Arc<Node>, is: bool) {
        if self.is_protected.swap(is, Ordering::Relaxed) == is {
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
