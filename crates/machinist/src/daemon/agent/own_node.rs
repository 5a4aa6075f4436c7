//! The Node of this machine: the watch, and all writes of annotations.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, Client};
use machinist_core::api::names::object::CLUSTER;
use machinist_core::api::operator::MachineConfiguration;
use machinist_core::api::{MachineConfig, names};
use machinist_core::daemon::annotations::{self, NodeAnnotationPatch};
use machinist_hub::failure_log::FailureLog;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::kubernetes::cache::Cache;

/// The timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The API server did not respond in time.
#[derive(Debug, thiserror::Error)]
#[error("no response in {} seconds", REQUEST_TIMEOUT.as_secs())]
struct RequestTimeout;

/// The Node of this machine. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct OwnNode {
    /// Its name.
    pub(super) name: String,
    cache: Cache<Node>,
    client: Arc<ClientBox>,
}

/// A client does not implement `Debug`.
struct ClientBox(Client);

impl std::fmt::Debug for ClientBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl OwnNode {
    pub(super) fn new(client: Client, name: &str) -> Self {
        let client = Arc::new(ClientBox(client));
        Self { name: name.to_owned(), cache: Cache::default(), client }
    }

    fn api(&self) -> Api<Node> {
        Api::all(self.client.0.clone())
    }

    /// Watches the Node, forever.
    pub(super) fn run_watch(&self, failures: FailureLog) -> impl Future<Output = ()> + use<> {
        let own = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        self.cache.clone().reflect(self.api(), own, trim_node, failures)
    }

    /// The Node as it was last seen or written.
    pub(super) fn get(&self) -> Option<Arc<Node>> {
        self.cache.get(&self.name)
    }

    /// Whether the API server has said whether there is a Node.
    pub(super) fn is_listed(&self) -> bool {
        self.cache.is_ready()
    }

    /// Notifies about changes of the Node.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.cache.subscribe()
    }

    /// Writes annotations that differ. Returns the Node with them.
    pub(super) async fn annotate(&self, wanted: NodeAnnotationPatch) -> Result<Arc<Node>> {
        let node = self.get().ok_or_else(|| anyhow!("Node {} is gone", self.name))?;
        let missing = annotations::changed_only(&node, wanted);
        if missing.is_empty() {
            return Ok(node);
        }
        let patch = Patch::Merge(annotations::merge_patch(&missing));
        let (api, params) = (self.api(), PatchParams::default());
        let request = api.patch(&self.name, &params, &patch);
        let mut written = with_timeout(request)
            .await
            .with_context(|| format!("cannot write the annotations of Node {}", self.name))?;
        trim_node(&mut written);
        self.cache.upsert(written);
        self.get().ok_or_else(|| anyhow!("Node {} is gone", self.name))
    }
}

/// Images and volumes are most of a Node, and the daemon does not need them.
fn trim_node(node: &mut Node) {
    node.metadata.managed_fields = None;
    if let Some(status) = &mut node.status {
        status.images = None;
        status.volumes_attached = None;
        status.volumes_in_use = None;
    }
}

/// A request with a timeout.
pub(super) async fn with_timeout<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T> {
    Ok(timeout(REQUEST_TIMEOUT, request).await.map_err(|_| RequestTimeout)??)
}

/// Whether an error is about the connection to the API server, not about the machine.
pub(super) fn is_unreachable(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let api = cause.downcast_ref::<kube::Error>();
        let refused = |error: &kube::Error| match error {
            // 429: the machine has to write less, which a state `Degraded` would not help.
            kube::Error::Api(status) => matches!(status.code, 401 | 429) || status.code >= 500,
            _ => true,
        };
        cause.is::<RequestTimeout>() || api.is_some_and(refused)
    })
}

/// Reads a config. The error for a missing one has MCO's words.
pub(super) async fn get_config(client: &Client, name: &str) -> Result<MachineConfig> {
    let api: Api<MachineConfig> = Api::all(client.clone());
    let found = with_timeout(api.get_opt(name)).await.context("cannot read the config")?;
    found.ok_or_else(|| anyhow!("machineconfig.{} {name:?} not found", names::GROUP))
}

/// The settings for disruptions; `None` if there are none or the machine may not read them.
pub(super) async fn get_machine_configuration(
    client: &Client,
) -> Result<Option<MachineConfiguration>> {
    let api: Api<MachineConfiguration> = Api::all(client.clone());
    match with_timeout(api.get_opt(CLUSTER)).await {
        Err(error) if has_status_code(&error, 403) => {
            tracing::warn!(
                "may not read MachineConfiguration cluster: only the default disruption policies apply"
            );
            Ok(None)
        }
        found => found.with_context(|| format!("cannot read MachineConfiguration {CLUSTER}")),
    }
}

pub(super) fn has_status_code(error: &anyhow::Error, code: u16) -> bool {
    let api = error.chain().find_map(|cause| cause.downcast_ref::<kube::Error>());
    matches!(api, Some(kube::Error::Api(status)) if status.code == code)
}
