//! Writes MachineConfigNode and events in the background, in order. A report must never hold an update up.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, Node};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use machinist_core::api::names::annotation::machinist::REPORT;
use machinist_core::api::{MachineConfigNode, MachineConfigPool};
use machinist_core::node::NodeView;
use machinist_core::node::machine_config_node::{
    NodeReport, apply_report, new_machine_config_node,
};
use machinist_core::rollout::pools_of;
use machinist_hub::failure_log::FailureLog;
use serde_json::json;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::kubernetes::error_text::error_text;

/// The source of events.
const COMPONENT: &str = "machineconfigdaemon";
/// The namespace of events about objects without one.
const NAMESPACE: &str = "default";
/// The timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Events that come with each drift and each heal. They repeat when something else changes a file again and
/// again: one object counts them, and has the latest message.
const AGGREGATED_EVENTS: [&str; 9] = [
    "AddSigtermProtection",
    "ConfigDriftDetected",
    "ConfigDriftHealed",
    "ConfigDriftMonitorLimited",
    "ConfigDriftMonitorStarted",
    "ConfigDriftMonitorStopped",
    "ConfigDriftWarning",
    "OnDiskStateValidationFailed",
    "RemoveSigtermProtection",
];
/// After this long without a repetition, an aggregated event becomes a new object.
const AGGREGATION_WINDOW: SignedDuration = SignedDuration::from_mins(10);
/// The longest message of an event that Kubernetes accepts.
const MAX_MESSAGE_CHARS: usize = 1024;
/// The timeout of a report, with the time for which the API server asks its writer to wait.
const REPORT_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest such time that is waited at once.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(5);
/// How many reports wait at most while the API server is slow or limits this machine. Later ones are dropped. Each may hold
/// a version of the Node, so that many of them are most of the daemon's memory.
const MAX_WAITING_REPORTS: usize = 256;
/// How often a report is retried after a conflict.
const MAX_CONFLICT_RETRIES: usize = 4;

enum ReportMessage {
    Status(Arc<Node>, Box<NodeReport>),
    Spec(Arc<Node>),
    Answer(Arc<Node>, Option<String>),
    Event { node: Arc<Node>, warning: bool, reason: &'static str, message: String },
    Flush(oneshot::Sender<()>),
}

/// Sends reports to the writer. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Reporter {
    sender: mpsc::Sender<ReportMessage>,
    /// How many reports were dropped since the writer last said so.
    dropped: Arc<AtomicUsize>,
}

impl Reporter {
    /// Returns a reporter, and the task that writes.
    pub(super) fn new(client: Client, failures: FailureLog) -> (Self, impl Future<Output = ()>) {
        let (sender, receiver) = mpsc::channel(MAX_WAITING_REPORTS);
        let dropped = Arc::new(AtomicUsize::new(0));
        (
            Self { sender, dropped: Arc::clone(&dropped) },
            run_writer(client, receiver, dropped, failures),
        )
    }

    /// Never waits: a report must not hold an update up.
    fn send(&self, message: ReportMessage) {
        if let Err(TrySendError::Full(_)) = self.sender.try_send(message) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Reports a condition on the MachineConfigNode.
    pub(super) fn write_status(&self, node: &Arc<Node>, report: NodeReport) {
        self.send(ReportMessage::Status(Arc::clone(node), Box::new(report)));
    }

    /// Writes the desired config to the spec of the MachineConfigNode.
    pub(super) fn write_spec(&self, node: &Arc<Node>) {
        self.send(ReportMessage::Spec(Arc::clone(node)));
    }

    /// Writes the answer to a request for a report, or removes it.
    pub(super) fn write_answer(&self, node: &Arc<Node>, answer: Option<String>) {
        self.send(ReportMessage::Answer(Arc::clone(node), answer));
    }

    /// Sends a normal event.
    pub(super) fn event(&self, node: &Arc<Node>, reason: &'static str, message: impl Into<String>) {
        self.send_event(node, false, reason, message.into());
    }

    /// Sends a warning event.
    pub(super) fn warn(&self, node: &Arc<Node>, reason: &'static str, message: impl Into<String>) {
        self.send_event(node, true, reason, message.into());
    }

    fn send_event(&self, node: &Arc<Node>, warning: bool, reason: &'static str, message: String) {
        self.send(ReportMessage::Event { node: Arc::clone(node), warning, reason, message });
    }

    /// Waits until everything is written, up to the timeout of a request.
    pub(super) async fn flush(&self) {
        let (sender, receiver) = oneshot::channel();
        let written = async {
            if self.sender.send(ReportMessage::Flush(sender)).await.is_ok() {
                let _ = receiver.await;
            }
        };
        let _ = timeout(REQUEST_TIMEOUT, written).await;
    }
}

/// For how long the API server asks a client to wait.
fn retry_after(status: &kube::core::Status) -> Duration {
    let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    Duration::from_secs(u64::from(seconds.max(1))).min(MAX_RETRY_AFTER)
}

async fn run_writer(
    client: Client,
    mut receiver: mpsc::Receiver<ReportMessage>,
    dropped: Arc<AtomicUsize>,
    failures: FailureLog,
) {
    const TASK: &str = "write a report";
    let mut writer = ReportWriter { client, cached: None, aggregated: HashMap::new() };
    while let Some(message) = receiver.recv().await {
        if let ReportMessage::Flush(done) = message {
            let _ = done.send(());
            continue;
        }
        match timeout(REPORT_TIMEOUT, writer.write_when_allowed(&message)).await {
            Ok(Ok(())) => failures.succeeded(TASK, ""),
            Ok(Err(error)) => {
                failures.failed(TASK, "", &error_text(&error));
            }
            Err(_) => {
                failures.failed(TASK, "", "the API server does not respond");
            }
        }
        let dropped = dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            tracing::warn!(
                dropped,
                "dropped events and states: the API server accepts them too slowly"
            );
        }
    }
}

struct ReportWriter {
    client: Client,
    /// The MachineConfigNode as it was last read or written.
    cached: Option<MachineConfigNode>,
    /// The current object of each aggregated event.
    aggregated: HashMap<&'static str, AggregatedEvent>,
}

/// An event object that counts repetitions.
struct AggregatedEvent {
    name: String,
    count: i32,
    last: Timestamp,
}

impl ReportWriter {
    /// Writes a report. A machine that writes too much is asked to wait; dropping its reports would leave an old
    /// state in the MachineConfigNode.
    async fn write_when_allowed(&mut self, message: &ReportMessage) -> kube::Result<()> {
        loop {
            let written = timeout(REQUEST_TIMEOUT, self.write(message)).await;
            let no_response = || kube::Error::Service("the API server does not respond".into());
            match written.unwrap_or_else(|_| Err(no_response())) {
                Err(kube::Error::Api(status)) if status.code == 429 => {
                    tokio::time::sleep(retry_after(&status)).await;
                }
                done => return done,
            }
        }
    }

    async fn write(&mut self, message: &ReportMessage) -> kube::Result<()> {
        match message {
            ReportMessage::Status(node, report) => self.write_status(node, report).await,
            ReportMessage::Spec(node) => self.write_spec(node).await,
            ReportMessage::Answer(node, answer) => self.write_answer(node, answer.as_deref()).await,
            ReportMessage::Event { node, warning, reason, message } => {
                self.write_event(node, *warning, reason, message).await
            }
            ReportMessage::Flush(_) => Ok(()),
        }
    }

    fn api(&self) -> Api<MachineConfigNode> {
        Api::all(self.client.clone())
    }

    /// The MachineConfigNode, created if there is none.
    async fn get_or_create(&mut self, node: &Node) -> kube::Result<MachineConfigNode> {
        if let Some(known) = &self.cached {
            return Ok(known.clone());
        }
        let name = node.name_any();
        let found = match self.api().get_opt(&name).await? {
            Some(found) => found,
            None => {
                let pools: Api<MachineConfigPool> = Api::all(self.client.clone());
                let pools = pools.list(&ListParams::default()).await?.items;
                let pools = pools_of(node, &pools).unwrap_or_default();
                let pool = pools.first().map(|pool| pool.name_any()).unwrap_or_default();
                let object = new_machine_config_node(node, &pool);
                match self.api().create(&PostParams::default(), &object).await {
                    Err(kube::Error::Api(status)) if status.code == 409 => {
                        self.api().get(&name).await?
                    }
                    made => made?,
                }
            }
        };
        self.cached = Some(found.clone());
        Ok(found)
    }

    async fn write_status(&mut self, node: &Node, report: &NodeReport) -> kube::Result<()> {
        for _ in 0..MAX_CONFLICT_RETRIES {
            let object = self.get_or_create(node).await?;
            let Some(status) = apply_report(&object, node, report, &Time(Timestamp::now())) else {
                return Ok(());
            };
            let patch = json!({
                "metadata": {"resourceVersion": object.resource_version()}, "status": status,
            });
            let (name, params) = (node.name_any(), PatchParams::default());
            match self.api().patch_status(&name, &params, &Patch::Merge(patch)).await {
                Ok(written) => {
                    self.cached = Some(written);
                    return Ok(());
                }
                // Someone else wrote it, or it was created again.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                    self.cached = None;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn write_spec(&mut self, node: &Node) -> kube::Result<()> {
        let desired = NodeView(node).desired_config();
        let object = self.get_or_create(node).await?;
        if object.spec.config_version.desired == desired {
            return Ok(());
        }
        let patch = json!({"spec": {"configVersion": {"desired": desired}}});
        let (name, params) = (node.name_any(), PatchParams::default());
        self.cached = Some(self.api().patch(&name, &params, &Patch::Merge(patch)).await?);
        Ok(())
    }

    async fn write_answer(&mut self, node: &Node, answer: Option<&str>) -> kube::Result<()> {
        let name = node.name_any();
        let before = match answer {
            Some(_) => self.get_or_create(node).await?,
            None => match self.api().get_opt(&name).await? {
                Some(found) => found,
                None => return Ok(()),
            },
        };
        if before.annotations().get(REPORT).map(String::as_str) == answer {
            return Ok(());
        }
        let patch = Patch::Merge(json!({"metadata": {"annotations": {REPORT: answer}}}));
        // One that was deleted is created with the next answer.
        self.cached = None;
        self.api().patch(&name, &PatchParams::default(), &patch).await.map(drop)
    }

    async fn write_event(
        &mut self,
        node: &Node,
        warning: bool,
        reason: &'static str,
        message: &str,
    ) -> kube::Result<()> {
        let now = Timestamp::now();
        let message: String = message.chars().take(MAX_MESSAGE_CHARS).collect();
        let api: Api<Event> = Api::namespaced(self.client.clone(), NAMESPACE);
        let is_recent =
            |known: &&mut AggregatedEvent| now.duration_since(known.last) < AGGREGATION_WINDOW;
        if let Some(known) = self.aggregated.get_mut(reason).filter(is_recent) {
            (known.count, known.last) = (known.count.saturating_add(1), now);
            let patch = json!({
                "count": known.count, "lastTimestamp": Time(now), "message": message,
            });
            // An event that has expired is created again.
            match api.patch(&known.name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                written => return written.map(drop),
            }
        }
        let event = Event {
            metadata: ObjectMeta {
                name: Some(format!("{}.{:x}", node.name_any(), now.as_nanosecond())),
                namespace: Some(NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: node.object_ref(&()),
            reason: Some(reason.to_owned()),
            message: Some(message),
            type_: Some(if warning { "Warning" } else { "Normal" }.to_owned()),
            source: Some(EventSource {
                component: Some(COMPONENT.to_owned()),
                host: Some(node.name_any()),
            }),
            reporting_component: Some(COMPONENT.to_owned()),
            reporting_instance: Some(node.name_any()),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            ..Event::default()
        };
        let written = api.create(&PostParams::default(), &event).await?;
        if AGGREGATED_EVENTS.contains(&reason) {
            let known = AggregatedEvent { name: written.name_any(), count: 1, last: now };
            self.aggregated.insert(reason, known);
        }
        Ok(())
    }
}
