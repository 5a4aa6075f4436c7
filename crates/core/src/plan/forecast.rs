//! What a pool would be rendered to.

use serde::Serialize;

use crate::api::{ControllerConfig, MachineConfig, MachineConfigPool, OSImageStream};
use crate::reconcile_check::Overrides;
use crate::render::sync::{Inputs, Rollback, SyncError, sync};
use crate::render::{System, render};

use super::{Changes, World};

/// Why a pool does not get what its sources make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Trouble {
    /// The sources are bad.
    Unrenderable {
        /// Why.
        reason: String,
    },
    /// The machines of the pool could not take the result in place.
    Refused {
        /// The MachineConfig without which they could; none if it is not one alone.
        #[serde(skip_serializing_if = "Option::is_none")]
        culprit: Option<String>,
        /// Why.
        reason: String,
    },
}

/// Pools and MachineConfigs, now or after the change.
#[derive(Debug, Clone)]
pub(super) struct View<'a> {
    pub(super) pools: Vec<&'a MachineConfigPool>,
    pub(super) configs: Vec<&'a MachineConfig>,
    controller_config: Option<&'a ControllerConfig>,
    streams: Option<&'a OSImageStream>,
}

impl<'a> View<'a> {
    /// The world as it is.
    pub(super) fn of(world: &'a World) -> Self {
        Self {
            pools: world.pools.iter().collect(),
            configs: world.machine_configs.iter().collect(),
            controller_config: world.controller_config.as_ref(),
            streams: world.streams.as_ref(),
        }
    }

    /// The world as it would be.
    pub(super) fn with(&self, changes: &'a Changes) -> Self {
        Self {
            pools: changed(&self.pools, &changes.pools, &changes.deleted_pools, pool_name),
            configs: changed(
                &self.configs,
                &changes.machine_configs,
                &changes.deleted_machine_configs,
                config_name,
            ),
            controller_config: self.controller_config,
            streams: self.streams,
        }
    }

    fn system(&self) -> System<'a> {
        let (controller_config, streams) = (self.controller_config, self.streams);
        System { controller_config, streams, worker: None }.among(self.pools.iter().copied())
    }

    pub(super) fn pool(&self, name: &str) -> Option<&'a MachineConfigPool> {
        self.pools.iter().copied().find(|pool| pool_name(pool) == name)
    }

    pub(super) fn config(&self, name: &str) -> Option<&'a MachineConfig> {
        self.configs.iter().copied().find(|config| config_name(config) == name)
    }
}

fn pool_name(pool: &MachineConfigPool) -> &str {
    pool.metadata.name.as_deref().unwrap_or_default()
}

fn config_name(config: &MachineConfig) -> &str {
    config.metadata.name.as_deref().unwrap_or_default()
}

/// The objects that stay, and those that are set.
fn changed<'a, T>(
    now: &[&'a T],
    set: &'a [T],
    deleted: &[String],
    name: fn(&T) -> &str,
) -> Vec<&'a T> {
    let is_replaced = |one: &T| set.iter().any(|new| name(new) == name(one));
    let is_deleted = |one: &T| deleted.iter().any(|gone| gone == name(one));
    let stay = now.iter().copied().filter(|one| !is_replaced(one) && !is_deleted(one));
    stay.chain(set).collect()
}

/// The config that a pool points at.
pub(super) fn target_of(pool: &MachineConfigPool) -> &str {
    let configuration = pool.spec.configuration.as_ref();
    configuration.and_then(|configuration| configuration.name.as_deref()).unwrap_or_default()
}

/// What becomes of a pool.
#[derive(Debug, Clone)]
pub(super) struct Outlook {
    /// What the sources make, if they make anything.
    made: Option<MachineConfig>,
    /// What the pool would point at.
    pub(super) target: String,
    /// Why that is not what the sources make.
    pub(super) trouble: Option<Trouble>,
    /// Whether a rollback would end.
    pub(super) ends_rollback: bool,
}

impl Outlook {
    /// Whether nothing is different.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let made = |one: &Self| one.made.as_ref().map(|made| config_name(made).to_owned());
        (&self.target, made(self), &self.trouble) == (&other.target, made(other), &other.trouble)
    }

    /// The config that is wanted, whether or not the pool gets it.
    pub(super) fn wanted(&self) -> &str {
        match (&self.trouble, &self.made) {
            (Some(Trouble::Refused { .. }), Some(made)) => config_name(made),
            _ => &self.target,
        }
    }

    /// The object of the config that is wanted.
    pub(super) fn object<'a>(&'a self, view: &View<'a>) -> Option<&'a MachineConfig> {
        let wanted = self.wanted();
        self.made
            .as_ref()
            .filter(|made| config_name(made) == wanted)
            .or_else(|| view.config(wanted))
    }
}

/// Renders a pool as the controller would.
pub(super) fn outlook(view: &View<'_>, pool: &MachineConfigPool) -> Outlook {
    let inputs = Inputs {
        pool,
        machine_configs: &view.configs,
        system: view.system(),
        version: "",
        overrides: Overrides::default(),
    };
    let configs = view.configs.iter().copied();
    let made = render(pool, configs, view.system())
        .ok()
        .and_then(|made| made.into_object(pool, view.controller_config, "").ok());
    let current = target_of(pool).to_owned();
    let mut outlook = Outlook { made, target: current, trouble: None, ends_rollback: false };
    match sync(&inputs) {
        Ok(todo) => {
            outlook.ends_rollback = todo.end_rollback;
            if let Some(name) = todo.point.and_then(|point| point.name) {
                outlook.target = name;
            }
        }
        // The controller waits for somebody else now; what it does then is what matters here.
        Err(SyncError::NotYet(_)) => {
            if let (Some(made), None) = (&outlook.made, Rollback::of(pool)) {
                config_name(made).clone_into(&mut outlook.target);
            }
        }
        Err(SyncError::Nothing(_)) => {}
        Err(SyncError::Culprit { culprit, reason, .. }) => {
            outlook.trouble = Some(Trouble::Refused { culprit: Some(culprit), reason });
        }
        Err(SyncError::Refused(refusal)) => {
            let reason = refusal.reason();
            outlook.trouble = Some(Trouble::Refused { culprit: None, reason });
        }
        Err(error) => outlook.trouble = Some(Trouble::Unrenderable { reason: error.to_string() }),
    }
    outlook
}
