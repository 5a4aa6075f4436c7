//! The controller: pools get their rendered configs, and machines get their pool's config.
//!
//! ```text
//!  API ─ world (one watch a kind) ─┬─ generate → MachineConfigs out of mirrors, policies, settings
//!                                  ├─ render ──→ rendered configs, who points at them
//!                                  ├─ rollout ─→ targets on machines, status of pools
//!                                  ├─ drain ───→ cordon, evict, uncordon
//!                                  ├─ history ─→ rendered configs kept, restored, removed
//!                                  └─ user_data ─→ Secrets with the pointer configs of pools
//! ```
//!
//! The loops hold no decision: those are in `machinist_core::{generate, render::sync, update, drain}`. Only the controller that
//! holds the Lease acts ([`crate::kubernetes::lease`]); whoever loses it forgets everything and starts anew when it leads again.

mod caches;
mod context;
mod debounce;
mod event_component;
mod metrics;

mod drain;
mod evict;
mod generate;
mod machine_config_node;
mod node_writes;
mod pin_image;
mod render;
mod rendered_backup;
mod resolve_tag;
mod rollout;
mod status;
mod user_data;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::PostParams;
use kube::{Api, Client};
use machinist_core::template::TemplateTree;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::kubernetes::events::Recorder;
use crate::kubernetes::failure_log::FailureLog;
use crate::kubernetes::lease::{ElectionConfig, Elector};
use crate::kubernetes::reflectors::Reflectors;
use crate::listen;
use crate::metrics::{MetricsEndpoint, MetricsSource, ProcessHealth};
use context::Context;
use metrics::ControllerMetrics;
pub use user_data::{EndpointFiles, UserData};

/// The name of the Lease that the leading controller holds.
const LEASE_NAME: &str = "machine-config-controller";

/// How a controller is to run.
#[derive(Debug, Clone)]
pub struct ControllerOptions {
    /// The namespace of the system's own objects.
    pub namespace: String,
    /// The templates that the MachineConfigs of every machine are made from.
    pub templates: Arc<TemplateTree>,
    /// How it comes to lead.
    pub election: ElectionConfig,
    /// Where figures are served, if anywhere.
    pub metrics_listen: Option<SocketAddr>,
    /// Figures of others in the same process, for the same page.
    pub extra_metrics: Vec<MetricsSource>,
    /// What machines are pointed at, where pointer configs are wanted.
    pub user_data: Option<UserData>,
}

/// Runs until `stop` ends. It outlives API servers that go away and leases that are lost.
///
/// # Errors
/// It cannot begin: the address for its figures is taken.
pub async fn run(
    client: Client,
    options: ControllerOptions,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let metrics = ControllerMetrics::default();
    let health = watch::Sender::new(ProcessHealth::Starting);
    let failures = FailureLog::default();
    let mut tasks = JoinSet::new();
    if let Some(address) = options.metrics_listen {
        let listener = listen::bind(address, "--metrics-listen-address").await?;
        let mut sources = options.extra_metrics.clone();
        sources.push(metrics.source());
        let page = MetricsEndpoint { sources, health: Some(health.subscribe()) };
        tasks.spawn(page.serve(listener));
    }
    let (events, writing) = Recorder::new(client.clone());
    tasks.spawn(writing);
    let mut elector = Elector::new(LEASE_NAME, client.clone(), options.election.clone());
    let lead = async {
        loop {
            if let Err(error) = create_namespaces(&client, &options).await {
                tracing::debug!(error = format!("{error:#}"), "cannot prepare the namespace");
            }
            health.send_replace(ProcessHealth::Standby);
            let lead = elector.acquire().await;
            tracing::info!(identity = options.election.identity, "leading");
            metrics.set_leading(true);
            let mut term = JoinSet::new();
            let has_pods = retry_until_ok(|| serves_pods(&client)).await;
            let shell = Context::new(
                client.clone(),
                events.clone(),
                metrics.clone(),
                lead.clone(),
                &options,
                has_pods,
            );
            start_loops(&shell, &failures, &mut term, health.clone());
            if let Some(user_data) = options.user_data.clone() {
                term.spawn(user_data::run(shell.clone(), user_data));
            }
            elector.renew_until_lost(&lead).await;
            metrics.set_leading(false);
            tracing::warn!("this controller does not lead any more");
        }
    };
    tokio::select! {
        () = lead => {}
        () = stop => {}
    }
    elector.release().await;
    Ok(())
}

/// Starts all loops of one time of leadership; they end when the tasks are dropped.
fn start_loops(
    shell: &Context,
    failures: &FailureLog,
    term: &mut JoinSet<()>,
    health: watch::Sender<ProcessHealth>,
) {
    let mut reflectors = Reflectors::new(shell.client.clone(), failures.clone(), term);
    shell.caches.start_watches(&shell.client, &shell.namespace, &mut reflectors);
    term.spawn(generate::run(shell.clone()));
    term.spawn(render::run(shell.clone()));
    term.spawn(rollout::run(shell.clone()));
    term.spawn(drain::run(shell.clone()));
    term.spawn(rendered_backup::run(shell.clone()));
    let world = shell.caches.clone();
    term.spawn(async move {
        world.wait_until_ready().await;
        health.send_replace(ProcessHealth::Leading);
    });
}

/// Makes the namespaces that the controller writes to, where they are missing.
async fn create_namespaces(client: &Client, options: &ControllerOptions) -> Result<()> {
    let api: Api<Namespace> = Api::all(client.clone());
    let user_data = options.user_data.as_ref().map(|user_data| &user_data.namespace);
    for name in [&options.namespace, &options.election.namespace].into_iter().chain(user_data) {
        if api.get_opt(name).await?.is_none() {
            let mut namespace = Namespace::default();
            namespace.metadata.name = Some(name.clone());
            match api.create(&PostParams::default(), &namespace).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                answer => drop(answer.with_context(|| format!("create the namespace {name}"))?),
            }
        }
    }
    Ok(())
}

/// Whether the API server runs pods. A hub does not.
async fn serves_pods(client: &Client) -> Result<bool> {
    let core = client.list_core_api_resources("v1").await?;
    Ok(core.resources.iter().any(|resource| resource.name == "pods"))
}

/// Asks until there is an answer.
async fn retry_until_ok<T, F: Future<Output = Result<T>>>(ask: impl Fn() -> F) -> T {
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => {
                tracing::debug!(error = format!("{error:#}"), "no answer yet");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}
