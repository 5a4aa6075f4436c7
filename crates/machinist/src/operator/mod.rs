//! The operator: deploys the components into a Kubernetes cluster, repairs them, and reports their state.
//!
//! ```text
//!  watches ─► pass: settings ─► pools ─► certificates, bootstrap token ─► ControllerConfig ─► components, in order ─► conditions
//! ```
//!
//! It holds no decision: those are in `machinist_core::operator`. Every pass applies everything with server-side apply; the
//! API server writes nothing where nothing differs.

mod bootstrap_token;
mod caches;
mod certificates;
mod metrics;
mod reconcile;
mod report;
mod write;

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use machinist_hub::failure_log::FailureLog;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use crate::kubernetes::connect::server_address;
use crate::kubernetes::events::Recorder;
use crate::kubernetes::lease::{ElectionConfig, Elector};
use crate::kubernetes::reflectors::{merge_changes, wait_until_ready};
use crate::kubernetes::request::ApiClient;
use crate::listen;
use crate::metrics::{MetricsEndpoint, MetricsOptions, ProcessHealth, Readiness};
use caches::OperatorCaches;
use metrics::OperatorMetrics;
use reconcile::{Operator, OperatorReporters};
use write::ApplyWriter;

/// Annotation on a Secret of the operator: a new value requests a new CA or token.
const ROTATE_ANNOTATION: &str = "machinist.dev/rotate";
/// Annotation on a Secret of the operator: the last request that was carried out.
const ROTATED_ANNOTATION: &str = "machinist.dev/rotated";
/// The name of the Lease.
const LEASE_NAME: &str = "machine-config";
/// Changes within this time are handled by one pass.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// Certificates expire without an event that would start a pass.
const RESYNC_INTERVAL: Duration = Duration::from_secs(60);
/// The wait after a failed pass, even if something changes...
const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
/// ...and if nothing changes.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// How an operator runs.
#[derive(Debug, Clone)]
pub struct OperatorOptions {
    /// The namespace of the system.
    pub namespace: String,
    /// The image of the components; by default the image of our own pod.
    pub image: Option<String>,
    /// The name of our own pod.
    pub pod: Option<String>,
    /// The release that is deployed.
    pub release: String,
    /// How it takes part in the leader election.
    pub election: ElectionConfig,
    /// Where metrics are served, if anywhere.
    pub metrics: Option<MetricsOptions>,
}

/// Runs until `stop` ends.
///
/// # Errors
/// The image of the components is unknown, the address for its metrics is taken, or their certificate cannot be
/// used.
pub async fn run(
    client: Client,
    options: OperatorOptions,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let metrics = OperatorMetrics::new(&options.release);
    let health = watch::Sender::new(ProcessHealth::Starting);
    let failures = FailureLog::default().of_server(server_address());
    let mut tasks = JoinSet::new();
    if let Some(serve) = &options.metrics {
        let listener = listen::bind(serve.listen, "--metrics-listen").await?;
        let readiness = Readiness { health: health.subscribe(), failures: failures.clone() };
        let endpoint = MetricsEndpoint { sources: vec![metrics.source()], readiness };
        endpoint.start(listener, &serve.security, Some(client.clone()), &mut tasks).await?;
    }
    let (events, writer) = Recorder::new(client.clone(), failures.clone());
    tasks.spawn(writer);
    let reporters = OperatorReporters { events, failures: failures.clone(), metrics };
    let election = options.election.clone();
    let mut elector = Elector::new(LEASE_NAME, client.clone(), election, failures.clone());
    let lead = async {
        let image = own_image(&client, &options).await?;
        tracing::info!(image, release = options.release, "starting the operator");
        loop {
            health.send_replace(ProcessHealth::Standby);
            let lead = elector.acquire().await;
            tracing::info!(identity = options.election.identity, "leading");
            let mut term = JoinSet::new();
            let caches = OperatorCaches::start(&client, &options.namespace, &failures, &mut term);
            let writer =
                ApplyWriter { client: ApiClient::new(client.clone()), leadership: lead.clone() };
            let operator = Operator::new(writer, &options, &image, caches, reporters.clone());
            term.spawn(run_reconcile_loop(operator, health.clone()));
            elector.renew_until_lost(&lead).await;
            reporters.metrics.clear();
            // Nobody is left who could report a recovery.
            drop(term);
            failures.clear();
            tracing::warn!(identity = options.election.identity, "no longer leading");
        }
    };
    let ended = tokio::select! {
        ended = lead => ended,
        () = stop => Ok(()),
    };
    elector.release().await;
    ended
}

/// Runs passes for ever.
async fn run_reconcile_loop(operator: Operator, health: watch::Sender<ProcessHealth>) {
    let mut changes = merge_changes(operator.caches.changes());
    wait_until_ready(operator.caches.changes()).await;
    health.send_replace(ProcessHealth::Leading);
    loop {
        let span = tracing::info_span!("reconcile", release = operator.release);
        let succeeded = operator.reconcile().instrument(span).await;
        let limit = if succeeded { RESYNC_INTERVAL } else { RETRY_DELAY };
        if !succeeded {
            // Reporting the failure has changed objects, which must not start the next pass.
            tokio::time::sleep(MIN_RETRY_DELAY).await;
            changes.mark_unchanged();
        }
        // A pass runs after a change, or when the time is up.
        let _ = tokio::time::timeout(limit, changes.changed()).await;
        tokio::time::sleep(DEBOUNCE).await;
        changes.mark_unchanged();
    }
}

/// The image of the components: by default our own.
async fn own_image(client: &Client, options: &OperatorOptions) -> Result<String> {
    if let Some(image) = &options.image {
        return Ok(image.clone());
    }
    let name = options.pod.as_ref().ok_or_else(|| {
        anyhow!("the image of the components is unknown: give --image, or set POD_NAME to the pod of this process")
    })?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &options.namespace);
    let pod = pods
        .get(name)
        .await
        .with_context(|| format!("cannot read pod {name}, whose image the components run"))?;
    let containers = pod.spec.map(|spec| spec.containers).unwrap_or_default();
    let image = containers.into_iter().find_map(|container| container.image);
    image.with_context(|| format!("pod {name} has no image"))
}
