//! What happened, as Kubernetes Events: for `kubectl describe` and for three in the morning.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde_json::json;
use tokio::sync::mpsc;

/// Events about objects that are in no namespace are here.
const NAMESPACE: &str = "default";
/// How many different events are remembered for counting.
const MAX_DEDUPLICATED: usize = 2048;

/// Who reports an event: the name that `kubectl describe` shows as its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct EventComponent(pub(crate) &'static str);

/// One thing that happened.
#[derive(Debug, Clone)]
struct PendingEvent {
    /// Who says so.
    pub component: EventComponent,
    /// What it is about.
    pub involved_object: ObjectReference,
    /// Whether somebody should look.
    pub warning: bool,
    /// One word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

/// Sends events away without waiting for them: an event that is lost must never stop a rollout.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    sender: mpsc::Sender<PendingEvent>,
}

impl Recorder {
    /// A recorder, and the task that writes.
    pub(crate) fn new(client: Client) -> (Self, impl Future<Output = ()>) {
        let (sender, receiver) = mpsc::channel(256);
        (Self { sender }, write(client, receiver))
    }

    /// Reports something about an object.
    pub(crate) fn report_event<K: Resource<DynamicType = ()>>(
        &self,
        component: EventComponent,
        about: &K,
        warning: bool,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let message = message.into();
        let name = about.name_any();
        if warning {
            tracing::warn!(kind = %K::kind(&()), name, reason, message);
        } else {
            tracing::info!(kind = %K::kind(&()), name, reason, message);
        }
        let about = about.object_ref(&());
        // When more happens than can be written, the log above has it.
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

async fn write(client: Client, mut receiver: mpsc::Receiver<PendingEvent>) {
    let api: Api<Event> = Api::namespaced(client, NAMESPACE);
    let mut known: HashMap<EventKey, (String, i32)> = HashMap::new();
    while let Some(happening) = receiver.recv().await {
        let PendingEvent { component, involved_object: about, reason, message, .. } = &happening;
        let key = (*component, about.kind.clone(), about.name.clone(), *reason, message.clone());
        if let Some((name, count)) = known.get_mut(&key) {
            *count += 1;
            let now = Time(Timestamp::now());
            let patch = Patch::Merge(json!({"count": *count, "lastTimestamp": now}));
            // It may have expired; then it is a new one.
            if api.patch(name, &PatchParams::default(), &patch).await.is_ok() {
                continue;
            }
        }
        let event = build_event(&happening, Timestamp::now());
        match api.create(&PostParams::default(), &event).await {
            Ok(event) => {
                if known.len() >= MAX_DEDUPLICATED {
                    known.clear();
                }
                known.insert(key, (event.name_any(), 1));
            }
            Err(error) => tracing::debug!(%error, "cannot write an event"),
        }
    }
}

fn build_event(happening: &PendingEvent, now: Timestamp) -> Event {
    let name = happening.involved_object.name.clone().unwrap_or_default();
    let time = Time(now);
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{:x}", now.as_nanosecond())),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: happening.involved_object.clone(),
        reason: Some(happening.reason.to_owned()),
        message: Some(happening.message.chars().take(1024).collect()),
        type_: Some(if happening.warning { "Warning" } else { "Normal" }.to_owned()),
        source: Some(EventSource { component: Some(happening.component.0.to_owned()), host: None }),
        reporting_component: Some(happening.component.0.to_owned()),
        first_timestamp: Some(time.clone()),
        last_timestamp: Some(time),
        count: Some(1),
        ..Event::default()
    }
}
