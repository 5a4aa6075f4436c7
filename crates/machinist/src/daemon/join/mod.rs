//! Joins an API server, and leaves it: an identity of the machine, a service, and a Node; and their removal,
//! with every file restored.
//!
//! | module | does |
//! |---|---|
//! | `connection` | why the API server cannot be reached |
//! | `credentials` | the client certificate of the machine, and its renewal |
//! | `first_config` | what the first config would cost |
//! | `paths` | where things are |
//! | `privilege` | whether the user may do this |
//! | `service` | the service that runs the daemon |
//! | `leave` | leaving |
//! | `cleanup` | removal of what a first boot has left |

mod cleanup;
mod connection;
pub(crate) mod credentials;
mod first_config;
pub(crate) mod identity_copy;
mod leave;
pub(crate) mod paths;
pub(crate) mod privilege;
mod service;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use machinist_core::api::names::label::NODE_ROLE_PREFIX;
use machinist_core::api::names::path::{CURRENT_CONFIG, NODE_ANNOTATIONS};
use serde_json::{Value, json};

use credentials::IdentityRequest;
pub(crate) use first_config::FirstConfig;
pub(crate) use leave::{joined_name, leave};
use paths::JoinPaths;
pub(crate) use service::SERVICE_NAME as SERVICE;
pub(super) use service::{PREVIOUS, WATCHDOG_TIMER};

use super::agent::new_node;
use super::root::HostRoot;
use super::state;
use super::systemd::Systemd;
use crate::{durable_file, fault_injection};

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
    /// The flags of the daemon for its log and its metrics.
    pub(crate) daemon_arguments: Vec<String>,
    /// How long to wait for someone to approve the certificate.
    pub(crate) approval_timeout: Duration,
    /// The pool, whose config the machine gets.
    pub(crate) pool: String,
    /// Sees what the first config costs, and decides whether the machine joins; if not, nothing is left of it.
    pub(crate) confirm: Option<fn(&FirstConfig) -> Result<bool>>,
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
    /// Whether the machine had an identity already.
    pub(crate) has_joined_before: bool,
    /// What was wrong and is repaired, if the machine had joined before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) repaired: Vec<String>,
}

/// Joins the API server that a kubeconfig describes, or repairs what is left of an earlier join to it.
///
/// The disk is in a valid state after each step: the request with its key, the identity, the unit, the link that
/// enables it. A second `join` continues after any of them.
pub(crate) async fn join(given: &Value, options: &JoinOptions) -> Result<JoinReport> {
    let join_paths = JoinPaths::new(&options.root);
    check_machine(options)?;
    if let Some(identity) = existing_identity(&options.root, &join_paths)? {
        check_same_machine(&identity, given, options)?;
        return repair(identity, given, options).await;
    }
    let first = look_before(given, options).await?;
    let is_known = !matches!(first, FirstConfig::NotReadable);
    if is_known && !is_confirmed(options, &first)? {
        bail!("cancelled; nothing was changed");
    }
    join_paths.create_state_dir()?;
    let kubeconfig = if options.keep_identity {
        given.clone()
    } else {
        request_identity(&join_paths, given, options).await?
    };
    // Before the Node exists: a machine without its identity could not take the Node over.
    write_identity(&options.root, &kubeconfig)?;
    JoinPaths::remove_file(&join_paths.join_request())?;
    let client = credentials::client_for(&kubeconfig).await?;
    if !is_known && options.confirm.is_some() {
        // A bootstrap token reads no configs; the machine reads its own.
        let first = first_config::first_config(&client, &options.pool, &options.root).await;
        match first.and_then(|first| is_confirmed(options, &first)) {
            Ok(true) => {}
            Ok(false) => return Err(undo(options, anyhow!("cancelled")).await),
            Err(error) => return Err(undo(options, error).await),
        }
    }
    let completed = complete(&client, &join_paths, options).await;
    let is_started = match completed {
        Ok(is_started) => is_started,
        Err(error) => return Err(undo(options, error).await),
    };
    Ok(JoinReport {
        node: options.name.clone(),
        kubeconfig: join_paths.kubeconfig(),
        service: service::SERVICE_NAME,
        is_started,
        has_joined_before: false,
        repaired: Vec::new(),
    })
}

/// What the first config of a machine would cost it, with the credentials that are given. Nothing is written.
pub(crate) async fn look_before(given: &Value, options: &JoinOptions) -> Result<FirstConfig> {
    check_machine(options)?;
    let client = credentials::client_for(given).await?;
    connection::check_connection(&client, credentials::server_url(given)).await?;
    first_config::first_config(&client, &options.pool, &options.root).await
}

fn is_confirmed(options: &JoinOptions, first: &FirstConfig) -> Result<bool> {
    options.confirm.map_or(Ok(true), |confirm| confirm(first))
}

/// Whatever can be wrong with the machine is found before it has an identity: a second try would find its name taken.
fn check_machine(options: &JoinOptions) -> Result<()> {
    HostRoot::open_read_only(&options.root)?;
    if !options.binary.exists() {
        bail!("--binary {}: there is no such file", options.binary.display());
    }
    Ok(())
}

/// Creates the Node and the service of a machine that has its identity. Returns whether the service was started.
async fn complete(client: &Client, join_paths: &JoinPaths, options: &JoinOptions) -> Result<bool> {
    ensure_node(client, options).await?;
    service::install(join_paths, options)?;
    Ok(options.start_now && start_service(&options.root, false).await?)
}

/// Removes what a failed join has left, the Node included, so that the name is free for another
/// attempt. Where that fails as well, the identity stays: with it, the next join continues.
async fn undo(options: &JoinOptions, error: anyhow::Error) -> anyhow::Error {
    match leave(&options.root, &options.name, None).await {
        Ok(_) => error.context("nothing of the join is left"),
        Err(left) => {
            let left = format_args!("{left:#}");
            tracing::warn!(error = %left, "cannot remove what the failed join has left");
            error.context("the join is not complete: run machinist join again, or machinist leave")
        }
    }
}

/// The identity of an earlier join. One that cannot be read and has no copy is of no use, and is replaced.
fn existing_identity(root: &Path, join_paths: &JoinPaths) -> Result<Option<Value>> {
    let path = join_paths.kubeconfig();
    let mut read = credentials::read_flattened(&path);
    if read.is_err() && identity_copy::restore(root)? {
        read = credentials::read_flattened(&path);
    }
    if !path.exists() {
        return Ok(None);
    }
    match read {
        Ok(identity) => Ok(Some(identity)),
        Err(error) => {
            tracing::warn!(error = %format_args!("{error:#}"), "replacing a damaged identity");
            JoinPaths::remove_file(&path)?;
            Ok(None)
        }
    }
}

/// Checks that an identity is for the server and the name that the machine joins now.
fn check_same_machine(identity: &Value, given: &Value, options: &JoinOptions) -> Result<()> {
    let (server, wanted) = (credentials::server_url(identity), credentials::server_url(given));
    // An identity that was kept from a kubeconfig may have no certificate, and so no name.
    let name = credentials::own_node_name(identity).unwrap_or_else(|| options.name.clone());
    if server != wanted || name != options.name {
        bail!(
            "this machine has joined {server} as {name} already, not {wanted} as {}: run machinist leave first",
            options.name
        );
    }
    Ok(())
}

/// Requests an identity. The request stays on disk until the identity is there.
async fn request_identity(
    join_paths: &JoinPaths,
    given: &Value,
    options: &JoinOptions,
) -> Result<Value> {
    let path = join_paths.join_request();
    let earlier = fs::read(&path).ok();
    let earlier: Option<IdentityRequest> =
        earlier.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let is_same = |request: &IdentityRequest| {
        request.node == options.name && request.server == credentials::server_url(given)
    };
    let request = match earlier.filter(is_same) {
        Some(request) => request,
        None => {
            let request = IdentityRequest::generate(given, &options.name)?;
            durable_file::write(&path, &serde_json::to_vec(&request)?, durable_file::PRIVATE)
                .with_context(|| format!("cannot write {}", path.display()))?;
            request
        }
    };
    let roles = options.labels.keys().filter_map(|label| label.strip_prefix(NODE_ROLE_PREFIX));
    let roles: Vec<&str> = roles.collect();
    let issued = credentials::issue_identity(given, &request, &roles, options.approval_timeout);
    match issued.await {
        Ok(identity) => Ok(identity),
        Err(error) => {
            // Refused or not answered: the next attempt may have another token, and makes another request.
            JoinPaths::remove_file(&path)?;
            JoinPaths::remove_empty(&join_paths.state_dir());
            Err(error)
        }
    }
}

/// Completes an earlier join, or restores what is missing of it. The service of a machine whose join was complete can be
/// repaired while the API server is down.
async fn repair(mut identity: Value, given: &Value, options: &JoinOptions) -> Result<JoinReport> {
    let join_paths = JoinPaths::new(&options.root);
    // A hub that lost its CA has another one now. The certificate of the old one is worth nothing to it.
    let problem = match () {
        () if options.keep_identity => None,
        () if credentials::has_expired(&identity) => Some("had expired"),
        () if credentials::is_other_ca(&identity, given) => Some("was of another CA"),
        () => None,
    };
    if problem.is_some() {
        // The old identity stays until the new one is there: the machine is still the one that it names.
        identity = request_identity(&join_paths, given, options).await?;
        write_identity(&options.root, &identity)?;
    }
    JoinPaths::remove_file(&join_paths.join_request())?;
    // The Node is created before the unit is written.
    let has_service = join_paths.unit_file(service::SERVICE_NAME).symlink_metadata().is_ok();
    if !has_service {
        ensure_node(&credentials::client_for(&identity).await?, options).await?;
    }
    let mut repaired = service::install(&join_paths, options)?;
    if let Some(problem) = problem {
        repaired.push(format!("{} {problem}", join_paths.kubeconfig().display()));
    }
    let is_started =
        options.start_now && start_service(&options.root, !repaired.is_empty()).await?;
    Ok(JoinReport {
        node: options.name.clone(),
        kubeconfig: join_paths.kubeconfig(),
        service: service::SERVICE_NAME,
        is_started,
        has_joined_before: true,
        repaired,
    })
}

/// Writes the identity of the machine, readable only by root.
pub(super) fn write_identity(root: &Path, kubeconfig: &Value) -> Result<()> {
    let bytes = serde_json::to_vec_pretty(kubeconfig)?;
    let path = paths::KUBECONFIG;
    fault_injection::point();
    state::write_private(&HostRoot::open_read_only(root)?, path, &bytes)
        .with_context(|| format!("cannot write {path}"))?;
    fault_injection::point();
    Ok(())
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

/// Starts the service, if systemd runs. One whose unit has changed is restarted.
async fn start_service(root: &Path, has_changed: bool) -> Result<bool> {
    let Some(systemd) = Systemd::connect(root).await? else { return Ok(false) };
    systemd.daemon_reload().await?;
    // A service that has failed too often does not start otherwise.
    systemd.reset_failed(service::SERVICE_NAME).await?;
    match has_changed {
        true => systemd.restart(service::SERVICE_NAME).await?,
        false => systemd.start(service::SERVICE_NAME).await?,
    }
    systemd.start(service::WATCHDOG_TIMER).await?;
    Ok(true)
}
