//! The generate loop: MachineConfigs that are made out of something easier to write.
//!
//! Each kind of source has a driver that asks a pure generator of `machinist_core` and writes what it
//! returns, where it differs from what is there. An object that cannot be carried out is told so, and
//! what was made of it before stays. A new kind of source is a cache in [`kinds`], a driver, and a
//! line in [`pass`]; templates come first, since others build on what they make.

mod container_runtime;
pub(super) mod kinds;
mod kubelet;
mod registries;
mod secrets;
mod tell;
mod templates;
mod write;

pub(super) use secrets::DOCKER_CONFIG_KEY;

use std::collections::BTreeMap;
use std::time::Duration;

use kube::ResourceExt as _;
use machinist_core::api::{MachineConfig, MachineConfigPool, selector};
use machinist_core::generate::legacy_names::superseded;
use machinist_core::generate::overridden::{OverriddenFile, overridden};
use machinist_core::generate::reconcile::is_generated;

use super::shell::{Shell, WriteError};
use super::turn::Turns;
use secrets::Secrets;
use tell::Memory;

/// A burst of changes is over when nothing came for this long...
const QUIET: Duration = Duration::from_millis(50);
/// ...but nobody waits longer than this.
const PATIENCE: Duration = Duration::from_millis(300);
/// After a write that failed.
const RETRY: Duration = Duration::from_secs(1);

/// What a pool should say about what is generated for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Notes {
    /// Objects that cannot be carried out.
    pub(super) problems: Vec<String>,
    /// Files that a person writes as well.
    pub(super) overridden: Vec<String>,
}

/// By the names of the pools.
pub(super) type AllNotes = BTreeMap<String, Notes>;

/// Generates for ever.
pub(super) async fn run(shell: Shell) {
    let world = &shell.world;
    let mut turns = Turns::new(QUIET, PATIENCE);
    turns.after(world.pools.changes());
    turns.after(world.configs.changes());
    turns.after(world.controller_configs.changes());
    world.kinds.wake(&turns);
    world.ready().await;
    world.kinds.ready().await;
    let mut memory = Memory::default();
    let mut secrets = Secrets::default();
    turns.after(secrets.changes());
    let mut again = true;
    loop {
        turns.next(again.then_some(RETRY)).await;
        again = pass(&shell, &mut memory, &mut secrets).await;
    }
}

/// Generates everything once; whether it has to be tried again by itself.
async fn pass(shell: &Shell, memory: &mut Memory, secrets: &mut Secrets) -> bool {
    let mut turn = Turn::new(shell);
    let mut again = false;
    // One that fails must not keep the others from their turn.
    for outcome in [
        templates::pass(&mut turn, memory, secrets).await,
        registries::pass(&mut turn, memory).await,
        container_runtime::pass(&mut turn, memory).await,
        kubelet::pass(&mut turn, memory).await,
        turn.remove_superseded().await,
    ] {
        if let Err(error) = outcome {
            again |= !error.is_stale();
            tracing::debug!(%error, "cannot write what was generated");
        }
    }
    turn.look_for_overridden();
    memory.tell_overridden(shell, &turn.notes);
    let notes = turn.notes;
    shell.notes.send_if_modified(|known| {
        let is_news = *known != notes;
        *known = notes;
        is_news
    });
    again
}

/// One turn: what it found to say about the pools.
struct Turn<'a> {
    shell: &'a Shell,
    pools: Vec<std::sync::Arc<MachineConfigPool>>,
    notes: AllNotes,
}

impl<'a> Turn<'a> {
    fn new(shell: &'a Shell) -> Self {
        let mut pools = shell.world.pools.all();
        pools.retain(|pool| pool.metadata.deletion_timestamp.is_none());
        Self { shell, pools, notes: AllNotes::new() }
    }

    /// Says something about all pools that take MachineConfigs of a role.
    fn problem(&mut self, role: &str, problem: &str) {
        for pool in &self.pools {
            if takes(pool, role) {
                let notes = self.notes.entry(pool.name_any()).or_default();
                notes.problems.push(problem.to_owned());
            }
        }
    }

    /// What is there under a name of today need not be there under one of old.
    async fn remove_superseded(&self) -> Outcome {
        let pools: Vec<&MachineConfigPool> = self.pools.iter().map(AsRef::as_ref).collect();
        let configs = &self.shell.world.configs;
        for name in superseded(&pools, |name| configs.get(name).is_some()) {
            write::remove(self.shell, &name).await?;
        }
        Ok(())
    }

    fn look_for_overridden(&mut self) {
        let configs = self.shell.world.configs.all();
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
fn takes(pool: &MachineConfigPool, role: &str) -> bool {
    let labels = [(machinist_core::api::names::label::ROLE.to_owned(), role.to_owned())].into();
    let selector = pool.spec.machine_config_selector.as_ref();
    selector.is_some_and(|wanted| selector::matches(wanted, &labels).unwrap_or_default())
}

type Outcome = Result<(), WriteError>;
