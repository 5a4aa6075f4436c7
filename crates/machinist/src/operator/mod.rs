//! The operator: deploys the parts into a Kubernetes, keeps them as they should be, and says how they are.
//!
//! ```text
//!  watches ─► pass: settings ─► pools ─► certificates ─► ControllerConfig ─► parts, in their order ─► conditions
//! ```
//!
//! It holds no decision: those are in `machinist_core::operator`. Every pass applies everything anew with server-side
//! apply; the API server writes nothing where nothing is different.

mod certificates;
mod metrics;
mod observe;
mod pass;
mod tell;
mod write;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::controller::events::Recorder;
use crate::controller::leader::{Election, Elector};
use crate::figures::{Health, Page};
use crate::home::request::Home;
use crate::listen;
use metrics::Metrics;
use observe::World;
use pass::{Operator, Outlets};
use write::Writer;

/// The name of the Lease.
const LEASE: &str = "machine-config";
/// Changes within this time are answered together.
const QUIET: Duration = Duration::from_millis(200);
/// Certificates grow old without anybody telling.
const AT_LEAST_EVERY: Duration = Duration::from_secs(60);
/// After a pass that failed, whatever changes...
const PAUSE: Duration = Duration::from_secs(1);
/// ...and when nothing does.
const RETRY: Duration = Duration::from_secs(5);

/// How an operator is to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The namespace of the system.
    pub namespace: String,
    /// The image that the parts run; that of the own pod where it is not said.
    pub image: Option<String>,
    /// The pod that this process runs in.
    pub pod: Option<String>,
    /// The release that is deployed.
    pub release: String,
    /// How it comes to lead.
    pub election: Election,
    /// Where figures are served, if anywhere.
    pub metrics_listen: Option<SocketAddr>,
}

/// Runs until `stop` ends.
///
/// # Errors
/// It cannot begin: nobody says which image the parts are to run, or the address for its figures is taken.
pub async fn run(client: Client, options: Options, stop: impl Future<Output = ()>) -> Result<()> {
    let metrics = Metrics::new(&options.release);
    let health = watch::Sender::new(Health::Starting);
    let mut tasks = JoinSet::new();
    if let Some(address) = options.metrics_listen {
        let listener = listen::bind(address, "--metrics-listen-address").await?;
        let page = Page { sources: vec![metrics.source()], health: Some(health.subscribe()) };
        tasks.spawn(page.serve(listener));
    }
    let (events, writing) = Recorder::new(client.clone());
    tasks.spawn(writing);
    let outlets = Outlets { events, metrics };
    let mut elector = Elector::for_lease(LEASE, client.clone(), options.election.clone());
    let lead = async {
        let image = image(&client, &options).await?;
        tracing::info!(image, release = options.release, "operator");
        loop {
            health.send_replace(Health::StandingBy);
            let lead = elector.acquire().await;
            tracing::info!(identity = options.election.identity, "leading");
            let mut term = JoinSet::new();
            let world = World::follow(&client, &options.namespace, &mut term);
            let writer = Writer { home: Home::new(client.clone()), lead: lead.clone() };
            let operator = Operator::new(writer, &options, &image, world, outlets.clone());
            term.spawn(keep(operator, health.clone()));
            elector.keep(&lead).await;
            outlets.metrics.forget();
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
async fn keep(operator: Operator, health: watch::Sender<Health>) {
    let mut changes = operator.world.changes();
    operator.world.ready().await;
    health.send_replace(Health::Leading);
    loop {
        let well = operator.pass().await;
        let limit = if well { AT_LEAST_EVERY } else { RETRY };
        if !well {
            // What is said about a failure is a change, too.
            tokio::time::sleep(PAUSE).await;
            changes.mark_unchanged();
        }
        // Whoever changes things lives as long as we do; nothing changed is no error either.
        let _ = tokio::time::timeout(limit, changes.changed()).await;
        tokio::time::sleep(QUIET).await;
        changes.mark_unchanged();
    }
}

/// The image that the parts run: the one that we run ourselves.
async fn image(client: &Client, options: &Options) -> Result<String> {
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
