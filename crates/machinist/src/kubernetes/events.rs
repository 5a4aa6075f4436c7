//! Records Kubernetes Events, which `kubectl describe` shows with the object. Used by the controller and the operator.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use machinist_core::node::excerpt;
use machinist_hub::failure_log::FailureLog;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::mpsc;

use super::error_text::error_text;
use super::event_budget::EventBudgets;

/// The namespace of events about objects that are in no namespace.
const NAMESPACE: &str = "default";
/// How many different events are remembered. A repeated event raises its count instead of becoming a new object.
const MAX_DEDUPLICATED: usize = 2048;
/// The longest message, as in Kubernetes. Some repeat what a machine has written.
const MAX_MESSAGE_CHARS: usize = 1024;

/// Who reports an event: the name that `kubectl describe` shows as its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct EventComponent(pub(crate) &'static str);

/// An event that is not written yet.
#[derive(Debug, Clone)]
struct PendingEvent {
    /// Who reports it.
    pub component: EventComponent,
    /// The object it is about.
    pub involved_object: ObjectReference,
    /// Whether a person should look at it.
    pub warning: bool,
    /// One word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

/// Queues events without waiting for their writes: a lost event must never stop a rollout.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    sender: mpsc::Sender<PendingEvent>,
    budgets: Arc<Mutex<EventBudgets>>,
}

impl Recorder {
    /// A recorder, and the task that writes its events.
    pub(crate) fn new(client: Client, failures: FailureLog) -> (Self, impl Future<Output = ()>) {
        let (sender, receiver) = mpsc::channel(256);
        (Self { sender, budgets: Arc::default() }, write(client, receiver, failures))
    }

    /// Logs something about an object and records it as an event.
    pub(crate) fn report_event<K: Resource<DynamicType = ()>>(
        &self,
        component: EventComponent,
        about: &K,
        warning: bool,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let message = message.into();
        let message = excerpt(&message, MAX_MESSAGE_CHARS);
        let name = about.name_any();
        if warning {
            tracing::warn!(kind = %K::kind(&()), name, reason, message);
        } else {
            tracing::info!(kind = %K::kind(&()), name, reason, message);
        }
        self.record(component, about, warning, reason, message);
    }

    /// Records an event about an object that is in the log already.
    pub(crate) fn record<K: Resource<DynamicType = ()>>(
        &self,
        component: EventComponent,
        about: &K,
        warning: bool,
        reason: &'static str,
        message: &str,
    ) {
        // The log has it.
        if !self.budgets.lock().admit(&K::kind(&()), &about.name_any(), Instant::now()) {
            return;
        }
        let about = about.object_ref(&());
        let message = excerpt(message, MAX_MESSAGE_CHARS).to_owned();
        // If more happens than can be written, the log still has it.
        let _ = self.sender.try_send(PendingEvent {
            component,
            involved_object: about,
            warning,
            reason,
            message,
        });
    }
}

type EventKey = (EventComponent, Option<String>, Option<String>, &'static str, String);

async fn write(client: Client, mut receiver: mpsc::Receiver<PendingEvent>, failures: FailureLog) {
    const TASK: &str = "record events";
    let api: Api<Event> = Api::namespaced(client, NAMESPACE);
    let mut known: HashMap<EventKey, (String, i32)> = HashMap::new();
    while let Some(pending) = receiver.recv().await {
        let PendingEvent { component, involved_object: about, reason, message, .. } = &pending;
        let key = (*component, about.kind.clone(), about.name.clone(), *reason, message.clone());
        if let Some((name, count)) = known.get_mut(&key) {
            *count += 1;
            let now = Time(Timestamp::now());
            let patch = Patch::Merge(json!({"count": *count, "lastTimestamp": now}));
            // An event that has expired is created again.
            if api.patch(name, &PatchParams::default(), &patch).await.is_ok() {
                failures.succeeded(TASK, "");
                continue;
            }
        }
        let event = build_event(&pending, Timestamp::now());
        match api.create(&PostParams::default(), &event).await {
            Ok(event) => {
                failures.succeeded(TASK, "");
                if known.len() >= MAX_DEDUPLICATED {
                    known.clear();
                }
                known.insert(key, (event.name_any(), 1));
            }
            Err(error) => {
                failures.failed(TASK, "", &error_text(&error));
            }
        }
    }
}

fn build_event(pending: &PendingEvent, now: Timestamp) -> Event {
    let name = pending.involved_object.name.clone().unwrap_or_default();
    let time = Time(now);
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{:x}", now.as_nanosecond())),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: pending.involved_object.clone(),
        reason: Some(pending.reason.to_owned()),
        message: Some(pending.message.clone()),
        type_: Some(if pending.warning { "Warning" } else { "Normal" }.to_owned()),
        source: Some(EventSource { component: Some(pending.component.0.to_owned()), host: None }),
        reporting_component: Some(pending.component.0.to_owned()),
        first_timestamp: Some(time.clone()),
        last_timestamp: Some(time),
        count: Some(1),
        ..Event::default()
    }
}
