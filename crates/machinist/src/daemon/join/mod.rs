//! Joining a home, and leaving it: an identity of the machine's own, a service, a Node; and all of it
//! away again, with every file given back.
//!
//! | file | does |
//! |---|---|
//! | `credentials` | a client certificate of the machine's own, and its renewal |
//! | `places` | where things are |
//! | `service` | the service that runs the daemon |
//! | `leave` | everything as it was |
//! | `born` | what a first boot has left, and goes with it |

mod cleanup;
pub(crate) mod credentials;
mod leave;
pub(crate) mod paths;
mod service;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use machinist_core::api::names::path::{CURRENT_CONFIG, NODE_ANNOTATIONS};
use serde_json::{Value, json};

pub(crate) use leave::leave;
use paths::JoinPaths;
pub(crate) use service::SERVICE_NAME as SERVICE;

use super::agent::new_node;
use super::root::HostRoot;
use super::state;
use super::systemd::Systemd;

/// How a machine joins.
#[derive(Debug, Clone)]
pub(crate) struct JoinOptions {
    /// The name of its Node.
    pub(crate) name: String,
    /// The root of the machine.
    pub(crate) root: PathBuf,
    /// The labels that its Node is to have.
    pub(crate) labels: BTreeMap<String, String>,
    /// Whether a kubelet looks after the Node.
    pub(crate) has_kubelet: bool,
    /// Whether to keep the identity of the kubeconfig instead of asking for one.
    pub(crate) keep_identity: bool,
    /// The program that the service runs.
    pub(crate) binary: PathBuf,
    /// Where the daemon serves its figures, if anywhere.
    pub(crate) metrics_listen: Option<String>,
    /// Whether the service is started now, and not with the next boot.
    pub(crate) start_now: bool,
}

/// What has been done.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JoinReport {
    /// The Node.
    pub(crate) node: String,
    /// Where the machine's identity is.
    pub(crate) kubeconfig: PathBuf,
    /// The service, and whether it runs.
    pub(crate) service: &'static str,
    /// Whether it was started: not in an image that is being built.
    pub(crate) is_started: bool,
}

/// Joins the home that a kubeconfig describes.
pub(crate) async fn join(given: &Value, joining: &JoinOptions) -> Result<JoinReport> {
    let places = JoinPaths::new(&joining.root);
    if places.kubeconfig().exists() {
        bail!(
            "this machine has joined already ({} is there): machinist leave first",
            places.kubeconfig().display()
        );
    }
    if !joining.binary.exists() {
        bail!("--binary {}: there is no such file", joining.binary.display());
    }
    let kubeconfig = if joining.keep_identity {
        given.clone()
    } else {
        credentials::issue_identity(given, &joining.name).await?
    };
    let client = credentials::client_for(&kubeconfig).await?;
    ensure_node(&client, joining).await?;
    places.create_state_dir()?;
    write_identity(&joining.root, &kubeconfig)?;
    service::install(&places, joining)?;
    let is_started = joining.start_now && start_service(&joining.root).await?;
    Ok(JoinReport {
        node: joining.name.clone(),
        kubeconfig: places.kubeconfig(),
        service: service::SERVICE_NAME,
        is_started,
    })
}

/// Keeps the machine's identity, for root alone.
pub(super) fn write_identity(root: &Path, kubeconfig: &Value) -> Result<()> {
    let bytes = serde_json::to_vec_pretty(kubeconfig)?;
    let path = paths::KUBECONFIG;
    state::write_private(&HostRoot::open_read_only(root)?, path, &bytes)
        .with_context(|| format!("cannot write {path}"))
}

/// Makes the machine's Node, or gives the one that is there its labels.
async fn ensure_node(client: &Client, joining: &JoinOptions) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    let name = &joining.name;
    let context = || format!("Node {name}");
    match api.get_opt(name).await.with_context(context)? {
        Some(_) => {
            let mut patch = json!({"metadata": {"labels": joining.labels}});
            if has_no_config(&joining.root)? {
                // What a Node of this name said in an earlier life is not true any more.
                patch["metadata"]["annotations"] = leave::remove_annotations_patch();
            }
            let patch = Patch::Merge(patch);
            let patched = api.patch(name, &PatchParams::default(), &patch).await;
            patched.map(drop).with_context(|| format!("cannot label Node {name}"))
        }
        None if joining.has_kubelet => bail!(
            "Node {name}: there is none; start the kubelet first, or leave --kubelet out where there is none"
        ),
        None => {
            let node = new_node(name, &joining.labels);
            let made = api.create(&PostParams::default(), &node).await;
            made.map(drop).with_context(|| format!("cannot create Node {name}"))
        }
    }
}

/// Whether the disk says nothing about a config.
fn has_no_config(root: &Path) -> Result<bool> {
    let root = HostRoot::open_read_only(root)?;
    Ok(!root.exists(CURRENT_CONFIG)? && !root.exists(NODE_ANNOTATIONS)?)
}

/// Starts the service where systemd runs.
async fn start_service(root: &Path) -> Result<bool> {
    let Some(systemd) = Systemd::connect(root).await? else { return Ok(false) };
    systemd.daemon_reload().await?;
    systemd.start(service::SERVICE_NAME).await?;
    Ok(true)
}
