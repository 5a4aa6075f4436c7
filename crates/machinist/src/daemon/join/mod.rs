//! Joins an API server, and leaves it: an identity of the machine, a service, and a Node; and their removal,
//! with every file restored.
//!
//! | module | does |
//! |---|---|
//! | `credentials` | the client certificate of the machine, and its renewal |
//! | `paths` | where things are |
//! | `service` | the service that runs the daemon |
//! | `leave` | leaving |
//! | `cleanup` | removal of what a first boot has left |

mod cleanup;
pub(crate) mod credentials;
mod leave;
pub(crate) mod paths;
mod service;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use machinist_core::api::names::label::NODE_ROLE_PREFIX;
use machinist_core::api::names::path::{CURRENT_CONFIG, NODE_ANNOTATIONS};
use serde_json::{Value, json};

pub(crate) use leave::{joined_name, leave};
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
    /// The labels of its Node.
    pub(crate) labels: BTreeMap<String, String>,
    /// Whether a kubelet registers the Node.
    pub(crate) has_kubelet: bool,
    /// Whether to keep the identity of the kubeconfig instead of requesting one.
    pub(crate) keep_identity: bool,
    /// The binary that the service runs.
    pub(crate) binary: PathBuf,
    /// The flags of the daemon for its metrics.
    pub(crate) metrics_arguments: Vec<String>,
    /// How long to wait for someone to approve the certificate.
    pub(crate) approval_timeout: Duration,
    /// Whether the service is started now, not with the next boot.
    pub(crate) start_now: bool,
}

/// What was done.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JoinReport {
    /// The Node.
    pub(crate) node: String,
    /// Where the identity of the machine is.
    pub(crate) kubeconfig: PathBuf,
    /// The service.
    pub(crate) service: &'static str,
    /// Whether it was started; not in an image that is being built.
    pub(crate) is_started: bool,
}

/// Joins the API server that a kubeconfig describes.
pub(crate) async fn join(given: &Value, options: &JoinOptions) -> Result<JoinReport> {
    let join_paths = JoinPaths::new(&options.root);
    if join_paths.kubeconfig().exists() {
        bail!(
            "this machine has joined already ({} is there): run machinist leave first",
            join_paths.kubeconfig().display()
        );
    }
    // Whatever can be wrong with the machine is found before it has an identity: a second try would find its name taken.
    HostRoot::open_read_only(&options.root)?;
    if !options.binary.exists() {
        bail!("--binary {}: there is no such file", options.binary.display());
    }
    let kubeconfig = if options.keep_identity {
        given.clone()
    } else {
        let roles = options.labels.keys().filter_map(|label| label.strip_prefix(NODE_ROLE_PREFIX));
        let roles: Vec<&str> = roles.collect();
        credentials::issue_identity(given, &options.name, &roles, options.approval_timeout).await?
    };
    let client = credentials::client_for(&kubeconfig).await?;
    ensure_node(&client, options).await?;
    join_paths.create_state_dir()?;
    write_identity(&options.root, &kubeconfig)?;
    service::install(&join_paths, options)?;
    let is_started = options.start_now && start_service(&options.root).await?;
    Ok(JoinReport {
        node: options.name.clone(),
        kubeconfig: join_paths.kubeconfig(),
        service: service::SERVICE_NAME,
        is_started,
    })
}

/// Writes the identity of the machine, readable only by root.
pub(super) fn write_identity(root: &Path, kubeconfig: &Value) -> Result<()> {
    let bytes = serde_json::to_vec_pretty(kubeconfig)?;
    let path = paths::KUBECONFIG;
    state::write_private(&HostRoot::open_read_only(root)?, path, &bytes)
        .with_context(|| format!("cannot write {path}"))
}

/// Creates the Node of the machine, or labels the existing one.
async fn ensure_node(client: &Client, options: &JoinOptions) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    let name = &options.name;
    let context = || format!("Node {name}");
    match api.get_opt(name).await.with_context(context)? {
        Some(_) => {
            let mut patch = json!({"metadata": {"labels": options.labels}});
            if has_no_config(&options.root)? {
                // The annotations of an earlier machine of this name are not true any more.
                patch["metadata"]["annotations"] = leave::remove_annotations_patch();
            }
            let patch = Patch::Merge(patch);
            let patched = api.patch(name, &PatchParams::default(), &patch).await;
            patched.map(drop).with_context(|| format!("cannot label Node {name}"))
        }
        None if options.has_kubelet => bail!(
            "Node {name}: there is none; start the kubelet first, or leave --kubelet out where there is none"
        ),
        None => {
            let node = new_node(name, &options.labels);
            let made = api.create(&PostParams::default(), &node).await;
            made.map(drop).with_context(|| format!("cannot create Node {name}"))
        }
    }
}

/// Whether the disk names no config.
fn has_no_config(root: &Path) -> Result<bool> {
    let root = HostRoot::open_read_only(root)?;
    Ok(!root.exists(CURRENT_CONFIG)? && !root.exists(NODE_ANNOTATIONS)?)
}

/// Starts the service, if systemd runs.
async fn start_service(root: &Path) -> Result<bool> {
    let Some(systemd) = Systemd::connect(root).await? else { return Ok(false) };
    systemd.daemon_reload().await?;
    systemd.start(service::SERVICE_NAME).await?;
    Ok(true)
}
