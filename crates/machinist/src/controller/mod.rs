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

use std::collections::BTreeSet;
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
use crate::kubernetes::lease::{ElectionConfig, Elector};
use crate::listen;
use crate::metrics::{MetricsEndpoint, MetricsSource, ProcessHealth};
use caches::WatchContext;
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
            let (has_pods, served) = retry_until_ok(|| discover_kinds(&client)).await;
            let served = watch::Sender::new(served);
            let home = WatchContext {
                client: client.clone(),
                namespace: options.namespace.clone(),
                served_kinds: served.subscribe(),
            };
            let shell = Context::new(
                client.clone(),
                events.clone(),
                metrics.clone(),
                lead.clone(),
                &options,
                has_pods,
            );
            start_loops(&shell, &home, &mut term, health.clone());
            // From here on only those have it who wait for a kind.
            drop(home);
            term.spawn(rediscover_kinds(client.clone(), served));
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
    home: &WatchContext,
    term: &mut JoinSet<()>,
    health: watch::Sender<ProcessHealth>,
) {
    shell.caches.start_watches(home, term);
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

/// When the home is asked again for kinds that it did not serve: soon, then less and less often.
const REDISCOVER_INTERVAL: Duration = Duration::from_secs(2);
const MAX_REDISCOVER_INTERVAL: Duration = Duration::from_secs(60);

/// The groups of the kinds that are followed.
const GROUPS: [&str; 3] = [
    "machineconfiguration.openshift.io/v1",
    "config.openshift.io/v1",
    "operator.openshift.io/v1alpha1",
];

/// Whether the home runs pods, and which of the kinds it serves that are followed.
async fn discover_kinds(client: &Client) -> Result<(bool, BTreeSet<String>)> {
    let core = client.list_core_api_resources("v1").await?;
    let has_pods = core.resources.iter().any(|resource| resource.name == "pods");
    let mut served = BTreeSet::new();
    for group in GROUPS {
        match client.list_api_group_resources(group).await {
            Ok(kinds) => served.extend(kinds.resources.into_iter().map(|kind| kind.name)),
            // Only the first group has to be there.
            Err(kube::Error::Api(status)) if status.code == 404 && group != GROUPS[0] => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok((has_pods, served))
}

/// Looks for kinds that come later, for as long as somebody waits for one. A definition that is installed while we run
/// needs no restart.
async fn rediscover_kinds(client: Client, served: watch::Sender<BTreeSet<String>>) {
    let mut pause = REDISCOVER_INTERVAL;
    while served.receiver_count() > 0 {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_REDISCOVER_INTERVAL);
        if let Ok((_, now)) = discover_kinds(&client).await {
            served.send_if_modified(|known| {
                let is_news = !now.is_subset(known);
                known.extend(now);
                is_news
            });
        }
    }
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
