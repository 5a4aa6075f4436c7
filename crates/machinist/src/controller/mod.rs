//! The controller: renders the configs of pools and rolls them out to machines.
//!
//! ```text
//!  API server ─ caches ─┬─ generate ────────→ MachineConfigs from mirrors, policies, kubelet settings, templates
//!                       ├─ render ──────────→ rendered configs, and the pools that point at them
//!                       ├─ rollout ─────────→ desired configs on machines, status of pools
//!                       ├─ drain ───────────→ cordon, evict, uncordon
//!                       ├─ rendered_backup ─→ rendered configs backed up, restored, removed
//!                       └─ user_data ───────→ Secrets with the pointer configs of pools
//! ```
//!
//! The loops hold no decision: those are in `machinist_core::{generate, render, rollout, drain}`. Only the controller that
//! holds the Lease acts ([`crate::kubernetes::lease`]). A controller that loses it drops all state, and starts from nothing
//! when it leads again.

mod caches;
mod context;
mod debounce;
mod event_component;
mod metrics;

mod disruption_policy;
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
mod upgrade;
mod user_data;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::PostParams;
use kube::{Api, Client};
use machinist_core::template::TemplateTree;
use machinist_hub::failure_log::FailureLog;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::kubernetes::error_text::error_text;
use crate::kubernetes::events::Recorder;
use crate::kubernetes::lease::{ElectionConfig, Elector};
use crate::kubernetes::reflectors::Reflectors;
use crate::listen;
use crate::liveness::Liveness;
use crate::metrics::{MetricsEndpoint, MetricsOptions, MetricsSource, ProcessHealth, Readiness};
use context::Context;
use metrics::ControllerMetrics;
pub use user_data::{EndpointFiles, UserData};

/// The name of the Lease that the leading controller holds.
const LEASE_NAME: &str = "machine-config-controller";

/// How a controller runs.
#[derive(Debug, Clone)]
pub struct ControllerOptions {
    /// The namespace of the system's own objects.
    pub namespace: String,
    /// The templates of the MachineConfigs that every machine gets.
    pub templates: Arc<TemplateTree>,
    /// How it takes part in the leader election.
    pub election: ElectionConfig,
    /// Whether the system is about to be removed: no machine gets a config, and those in a drain are uncordoned.
    pub releases_machines: bool,
    /// Whether the MachineConfiguration is kept here, since there is no operator.
    pub keeps_disruption_policy: bool,
    /// Where metrics are served, if anywhere.
    pub metrics: Option<MetricsOptions>,
    /// Metrics of other components in the same process, for the same endpoint.
    pub extra_metrics: Vec<MetricsSource>,
    /// Where machines fetch their configs, if pointer configs are wanted.
    pub user_data: Option<UserData>,
    /// What fails in this process, the controller's failures included.
    pub failures: FailureLog,
    /// Whether the loops make progress.
    pub(crate) liveness: Liveness,
    /// How the controller is, for `/readyz` and for whoever reports readiness to systemd.
    pub(crate) health: watch::Sender<ProcessHealth>,
}

/// Runs until `stop` ends. It survives restarts of the API server and lost leases.
///
/// # Errors
/// The address for its metrics is taken, or their certificate cannot be used.
pub async fn run(
    client: Client,
    options: ControllerOptions,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let metrics = ControllerMetrics::default();
    let health = options.health.clone();
    let failures = options.failures.for_part();
    let mut tasks = JoinSet::new();
    if let Some(serve) = &options.metrics {
        let listener = listen::bind(serve.listen, "--metrics-listen").await?;
        let mut sources = options.extra_metrics.clone();
        sources.push(metrics.source());
        let readiness =
            Readiness { health: health.subscribe(), failures: options.failures.clone() };
        let endpoint = MetricsEndpoint { sources, readiness };
        endpoint.start(listener, &serve.security, Some(client.clone()), &mut tasks).await?;
    }
    let (events, writer) = Recorder::new(client.clone(), failures.clone());
    tasks.spawn(writer);
    let election = options.election.clone();
    let mut elector = Elector::new(LEASE_NAME, client.clone(), election, failures.clone());
    let lead = async {
        loop {
            ensure_namespaces(&client, &options, &failures).await;
            health.send_replace(ProcessHealth::Standby);
            let lead = elector.acquire().await;
            // A leader that cannot fill its caches does nothing: not ready until it can.
            health.send_replace(ProcessHealth::Starting);
            tracing::info!(identity = options.election.identity, "leading");
            metrics.set_leading(true);
            let mut term = JoinSet::new();
            let has_pods = retry_until_ok(&failures, || serves_pods(&client)).await;
            let context = Context::new(
                client.clone(),
                events.clone(),
                failures.clone(),
                metrics.clone(),
                lead.clone(),
                &options,
                has_pods,
            );
            start_loops(&context, &mut term, health.clone());
            if options.keeps_disruption_policy {
                term.spawn(disruption_policy::run(context.clone()));
            }
            if let Some(user_data) = options.user_data.clone() {
                term.spawn(user_data::run(context.clone(), user_data));
            }
            elector.renew_until_lost(&lead).await;
            metrics.set_leading(false);
            // Nobody is left who could report a recovery.
            drop(term);
            failures.clear();
            tracing::warn!(identity = options.election.identity, "no longer leading");
        }
    };
    tokio::select! {
        () = lead => {}
        () = stop => {}
    }
    elector.release().await;
    Ok(())
}

/// Starts all loops of one term of leadership; they end when the tasks are dropped.
fn start_loops(context: &Context, term: &mut JoinSet<()>, health: watch::Sender<ProcessHealth>) {
    let client = context.client.clone();
    let mut reflectors = Reflectors::new(client, context.failures.clone(), term);
    context.caches.start_watches(&context.client, &context.namespace, &mut reflectors);
    term.spawn(generate::run(context.clone()));
    term.spawn(render::run(context.clone()));
    term.spawn(rollout::run(context.clone()));
    term.spawn(drain::run(context.clone()));
    term.spawn(rendered_backup::run(context.clone()));
    let caches = context.caches.clone();
    term.spawn(async move {
        caches.wait_until_ready().await;
        health.send_replace(ProcessHealth::Leading);
    });
}

/// Creates the namespaces that the controller writes to, where they are missing. A failure is only reported: the namespaces
/// may exist although we must not read them.
async fn ensure_namespaces(client: &Client, options: &ControllerOptions, failures: &FailureLog) {
    const TASK: &str = "create the namespace";
    let user_data = options.user_data.as_ref().map(|user_data| &user_data.namespace);
    for name in [&options.namespace, &options.election.namespace].into_iter().chain(user_data) {
        match ensure_namespace(client, name).await {
            Ok(()) => failures.succeeded(TASK, name),
            Err(error) => drop(failures.failed(TASK, name, &error_text(&error))),
        }
    }
}

async fn ensure_namespace(client: &Client, name: &str) -> kube::Result<()> {
    let api: Api<Namespace> = Api::all(client.clone());
    if api.get_opt(name).await?.is_some() {
        return Ok(());
    }
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    match api.create(&PostParams::default(), &namespace).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        created => created.map(drop),
    }
}

/// Whether the API server runs pods. A hub does not: there they can be listed and not created.
async fn serves_pods(client: &Client) -> kube::Result<bool> {
    let core = client.list_core_api_resources("v1").await?;
    let mut pods = core.resources.iter().filter(|resource| resource.name == "pods");
    Ok(pods.any(|pods| pods.verbs.iter().any(|verb| verb == "create")))
}

/// Repeats a request until it succeeds.
async fn retry_until_ok<T, F: Future<Output = kube::Result<T>>>(
    failures: &FailureLog,
    request: impl Fn() -> F,
) -> T {
    const TASK: &str = "discover the served resources";
    loop {
        match request().await {
            Ok(response) => {
                failures.succeeded(TASK, "");
                return response;
            }
            Err(error) => {
                failures.failed(TASK, "", &error_text(&error));
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}
