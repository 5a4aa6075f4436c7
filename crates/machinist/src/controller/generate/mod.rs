//! The generate loop: MachineConfigs that are made out of something easier to write.
//!
//! Each kind of source has a driver that asks a pure generator of `machinist_core` and writes what it
//! returns, where it differs from what is there. An object that cannot be carried out is told so, and
//! what was made of it before stays. A new kind of source is a cache in [`kinds`], a driver, and a
//! line in [`pass`]; templates come first, since others build on what they make.

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
use machinist_core::api::{MachineConfig, MachineConfigPool, selector};
use machinist_core::generate::overridden::{OverriddenFile, overridden};
use machinist_core::generated_config::legacy_names::superseded;
use machinist_core::generated_config::reconcile::is_generated;

use super::context::{Context, WriteError};
use super::debounce::Debounce;
use crate::kubernetes::reflectors::{publish, wait_until_ready};
use report::Reported;
use secrets::SecretCaches;

/// A burst of changes is over when nothing came for this long...
const DEBOUNCE: Duration = Duration::from_millis(50);
/// ...but nobody waits longer than this.
const MAX_WAIT: Duration = Duration::from_millis(300);
/// After a write that failed.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// What a pool should say about what is generated for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PoolNotes {
    /// Objects that cannot be carried out.
    pub(super) problems: Vec<String>,
    /// Files that a person writes as well.
    pub(super) overridden: Vec<String>,
}

/// By the names of the pools.
pub(super) type AllNotes = BTreeMap<String, PoolNotes>;

/// Generates for ever.
pub(super) async fn run(shell: Context) {
    let world = &shell.caches;
    let mut turns = Debounce::new(DEBOUNCE, MAX_WAIT);
    turns.watch(world.pools.subscribe());
    turns.watch(world.configs.subscribe());
    turns.watch(world.controller_configs.subscribe());
    world.generate.changes().into_iter().for_each(|changes| turns.watch(changes));
    world.wait_until_ready().await;
    wait_until_ready(world.generate.changes()).await;
    let mut memory = Reported::default();
    let mut secrets = SecretCaches::default();
    turns.watch(secrets.subscribe());
    let mut again = true;
    loop {
        turns.next(again.then_some(RETRY_DELAY)).await;
        again = reconcile(&shell, &mut memory, &mut secrets).await;
    }
}

/// Generates everything once; whether it has to be tried again by itself.
async fn reconcile(shell: &Context, memory: &mut Reported, secrets: &mut SecretCaches) -> bool {
    let mut turn = GeneratePass::new(shell);
    let mut again = false;
    // One that fails must not keep the others from their turn.
    for outcome in [
        templates::reconcile(&mut turn, memory, secrets).await,
        registries::reconcile(&mut turn, memory).await,
        container_runtime::reconcile(&mut turn, memory).await,
        kubelet::reconcile(&mut turn, memory).await,
        turn.remove_superseded().await,
    ] {
        if let Err(error) = outcome {
            again |= !error.is_stale();
            tracing::debug!(%error, "cannot write what was generated");
        }
    }
    turn.find_overridden();
    memory.warn_overridden(shell, &turn.notes);
    publish(&shell.pool_notes, turn.notes);
    again
}

/// One turn: what it found to say about the pools.
struct GeneratePass<'a> {
    context: &'a Context,
    pools: Vec<std::sync::Arc<MachineConfigPool>>,
    notes: AllNotes,
}

impl<'a> GeneratePass<'a> {
    fn new(shell: &'a Context) -> Self {
        let mut pools = shell.caches.pools.all();
        pools.retain(|pool| pool.metadata.deletion_timestamp.is_none());
        Self { context: shell, pools, notes: AllNotes::new() }
    }

    /// Says something about all pools that take MachineConfigs of a role.
    fn add_problem(&mut self, role: &str, problem: &str) {
        for pool in &self.pools {
            if selects_role(pool, role) {
                let notes = self.notes.entry(pool.name_any()).or_default();
                notes.problems.push(problem.to_owned());
            }
        }
    }

    /// What is there under a name of today need not be there under one of old.
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
            configs.filter(|config: &&MachineConfig| !config.name_any().starts_with("rendered-"))
        };
        for pool in &self.pools {
            // A pool that selects nothing says so itself.
            let Ok(found) = overridden(pool, sources(), is_generated) else { continue };
            if !found.is_empty() {
                let notes = self.notes.entry(pool.name_any()).or_default();
                notes.overridden = found.iter().map(OverriddenFile::message).collect();
            }
        }
    }
}

/// Whether a pool takes the MachineConfigs of a role.
fn selects_role(pool: &MachineConfigPool, role: &str) -> bool {
    let labels = [(machinist_core::api::names::label::ROLE.to_owned(), role.to_owned())].into();
    let selector = pool.spec.machine_config_selector.as_ref();
    selector.is_some_and(|wanted| selector::matches(wanted, &labels).unwrap_or_default())
}

type GenerateResult = Result<(), WriteError>;
