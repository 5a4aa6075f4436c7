//! The operator: deploys the parts into a Kubernetes, keeps them as they should be, and says how they are.
//!
//! ```text
//!  watches ─► pass: settings ─► pools ─► certificates ─► ControllerConfig ─► parts, in their order ─► conditions
//! ```
//!
//! It holds no decision: those are in `machinist_core::operator`. Every pass applies everything anew with server-side
//! apply; the API server writes nothing where nothing is different.

mod caches;
mod certificates;
mod metrics;
mod reconcile;
mod report;
mod write;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::kubernetes::events::Recorder;
use crate::kubernetes::failure_log::FailureLog;
use crate::kubernetes::lease::{ElectionConfig, Elector};
use crate::kubernetes::reflectors::{merge_changes, wait_until_ready};
use crate::kubernetes::request::ApiClient;
use crate::listen;
use crate::metrics::{MetricsEndpoint, ProcessHealth};
use caches::OperatorCaches;
use metrics::OperatorMetrics;
use reconcile::{Operator, OperatorReporters};
use write::ApplyWriter;

/// The name of the Lease.
const LEASE_NAME: &str = "machine-config";
/// Changes within this time are answered together.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// Certificates grow old without anybody telling.
const RESYNC_INTERVAL: Duration = Duration::from_secs(60);
/// After a pass that failed, whatever changes...
const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
/// ...and when nothing does.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// How an operator is to run.
#[derive(Debug, Clone)]
pub struct OperatorOptions {
    /// The namespace of the system.
    pub namespace: String,
    /// The image that the parts run; that of the own pod where it is not said.
    pub image: Option<String>,
    /// The pod that this process runs in.
    pub pod: Option<String>,
    /// The release that is deployed.
    pub release: String,
    /// How it comes to lead.
    pub election: ElectionConfig,
    /// Where figures are served, if anywhere.
    pub metrics_listen: Option<SocketAddr>,
}

/// Runs until `stop` ends.
///
/// # Errors
/// It cannot begin: nobody says which image the parts are to run, or the address for its figures is taken.
pub async fn run(
    client: Client,
    options: OperatorOptions,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let metrics = OperatorMetrics::new(&options.release);
    let health = watch::Sender::new(ProcessHealth::Starting);
    let failures = FailureLog::default();
    let mut tasks = JoinSet::new();
    if let Some(address) = options.metrics_listen {
        let listener = listen::bind(address, "--metrics-listen-address").await?;
        let page =
            MetricsEndpoint { sources: vec![metrics.source()], health: Some(health.subscribe()) };
        tasks.spawn(page.serve(listener));
    }
    let (events, writing) = Recorder::new(client.clone());
    tasks.spawn(writing);
    let outlets = OperatorReporters { events, metrics };
    let mut elector = Elector::new(LEASE_NAME, client.clone(), options.election.clone());
    let lead = async {
        let image = own_image(&client, &options).await?;
        tracing::info!(image, release = options.release, "operator");
        loop {
            health.send_replace(ProcessHealth::Standby);
            let lead = elector.acquire().await;
            tracing::info!(identity = options.election.identity, "leading");
            let mut term = JoinSet::new();
            let world = OperatorCaches::start(&client, &options.namespace, &failures, &mut term);
            let writer =
                ApplyWriter { client: ApiClient::new(client.clone()), leadership: lead.clone() };
            let operator = Operator::new(writer, &options, &image, world, outlets.clone());
            term.spawn(run_reconcile_loop(operator, health.clone()));
            elector.renew_until_lost(&lead).await;
            outlets.metrics.clear();
            tracing::warn!("this operator does not lead any more");
        }
    };
    let ended = tokio::select! {
        ended = lead => ended,
        () = stop => Ok(()),
    };
    elector.release().await;
    ended
}

/// Takes pass after pass, for ever.
async fn run_reconcile_loop(operator: Operator, health: watch::Sender<ProcessHealth>) {
    let mut changes = merge_changes(operator.caches.changes());
    wait_until_ready(operator.caches.changes()).await;
    health.send_replace(ProcessHealth::Leading);
    loop {
        let well = operator.reconcile().await;
        let limit = if well { RESYNC_INTERVAL } else { RETRY_DELAY };
        if !well {
            // What is said about a failure is a change, too.
            tokio::time::sleep(MIN_RETRY_DELAY).await;
            changes.mark_unchanged();
        }
        // Whoever changes things lives as long as we do; nothing changed is no error either.
        let _ = tokio::time::timeout(limit, changes.changed()).await;
        tokio::time::sleep(DEBOUNCE).await;
        changes.mark_unchanged();
    }
}

/// The image that the parts run: the one that we run ourselves.
async fn own_image(client: &Client, options: &OperatorOptions) -> Result<String> {
    if let Some(image) = &options.image {
        return Ok(image.clone());
    }
    let name = options.pod.as_ref().ok_or_else(|| {
        anyhow!("nobody says which image the parts are to run: give --image, or set POD_NAME to the pod of this process")
    })?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &options.namespace);
    let pod = pods
        .get(name)
        .await
        .with_context(|| format!("cannot read pod {name}, whose image the parts run"))?;
    let containers = pod.spec.map(|spec| spec.containers).unwrap_or_default();
    let image = containers.into_iter().find_map(|container| container.image);
    image.with_context(|| format!("pod {name} has no image"))
}
