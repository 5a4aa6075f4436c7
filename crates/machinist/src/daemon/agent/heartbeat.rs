//! The Node of a host without kubelet: registered when the daemon starts, and kept ready with a lease that is renewed
//! every few seconds, as a kubelet does. A control plane marks a Node whose lease is old as `Unknown`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeSystemInfo};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource as _};
use machinist_core::node::{NodeView, NotReady};
use machinist_core::os::manifest::image_architecture;
use machinist_hub::failure_log::FailureLog;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::own_node::{OwnNode, has_status_code, with_timeout};

/// How often the Node is reported as ready.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(300);
/// How often the lease is renewed, as by a kubelet.
const LEASE_INTERVAL: Duration = Duration::from_secs(10);
/// After this long without a renewal, in seconds, the machine counts as silent.
const LEASE_DURATION_SECONDS: i32 = 40;
/// What fails while the machine cannot register its Node.
const REGISTER_TASK: &str = "register the Node";
/// The namespace of the machines' leases.
const LEASE_NAMESPACE: &str = "kube-node-lease";
/// The pause after the API server did not respond.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// What a Node is registered with.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeRegistration {
    /// Its labels.
    pub(crate) labels: BTreeMap<String, String>,
    /// The root of the machine.
    pub(crate) root: PathBuf,
}

/// Keeps the Node of a machine ready.
#[derive(Clone)]
pub(super) struct NodeHeartbeat {
    client: Client,
    name: String,
    registration: NodeRegistration,
    failures: FailureLog,
    /// Whether this machine acts under its identity.
    is_acting: Arc<AtomicBool>,
}

impl NodeHeartbeat {
    pub(super) fn new(
        client: Client,
        name: String,
        registration: NodeRegistration,
        failures: FailureLog,
    ) -> Self {
        let is_acting = Arc::new(AtomicBool::new(true));
        Self { client, name, registration, failures, is_acting }
    }

    /// Stops the reports while another machine acts under the identity of this one.
    pub(super) fn set_acting(&self, is_acting: bool) {
        self.is_acting.store(is_acting, Ordering::Relaxed);
    }

    /// Registers the Node if there is none, and reports it as ready. Retries until it succeeds.
    pub(super) async fn register(&self) {
        while self.register_once().await.is_none() {
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// Registers the Node if there is none, and reports it as ready. A failure is reported.
    pub(super) async fn register_once(&self) -> Option<()> {
        self.failures.record(REGISTER_TASK, &self.name, self.try_register().await)
    }

    async fn try_register(&self) -> Result<()> {
        let api: Api<Node> = Api::all(self.client.clone());
        if with_timeout(api.get_opt(&self.name)).await?.is_none() {
            let node = new_node(&self.name, &self.registration.labels);
            match with_timeout(api.create(&PostParams::default(), &node)).await {
                Ok(_) => tracing::info!(node = self.name, "registered the Node"),
                Err(error) => return Err(error).context("cannot create the Node"),
            }
        }
        let info = system_info(&self.registration.root);
        let ready = ready_condition(true, "the daemon of the machine runs");
        self.patch_status(json!({"conditions": [ready], "nodeInfo": info, "addresses": [
            {"type": "Hostname", "address": self.name},
        ]}))
        .await
    }

    /// Renews the lease and reports the machine as ready, forever. It is reported at once if the control plane took
    /// it for silent.
    pub(super) async fn run(self, own_node: OwnNode) {
        const READY_TASK: &str = "report the machine as ready";
        const LEASE_TASK: &str = "renew the lease of the machine";
        let failures = self.failures.clone();
        let mut reported = Instant::now();
        loop {
            if !self.is_acting.load(Ordering::Relaxed) {
                tokio::time::sleep(LEASE_INTERVAL).await;
                continue;
            }
            failures.record(LEASE_TASK, "", self.renew_lease(&own_node).await);
            let is_taken_for_silent = own_node.get().is_some_and(|node| {
                NodeView(&node).not_ready() == Some(NotReady::NotReady("Unknown".to_owned()))
            });
            if is_taken_for_silent || reported.elapsed() >= HEARTBEAT_INTERVAL {
                let ready = ready_condition(true, "the daemon of the machine runs");
                let written = self.patch_status(json!({"conditions": [ready]})).await;
                if failures.record(READY_TASK, "", written).is_some() {
                    reported = Instant::now();
                }
            }
            tokio::time::sleep(LEASE_INTERVAL).await;
        }
    }

    /// Renews the lease, and creates it for a Node that has none.
    async fn renew_lease(&self, own_node: &OwnNode) -> Result<()> {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), LEASE_NAMESPACE);
        let renewed = json!({"spec": {
            "holderIdentity": self.name, "leaseDurationSeconds": LEASE_DURATION_SECONDS,
            "renewTime": MicroTime(Timestamp::now()),
        }});
        let patch = Patch::Merge(&renewed);
        let params = PatchParams::default();
        match with_timeout(api.patch(&self.name, &params, &patch)).await {
            Err(error) if has_status_code(&error, 404) => {}
            done => return done.map(drop),
        }
        // It goes with its Node.
        let Some(node) = own_node.get() else { return Ok(()) };
        let mut lease: Lease = serde_json::from_value(renewed)?;
        lease.metadata.name = Some(self.name.clone());
        lease.metadata.owner_references = node.owner_ref(&()).map(|owner| vec![owner]);
        with_timeout(api.create(&PostParams::default(), &lease)).await.map(drop)
    }

    /// Reports that the machine shuts down.
    pub(super) async fn report_shutdown(&self) {
        let ready = ready_condition(false, "the machine restarts");
        if let Err(error) = self.patch_status(json!({"conditions": [ready]})).await {
            tracing::warn!(error = %format_args!("{error:#}"), "cannot report the shutdown");
        }
    }

    async fn patch_status(&self, status: Value) -> Result<()> {
        let api: Api<Node> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({"status": status}));
        let params = PatchParams::default();
        with_timeout(api.patch_status(&self.name, &params, &patch)).await?;
        Ok(())
    }
}

/// A new Node.
pub(crate) fn new_node(name: &str, labels: &BTreeMap<String, String>) -> Node {
    let mut labels = labels.clone();
    labels.entry("kubernetes.io/os".to_owned()).or_insert_with(|| "linux".to_owned());
    labels.entry("kubernetes.io/hostname".to_owned()).or_insert_with(|| name.to_owned());
    Node {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        ..Node::default()
    }
}

fn ready_condition(is: bool, message: &str) -> Value {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let (status, reason) =
        if is { ("True", "DaemonReady") } else { ("False", "DaemonRestartsMachine") };
    json!({
        "type": "Ready", "status": status, "reason": reason, "message": message,
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    })
}

/// What a person wants to know about a machine.
fn system_info(root: &Path) -> NodeSystemInfo {
    let text = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned());
    let host = |path: &str| {
        fs::read_to_string(root.join(path)).map(|text| text.trim().to_owned()).unwrap_or_default()
    };
    let release = host("etc/os-release");
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let machine = host("etc/machine-id");
    NodeSystemInfo {
        architecture: image_architecture(std::env::consts::ARCH).to_owned(),
        operating_system: std::env::consts::OS.to_owned(),
        boot_id: text("/proc/sys/kernel/random/boot_id").unwrap_or_default(),
        kernel_version: text("/proc/sys/kernel/osrelease").unwrap_or_default(),
        os_image: name.unwrap_or_default().trim_matches('"').to_owned(),
        system_uuid: machine.clone(),
        machine_id: machine,
        kubelet_version: format!("machinist-{}", env!("CARGO_PKG_VERSION")),
        ..NodeSystemInfo::default()
    }
}
