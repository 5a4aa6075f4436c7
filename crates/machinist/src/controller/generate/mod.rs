//! The generate loop: generates MachineConfigs from kinds that are easier to write.
//!
//! Each kind of source has a driver, which calls a pure generator of `machinist_core` and writes its result where it differs.
//! An invalid source gets that reported in its status, and what was generated from it before stays. A new kind of source
//! is a cache in [`caches`], a driver, and a line in [`reconcile`]; templates come first, since other drivers build on them.

pub(super) mod caches;
mod container_runtime;
mod kubelet;
mod registries;
mod report;
mod secrets;
mod templates;
mod write;

pub(super) use secrets::DOCKER_CONFIG_KEY;

use std::collections::BTreeMap;
use std::time::Duration;

use kube::ResourceExt as _;
use machinist_core::api::names::object::RENDERED_PREFIX;
use machinist_core::api::{MachineConfig, MachineConfigPool, selector};
use machinist_core::generate::overridden::{OverriddenFile, overridden};
use machinist_core::generated_config::legacy_names::superseded;
use machinist_core::generated_config::reconcile::is_generated;
use machinist_core::rollout::PoolNotes;
use tracing::Instrument as _;

use super::context::{Context, WriteError};
use super::debounce::Debounce;
use crate::kubernetes::reflectors::{publish, wait_until_ready};
use report::Reported;
use secrets::SecretCaches;

/// A burst of changes ends when there was none for this long...
const DEBOUNCE: Duration = Duration::from_millis(50);
/// ...but a pass never waits longer than this.
const MAX_WAIT: Duration = Duration::from_millis(300);
/// The task under which failed writes are reported; the object is the driver.
const TASK: &str = "write generated MachineConfigs";
/// The wait after a failed write.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// How often warnings that name nodes are checked again: what hosts report starts no pass.
const RECHECK_INTERVAL: Duration = Duration::from_secs(60);

/// The notes of all pools, by name.
pub(super) type AllNotes = BTreeMap<String, PoolNotes>;

/// Runs for ever.
pub(super) async fn run(context: Context) {
    let caches = &context.caches;
    let mut debounce = Debounce::new("generate", &context.liveness, DEBOUNCE, MAX_WAIT);
    debounce.watch(caches.pools.subscribe());
    debounce.watch(caches.configs.subscribe());
    debounce.watch(caches.controller_configs.subscribe());
    caches.generate.changes().into_iter().for_each(|changes| debounce.watch(changes));
    caches.wait_until_ready().await;
    wait_until_ready(caches.generate.changes()).await;
    let mut reported = Reported::default();
    let mut secrets = SecretCaches::default();
    debounce.watch(secrets.subscribe());
    let mut delay = Some(RETRY_DELAY);
    loop {
        debounce.next(delay).await;
        delay = reconcile(&context, &mut reported, &mut secrets).await;
    }
}

/// Generates everything once. Returns when it has to be done again even if nothing changes.
async fn reconcile(
    context: &Context,
    reported: &mut Reported,
    secrets: &mut SecretCaches,
) -> Option<Duration> {
    let mut pass = GeneratePass::new(context);
    let span = |driver: &'static str| tracing::info_span!("generate", driver);
    let mut is_retry = false;
    // A driver that fails must not keep the others from running.
    for (driver, result) in [
        (
            "templates",
            templates::reconcile(&mut pass, reported, secrets).instrument(span("templates")).await,
        ),
        (
            "registries",
            registries::reconcile(&mut pass, reported).instrument(span("registries")).await,
        ),
        (
            "container runtime",
            container_runtime::reconcile(&mut pass, reported)
                .instrument(span("container runtime"))
                .await,
        ),
        ("kubelet", kubelet::reconcile(&mut pass, reported).instrument(span("kubelet")).await),
        ("superseded names", pass.remove_superseded().await),
    ] {
        is_retry |= pass.report_writes(driver, result);
    }
    pass.find_overridden();
    reported.warn_overridden(context, &pass.notes);
    publish(&context.pool_notes, pass.notes);
    match is_retry {
        true => Some(RETRY_DELAY),
        false => pass.warns_of_nodes.then_some(RECHECK_INTERVAL),
    }
}

/// One pass, with the notes for the pools.
struct GeneratePass<'a> {
    context: &'a Context,
    pools: Vec<std::sync::Arc<MachineConfigPool>>,
    notes: AllNotes,
    /// Whether the status of an object names nodes.
    warns_of_nodes: bool,
}

impl<'a> GeneratePass<'a> {
    fn new(context: &'a Context) -> Self {
        let mut pools = context.caches.pools.all();
        pools.retain(|pool| pool.metadata.deletion_timestamp.is_none());
        Self { context, pools, notes: AllNotes::new(), warns_of_nodes: false }
    }

    /// Reports how the writes of a driver went. Returns whether they have to be tried again.
    fn report_writes(&mut self, driver: &'static str, result: GenerateResult) -> bool {
        let failures = &self.context.failures;
        let error = match result {
            Ok(()) => {
                failures.succeeded(TASK, driver);
                return false;
            }
            // After a conflict the watch brings the newer object, and another pass with it.
            Err(error) if error.is_conflict() => return false,
            // The lease may be renewed late, within the same term: then this pass is repeated.
            Err(WriteError::NotLeading) => return true,
            Err(error) => error.to_string(),
        };
        if failures.failed(TASK, driver, &error).is_persistent() {
            for pool in &self.pools {
                let notes = self.notes.entry(pool.name_any()).or_default();
                notes.write_failures.push(format!("cannot {TASK} ({driver}): {error}"));
            }
        }
        true
    }

    /// Adds a problem to all pools that select MachineConfigs of a role.
    fn add_problem(&mut self, role: &str, problem: &str) {
        for pool in &self.pools {
            if selects_role(pool, role) {
                let notes = self.notes.entry(pool.name_any()).or_default();
                notes.problems.push(problem.to_owned());
            }
        }
    }

    /// Removes MachineConfigs under old names whose successors exist.
    async fn remove_superseded(&self) -> GenerateResult {
        let pools: Vec<&MachineConfigPool> = self.pools.iter().map(AsRef::as_ref).collect();
        let configs = &self.context.caches.configs;
        for name in superseded(&pools, |name| configs.get(name).is_some()) {
            write::remove(self.context, &name).await?;
        }
        Ok(())
    }

    fn find_overridden(&mut self) {
        let configs = self.context.caches.configs.all();
        let sources = || {
            let configs = configs.iter().map(AsRef::as_ref);
            configs
                .filter(|config: &&MachineConfig| !config.name_any().starts_with(RENDERED_PREFIX))
        };
        for pool in &self.pools {
            // A pool whose selector is invalid has that reported by rendering.
            let Ok(found) = overridden(pool, sources(), is_generated) else { continue };
            if !found.is_empty() {
                let notes = self.notes.entry(pool.name_any()).or_default();
                notes.overridden = found.iter().map(OverriddenFile::message).collect();
            }
        }
    }
}

/// Whether a pool selects the MachineConfigs of a role.
fn selects_role(pool: &MachineConfigPool, role: &str) -> bool {
    let labels = [(machinist_core::api::names::label::ROLE.to_owned(), role.to_owned())].into();
    let selector = pool.spec.machine_config_selector.as_ref();
    selector.is_some_and(|wanted| selector::matches(wanted, &labels).unwrap_or_default())
}

type GenerateResult = Result<(), WriteError>;
