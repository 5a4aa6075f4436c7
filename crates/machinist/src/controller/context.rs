//! What all loops share: the client, the caches, the leadership, and the reports of failures.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use machinist_core::drain::DrainBlocker;
use machinist_core::rollout::guarded_patch::{PatchPreconditions, guarded_patch};
use machinist_core::template::TemplateTree;
use machinist_hub::failure_log::{FailureLog, FailureState};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{Semaphore, watch};

use super::ControllerOptions;
use super::caches::Caches;
use super::generate::AllNotes;
use super::metrics::ControllerMetrics;
use super::render::RenderStatuses;
use crate::kubernetes::error_text::error_text;
use crate::kubernetes::events::{EventComponent, Recorder};
use crate::kubernetes::lease::Leadership;
use crate::liveness::Liveness;

/// How many writes are under way at a time.
const MAX_CONCURRENT_WRITES: usize = 32;
/// How long a write may take at most.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// What every loop has at hand. A clone shares it.
#[derive(Clone)]
pub(super) struct Context {
    /// The client of the API server.
    pub client: Client,
    /// The API server's objects.
    pub caches: Caches,
    /// Records events.
    pub events: Recorder,
    /// The current failures.
    pub failures: FailureLog,
    /// Whether the loops make progress.
    pub liveness: Liveness,
    /// The metrics.
    pub metrics: ControllerMetrics,
    /// How the last rendering of each pool went.
    pub render_statuses: watch::Sender<RenderStatuses>,
    /// What pools should say about what is generated for them.
    pub pool_notes: watch::Sender<AllNotes>,
    /// The pods that block the drain of a machine now.
    pub drain_blockers: watch::Sender<BTreeMap<String, Vec<DrainBlocker>>>,
    /// The templates that the MachineConfigs of every machine are made from.
    pub templates: Arc<TemplateTree>,
    /// The namespace of the system's own objects.
    pub namespace: String,
    /// Whether no machine gets a config, and those in a drain are uncordoned.
    pub releases_machines: bool,
    /// Whether the API server has pods.
    pub has_pods: bool,
    leadership: Leadership,
    /// How long a write may take. Never longer than others wait after we have lost the lead, so that a write of ours has
    /// arrived, or never will, before another controller leads.
    write_timeout: Duration,
    permits: Arc<Semaphore>,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// Why a write did not happen.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// Another controller leads now.
    #[error("this controller no longer leads")]
    NotLeading,
    /// The API server did not respond.
    #[error("the API server did not respond in time")]
    Timeout,
    /// The API server refused, or cannot be reached.
    #[error("{}", error_text(.0))]
    Api(#[from] kube::Error),
}

impl WriteError {
    /// Whether somebody else wrote in the meantime: our cache is stale, and the watch will update it.
    #[must_use]
    pub(super) fn is_conflict(&self) -> bool {
        self.status_code() == Some(409)
    }

    /// Whether our cache is stale: somebody else wrote in the meantime, or a `test` of a JSON patch failed.
    #[must_use]
    pub(super) fn is_stale(&self) -> bool {
        matches!(self.status_code(), Some(409 | 422))
    }

    /// Whether the object is gone.
    #[must_use]
    pub(super) fn is_not_found(&self) -> bool {
        self.status_code() == Some(404)
    }

    /// The status code of the response.
    #[must_use]
    pub(super) fn status_code(&self) -> Option<u16> {
        match self {
            Self::Api(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        }
    }
}

impl Context {
    /// The context of one term of leadership.
    pub(super) fn new(
        client: Client,
        events: Recorder,
        failures: FailureLog,
        metrics: ControllerMetrics,
        lead: Leadership,
        options: &ControllerOptions,
        has_pods: bool,
    ) -> Self {
        let election = &options.election;
        let margin = election.duration.saturating_sub(election.renew_deadline);
        Self {
            client,
            caches: Caches::default(),
            events,
            failures,
            liveness: options.liveness.clone(),
            metrics,
            render_statuses: watch::Sender::new(RenderStatuses::default()),
            pool_notes: watch::Sender::new(AllNotes::default()),
            drain_blockers: watch::Sender::default(),
            templates: Arc::clone(&options.templates),
            releases_machines: options.releases_machines,
            namespace: options.namespace.clone(),
            has_pods,
            leadership: lead,
            write_timeout: margin.min(REQUEST_TIMEOUT),
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_WRITES)),
        }
    }

    /// Reports a failed write: one warning per change of the failure, and one event on the object once it persists.
    pub(super) fn write_failed<K: Resource<DynamicType = ()>>(
        &self,
        task: &'static str,
        component: EventComponent,
        about: &K,
        error: &WriteError,
    ) -> FailureState {
        if matches!(error, WriteError::NotLeading) {
            return FailureState::Recent;
        }
        let text = error.to_string();
        let state = self.failures.failed(task, &about.name_any(), &text);
        if state == FailureState::BecamePersistent {
            let message = format!("cannot {task}: {text}");
            self.events.record(component, about, true, "WriteFailed", &message);
        }
        state
    }

    /// Reports a successful write.
    pub(super) fn write_succeeded<K: Resource<DynamicType = ()>>(
        &self,
        task: &'static str,
        about: &K,
    ) {
        self.failures.succeeded(task, &about.name_any());
    }

    /// Performs a request if we lead, with a limit on how many there are and how long they take.
    pub(super) async fn write<T>(
        &self,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, WriteError> {
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        if !self.leadership.is_leading() {
            return Err(WriteError::NotLeading);
        }
        self.metrics.count_request();
        match tokio::time::timeout(self.write_timeout, request).await {
            Ok(response) => Ok(response?),
            Err(_) => Err(WriteError::Timeout),
        }
    }

    /// Records the pods that block the drain of a machine.
    pub(super) fn set_drain_blockers(&self, node: &str, blockers: &[DrainBlocker]) {
        self.drain_blockers.send_if_modified(|all| {
            if all.get(node).map(Vec::as_slice).unwrap_or_default() == blockers {
                return false;
            }
            match blockers {
                [] => all.remove(node),
                _ => all.insert(node.to_owned(), blockers.to_vec()),
            };
            true
        });
    }

    /// Patches a machine, unless a field that the decision depends on has changed.
    pub(super) async fn patch_node(
        &self,
        node: &Node,
        patch: &Value,
        preconditions: PatchPreconditions<'_>,
    ) -> Result<Node, WriteError> {
        let api: Api<Node> = Api::all(self.client.clone());
        let steps = serde_json::from_value(Value::Array(guarded_patch(node, patch, preconditions)));
        let steps = Patch::<Node>::Json(steps.unwrap_or_default());
        let name = node.name_any();
        let written = self.write(api.patch(&name, &PatchParams::default(), &steps)).await?;
        self.caches.nodes.upsert(written.clone());
        Ok(written)
    }

    /// Merges a patch into an object that is in no namespace.
    pub(super) async fn merge_patch<K>(&self, name: &str, patch: &Value) -> Result<K, WriteError>
    where
        K: Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
            + Clone
            + DeserializeOwned
            + fmt::Debug,
    {
        let api: Api<K> = Api::all(self.client.clone());
        self.write(api.patch(name, &PatchParams::default(), &Patch::Merge(patch))).await
    }

    /// Merges a patch into the status of an object that is in no namespace.
    pub(super) async fn merge_patch_status<K>(
        &self,
        name: &str,
        patch: &Value,
    ) -> Result<K, WriteError>
    where
        K: Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
            + Clone
            + DeserializeOwned
            + fmt::Debug,
    {
        let api: Api<K> = Api::all(self.client.clone());
        self.write(api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch))).await
    }
}
