//! Predicts the rendered config of a pool.

use serde::Serialize;

use crate::api::{ControllerConfig, MachineConfig, MachineConfigPool, OSImageStream};
use crate::reconcile_check::ValidationOverrides;
use crate::render::reconcile::{PoolRollback, ReconcileError, RenderInputs, reconcile};
use crate::render::{ImageSources, render};

use super::{PlanSnapshot, PlannedChanges};

/// Why a pool would not get the config that its MachineConfigs render to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum PoolBlocked {
    /// The MachineConfigs cannot be rendered.
    Unrenderable {
        /// The reason.
        reason: String,
    },
    /// The machines of the pool could not apply the result in place.
    Refused {
        /// The one MachineConfig that causes this; none if there are several.
        #[serde(skip_serializing_if = "Option::is_none")]
        culprit: Option<String>,
        /// The reason.
        reason: String,
    },
}

/// Pools and MachineConfigs, before or after the change.
#[derive(Debug, Clone)]
pub(super) struct PlanView<'a> {
    pub(super) pools: Vec<&'a MachineConfigPool>,
    pub(super) configs: Vec<&'a MachineConfig>,
    controller_config: Option<&'a ControllerConfig>,
    streams: Option<&'a OSImageStream>,
}

impl<'a> PlanView<'a> {
    /// The state before the change.
    pub(super) fn from_snapshot(snapshot: &'a PlanSnapshot) -> Self {
        Self {
            pools: snapshot.pools.iter().collect(),
            configs: snapshot.machine_configs.iter().collect(),
            controller_config: snapshot.controller_config.as_ref(),
            streams: snapshot.streams.as_ref(),
        }
    }

    /// The state after the change.
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

/// The objects that are kept, and those that are added or replaced.
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

/// The predicted state of a pool.
#[derive(Debug, Clone)]
pub(super) struct PoolForecast {
    /// The config that the MachineConfigs render to, if they do.
    rendered: Option<MachineConfig>,
    /// The config that the pool would point to.
    pub(super) target: String,
    /// Why that is not what the MachineConfigs render to.
    pub(super) blocked: Option<PoolBlocked>,
    /// Whether a rollback would end.
    pub(super) ends_rollback: bool,
}

impl PoolForecast {
    /// Whether nothing differs.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        let made = |one: &Self| one.rendered.as_ref().map(|made| config_name(made).to_owned());
        (&self.target, made(self), &self.blocked) == (&other.target, made(other), &other.blocked)
    }

    /// The desired config, whether or not the pool gets it.
    pub(super) fn desired_name(&self) -> &str {
        match (&self.blocked, &self.rendered) {
            (Some(PoolBlocked::Refused { .. }), Some(made)) => config_name(made),
            _ => &self.target,
        }
    }

    /// The object of the desired config.
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
    let current = pool.target_config().to_owned();
    let mut outlook =
        PoolForecast { rendered: made, target: current, blocked: None, ends_rollback: false };
    match reconcile(&inputs) {
        Ok(todo) => {
            outlook.ends_rollback = todo.end_rollback;
            // A pool without MachineConfigs gets an empty config.
            outlook.rendered = outlook.rendered.take().or(todo.create);
            if let Some(name) = todo.set_configuration.and_then(|point| point.name) {
                outlook.target = name;
            }
        }
        // The controller would wait here for other controllers; the plan shows what it does
        // afterwards.
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
            outlook.blocked = Some(PoolBlocked::Unrenderable { reason: error.to_string() });
        }
    }
    outlook
}
