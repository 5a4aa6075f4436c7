//! What all loops share: the client, what is known, and the right to act.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use machinist_core::rollout::guarded_patch::{PatchPreconditions, guarded_patch};
use machinist_core::template::TemplateTree;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{Semaphore, watch};

use super::ControllerOptions;
use super::caches::Caches;
use super::generate::AllNotes;
use super::metrics::ControllerMetrics;
use super::render::RenderStatuses;
use crate::kubernetes::events::Recorder;
use crate::kubernetes::lease::Leadership;

/// How many writes are under way at a time.
const MAX_CONCURRENT_WRITES: usize = 32;
/// How long a write may take at most.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// What every loop has at hand. A clone shares it.
#[derive(Clone)]
pub(super) struct Context {
    /// The home.
    pub client: Client,
    /// What is known of it.
    pub caches: Caches,
    /// Where events go.
    pub events: Recorder,
    /// The figures.
    pub metrics: ControllerMetrics,
    /// How the last rendering of each pool went.
    pub render_statuses: watch::Sender<RenderStatuses>,
    /// What pools should say about what is generated for them.
    pub pool_notes: watch::Sender<AllNotes>,
    /// The templates that the MachineConfigs of every machine are made from.
    pub templates: Arc<TemplateTree>,
    /// The namespace of the system's own objects.
    pub namespace: String,
    /// Whether the home has pods.
    pub has_pods: bool,
    leadership: Leadership,
    /// How long a write may take: never longer than others wait after we have stopped to lead, so that a write which was
    /// sent while we led has arrived, or never will, before anybody else leads.
    write_timeout: Duration,
    permits: Arc<Semaphore>,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shell").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// Why a write did not happen.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// Another controller leads now.
    #[error("this controller does not lead any more")]
    NotLeading,
    /// The home did not answer.
    #[error("no answer in time")]
    Timeout,
    /// The home refused.
    #[error(transparent)]
    Api(#[from] kube::Error),
}

impl WriteError {
    /// Whether somebody else wrote meanwhile: what we know is old, and will be new in a moment.
    #[must_use]
    pub(super) fn is_conflict(&self) -> bool {
        self.status_code() == Some(409)
    }

    /// Whether what we know is old: somebody wrote meanwhile, or a test in a patch did not hold.
    #[must_use]
    pub(super) fn is_stale(&self) -> bool {
        matches!(self.status_code(), Some(409 | 422))
    }

    /// Whether the object is gone.
    #[must_use]
    pub(super) fn is_not_found(&self) -> bool {
        self.status_code() == Some(404)
    }

    /// The answer's code.
    #[must_use]
    pub(super) fn status_code(&self) -> Option<u16> {
        match self {
            Self::Api(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        }
    }
}

impl Context {
    /// For one time of leadership.
    pub(super) fn new(
        client: Client,
        events: Recorder,
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
            metrics,
            render_statuses: watch::Sender::new(RenderStatuses::default()),
            pool_notes: watch::Sender::new(AllNotes::default()),
            templates: Arc::clone(&options.templates),
            namespace: options.namespace.clone(),
            has_pods,
            leadership: lead,
            write_timeout: margin.min(REQUEST_TIMEOUT),
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_WRITES)),
        }
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
            Ok(answer) => Ok(answer?),
            Err(_) => Err(WriteError::Timeout),
        }
    }

    /// Patches a machine, if what was decided on is as we know it.
    pub(super) async fn patch_node(
        &self,
        node: &Node,
        patch: &Value,
        grounds: PatchPreconditions<'_>,
    ) -> Result<Node, WriteError> {
        let api: Api<Node> = Api::all(self.client.clone());
        let steps = serde_json::from_value(Value::Array(guarded_patch(node, patch, grounds)));
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
