//! What a pool would be rendered to.

use serde::Serialize;

use crate::api::{ControllerConfig, MachineConfig, MachineConfigPool, OSImageStream};
use crate::reconcile_check::ValidationOverrides;
use crate::render::reconcile::{PoolRollback, ReconcileError, RenderInputs, reconcile};
use crate::render::{ImageSources, render};

use super::{PlanSnapshot, PlannedChanges};

/// Why a pool does not get what its sources make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum PoolBlocked {
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
pub(super) struct PlanView<'a> {
    pub(super) pools: Vec<&'a MachineConfigPool>,
    pub(super) configs: Vec<&'a MachineConfig>,
    controller_config: Option<&'a ControllerConfig>,
    streams: Option<&'a OSImageStream>,
}

impl<'a> PlanView<'a> {
    /// The world as it is.
    pub(super) fn from_snapshot(world: &'a PlanSnapshot) -> Self {
        Self {
            pools: world.pools.iter().collect(),
            configs: world.machine_configs.iter().collect(),
            controller_config: world.controller_config.as_ref(),
            streams: world.streams.as_ref(),
        }
    }

    /// The world as it would be.
    pub(super) fn with(&self, changes: &'a PlannedChanges) -> Self {
        Self {
            pools: apply_to_list(&self.pools, &changes.pools, &changes.deleted_pools, pool_name),
            configs: apply_to_list(
                &self.configs,
                &changes.machine_configs,
                &changes.deleted_machine_configs,
                config_name,
            ),
            controller_config: self.controller_config,
            streams: self.streams,
        }
    }

    fn image_sources(&self) -> ImageSources<'a> {
        let (controller_config, streams) = (self.controller_config, self.streams);
        ImageSources { controller_config, streams, worker: None }
            .with_worker_pool(self.pools.iter().copied())
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
fn apply_to_list<'a, T>(
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
pub(super) struct PoolForecast {
    /// What the sources make, if they make anything.
    rendered: Option<MachineConfig>,
    /// What the pool would point at.
    pub(super) target: String,
    /// Why that is not what the sources make.
    pub(super) blocked: Option<PoolBlocked>,
    /// Whether a rollback would end.
    pub(super) ends_rollback: bool,
}

impl PoolForecast {
    /// Whether nothing is different.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        let made = |one: &Self| one.rendered.as_ref().map(|made| config_name(made).to_owned());
        (&self.target, made(self), &self.blocked) == (&other.target, made(other), &other.blocked)
    }

    /// The config that is wanted, whether or not the pool gets it.
    pub(super) fn desired_name(&self) -> &str {
        match (&self.blocked, &self.rendered) {
            (Some(PoolBlocked::Refused { .. }), Some(made)) => config_name(made),
            _ => &self.target,
        }
    }

    /// The object of the config that is wanted.
    pub(super) fn desired_config<'a>(&'a self, view: &PlanView<'a>) -> Option<&'a MachineConfig> {
        let wanted = self.desired_name();
        self.rendered
            .as_ref()
            .filter(|made| config_name(made) == wanted)
            .or_else(|| view.config(wanted))
    }
}

/// Renders a pool as the controller would.
pub(super) fn forecast_pool(view: &PlanView<'_>, pool: &MachineConfigPool) -> PoolForecast {
    let inputs = RenderInputs {
        pool,
        machine_configs: &view.configs,
        system: view.image_sources(),
        version: "",
        overrides: ValidationOverrides::default(),
    };
    let configs = view.configs.iter().copied();
    let made = render(pool, configs, view.image_sources())
        .ok()
        .and_then(|made| made.into_object(pool, view.controller_config, "").ok());
    let current = target_of(pool).to_owned();
    let mut outlook =
        PoolForecast { rendered: made, target: current, blocked: None, ends_rollback: false };
    match reconcile(&inputs) {
        Ok(todo) => {
            outlook.ends_rollback = todo.end_rollback;
            if let Some(name) = todo.set_configuration.and_then(|point| point.name) {
                outlook.target = name;
            }
        }
        // The controller waits for somebody else now; what it does then is what matters here.
        Err(ReconcileError::NotYet(_)) => {
            if let (Some(made), None) = (&outlook.rendered, PoolRollback::from_annotations(pool)) {
                config_name(made).clone_into(&mut outlook.target);
            }
        }
        Err(ReconcileError::NothingToRender(_)) => {}
        Err(ReconcileError::IrreconcilableSource { culprit, reason, .. }) => {
            outlook.blocked = Some(PoolBlocked::Refused { culprit: Some(culprit), reason });
        }
        Err(ReconcileError::Irreconcilable(refusal)) => {
            let reason = refusal.reason();
            outlook.blocked = Some(PoolBlocked::Refused { culprit: None, reason });
        }
        Err(error) => {
            outlook.blocked = Some(PoolBlocked::Unrenderable { reason: error.to_string() })
        }
    }
    outlook
}
