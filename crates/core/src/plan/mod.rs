//! Plans changes and rollbacks without performing them: what a change would do, and where a pool
//! could roll back to. Writes nothing. Called by `machinist plan` and `machinist rollback`.
//!
//! ```text
//! snapshot + changes ─ forecast (render, twice) ─→ pools that change ─ machine_plan ─→ cost of each
//!                                                               ├ rollout ──────→ order
//!                                                               └ warnings ─────→ risks
//! pool + rendered configs ─ rollback ─→ target, or why there is none
//! ```

mod forecast;
mod host_refusals;
mod image_age;
mod machine_plan;
mod rollback;
#[cfg(test)]
mod scenarios;
mod warnings;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Serialize;

use crate::api::operator::NodeDisruptionPolicy;
use crate::api::{ControllerConfig, MachineConfig, MachineConfigPool, OSImageStream, selector};
use crate::diff::{self, ConfigDiff};
use crate::node::NodeView;
use crate::reconcile_check::ValidationOverrides;
use crate::render::reconcile::allows_any_user;
use crate::render::select;
use crate::rollout::{
    PoolAssignment, RolloutHalted, RolloutPolicy, WaitReason, assign_nodes, decide_rollout,
    max_unavailable, without_pool_message,
};

pub use forecast::PoolBlocked;
pub use host_refusals::host_refusals;
pub use machine_plan::{DisruptionCost, MachinePlan};
pub use rollback::{RenderedRevision, RollbackError, plan_rollback, rendered_revisions};
pub use warnings::{PlanWarning, PlanWarningKind};

use forecast::{PlanView, PoolForecast, forecast_pool};

/// The state of the API server that a plan depends on.
#[derive(Debug, Clone, Default)]
pub struct PlanSnapshot {
    /// The pools.
    pub pools: Vec<MachineConfigPool>,
    /// The MachineConfigs, including rendered ones.
    pub machine_configs: Vec<MachineConfig>,
    /// The machines.
    pub nodes: Vec<Node>,
    /// The ControllerConfig, if there is one.
    pub controller_config: Option<ControllerConfig>,
    /// The OSImageStream `cluster`, if there is one.
    pub streams: Option<OSImageStream>,
    /// The effective disruption policy: the administrator's, merged over the defaults.
    pub policy: NodeDisruptionPolicy,
}

/// The changes to plan.
#[derive(Debug, Clone, Default)]
pub struct PlannedChanges {
    /// New or changed pools.
    pub pools: Vec<MachineConfigPool>,
    /// New or changed MachineConfigs.
    pub machine_configs: Vec<MachineConfig>,
    /// Deleted pools, by name.
    pub deleted_pools: Vec<String>,
    /// Deleted MachineConfigs, by name.
    pub deleted_machine_configs: Vec<String>,
}

/// The effect of the changes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChangePlan {
    /// Whether a machine would refuse the change, or a pool could not be rendered.
    pub refused: bool,
    /// The pools that are affected, by name.
    pub pools: Vec<PoolPlan>,
    /// The machines that change their pool.
    pub moves: Vec<PoolMove>,
    /// What would have no effect, and why some machines would be in no pool.
    pub problems: Vec<String>,
}

/// The effect on one pool.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolPlan {
    /// The pool.
    pub pool: String,
    /// The rendered config before the change, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The rendered config after the change; none if there is nothing to render.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Why the pool would not get it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<PoolBlocked>,
    /// The risks of the change.
    pub warnings: Vec<PlanWarning>,
    /// How many machines the pool would have.
    pub machine_count: usize,
    /// How many of them may be unavailable at once; none if the pool's setting is invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<i64>,
    /// The machines that change, and what it costs them.
    pub machines: Vec<MachinePlan>,
    /// The machines that would be updated first, in this order.
    pub next: Vec<String>,
    /// What the other machines would wait for.
    pub waiting: BTreeMap<String, WaitReason>,
    /// Why no machine would be updated, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halted: Option<RolloutHalted>,
    /// What differs between the two configs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<ConfigDiff>,
}

/// A machine that changes its pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PoolMove {
    /// The machine.
    pub machine: String,
    /// The pool before the change, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The pool after the change, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// Plans the effect of changes.
#[must_use]
pub fn plan_changes(snapshot: &PlanSnapshot, changes: &PlannedChanges, now: &Time) -> ChangePlan {
    let before = PlanView::from_snapshot(snapshot);
    let after = before.with(changes);
    let members =
        (assign_nodes(&before.pools, &snapshot.nodes), assign_nodes(&after.pools, &snapshot.nodes));
    let mut pools = Vec::new();
    for pool in &after.pools {
        let context =
            PlanContext { snapshot, before: &before, after: &after, members: &members, now };
        pools.extend(context.pool_plan(pool));
    }
    pools.sort_by(|a, b| a.pool.cmp(&b.pool));
    let refuses = |pool: &PoolPlan| {
        pool.trouble.is_some() || pool.machines.iter().any(|machine| machine.refused.is_some())
    };
    ChangePlan {
        refused: pools.iter().any(refuses),
        pools,
        moves: pool_moves(&members.0, &members.1),
        problems: problems(&after, changes, &members.1),
    }
}

/// What has no effect, or leaves machines out.
fn problems(
    after: &PlanView<'_>,
    changes: &PlannedChanges,
    members: &PoolAssignment<'_>,
) -> Vec<String> {
    let mut found: Vec<String> = members.errors.iter().map(ToString::to_string).collect();
    found.extend(members.without_pool.iter().map(|node| without_pool_message(node, &after.pools)));
    let named = |kind: &str, metadata: &ObjectMeta, problem: &str| {
        format!("{kind} {}: {problem}", metadata.name.as_deref().unwrap_or_default())
    };
    for config in &changes.machine_configs {
        if let Some(problem) = unselected_message(config, &after.pools) {
            found.push(named("MachineConfig", &config.metadata, &problem));
        }
    }
    found
}

/// Why no machine gets a MachineConfig: no pool selects it.
#[must_use]
pub fn unselected_message(config: &MachineConfig, pools: &[&MachineConfigPool]) -> Option<String> {
    if pools.iter().any(|pool| select(pool, [config]).is_ok()) {
        return None;
    }
    let pools: Vec<String> = pools.iter().map(|pool| pool_selector(pool)).collect();
    Some(format!(
        "no pool selects it, so no machine gets it: give it the labels of a pool ({})",
        pools.join("; ")
    ))
}

/// A pool and what it selects: `worker: machineconfiguration.openshift.io/role=worker`.
fn pool_selector(pool: &MachineConfigPool) -> String {
    let selector = pool.spec.machine_config_selector.as_ref();
    let selector = selector.map(selector::to_text).unwrap_or_default();
    format!("{}: {selector}", pool.metadata.name.as_deref().unwrap_or_default())
}

/// The inputs of every pool's plan.
struct PlanContext<'a> {
    snapshot: &'a PlanSnapshot,
    before: &'a PlanView<'a>,
    after: &'a PlanView<'a>,
    members: &'a (PoolAssignment<'a>, PoolAssignment<'a>),
    now: &'a Time,
}

impl PlanContext<'_> {
    /// The plan of a pool; `None` if nothing changes for it.
    fn pool_plan(&self, pool: &MachineConfigPool) -> Option<PoolPlan> {
        let name = pool.metadata.name.clone().unwrap_or_default();
        let old_pool = self.before.pool(&name);
        let old = old_pool.map(|pool| forecast_pool(self.before, pool));
        let new = forecast_pool(self.after, pool);
        let none = Vec::new();
        let nodes = self.members.1.members.get(&name).unwrap_or(&none);
        let is_same = old_pool.zip(old.as_ref()).is_some_and(|(old_pool, old)| {
            let was = self.members.0.members.get(&name).unwrap_or(&none);
            let names = |nodes: &[&Node]| -> Vec<String> {
                nodes.iter().map(|node| NodeView(node).name().to_owned()).collect()
            };
            old.is_same_as(&new)
                && has_same_rollout_settings(old_pool, pool)
                && names(was) == names(nodes)
        });
        if is_same {
            return None;
        }
        let before = old_pool
            .map(MachineConfigPool::target_config)
            .filter(|name| !name.is_empty())
            .map(str::to_owned);
        let target = new.desired_name().to_owned();
        let wanted = new.desired_config(self.after);
        let find = |name: &str| self.before.config(name);
        let machines = wanted.map_or_else(Vec::new, |wanted| {
            let controller_config = self.snapshot.controller_config.as_ref();
            let overrides = ValidationOverrides {
                any_user: allows_any_user(controller_config),
                ..ValidationOverrides::default()
            };
            machine_plan::plan_machines(nodes, &find, wanted, &self.snapshot.policy, overrides)
        });
        let mut warnings = wanted.map_or_else(Vec::new, |wanted| {
            warnings::config_warnings(&machines, &find, before.as_deref(), wanted)
        });
        warnings.extend(warnings::pool_warnings(pool, nodes.len(), old.as_ref(), &new));
        let diff = before.as_deref().and_then(find).zip(wanted).and_then(|(old, new)| {
            let change = diff::parse_both(old, new)?;
            Some(diff::diff(old, new, &change))
        });
        let mut plan = PoolPlan {
            pool: name,
            before,
            after: Some(target).filter(|name| !name.is_empty()),
            warnings,
            machine_count: nodes.len(),
            max_unavailable: max_unavailable(pool, nodes.len()).ok(),
            machines,
            next: Vec::new(),
            waiting: BTreeMap::new(),
            halted: None,
            diff,
            trouble: None,
        };
        self.plan_first_machines(pool, nodes, &new, &mut plan);
        plan.trouble = new.blocked;
        Some(plan)
    }

    /// Fills in which machines would be updated first: none if the pool does not get the config.
    fn plan_first_machines(
        &self,
        pool: &MachineConfigPool,
        nodes: &[&Node],
        new: &PoolForecast,
        plan: &mut PoolPlan,
    ) {
        let (Ok(policy), Some(max), None) =
            (RolloutPolicy::from_annotations(pool), plan.max_unavailable, new.blocked.as_ref())
        else {
            return;
        };
        let mut pointed = pool.clone();
        pointed.spec.configuration.get_or_insert_default().name = plan.after.clone();
        let refused =
            host_refusals(nodes, new.desired_config(self.after), |name| self.before.config(name));
        let policy = RolloutPolicy { refused, ..policy };
        let decision = decide_rollout(&pointed, nodes, &policy, max, self.now);
        plan.next = decision.next;
        plan.waiting = decision.waiting;
        plan.halted = decision.halted;
    }
}

/// Whether two versions of a pool have the same rollout settings.
fn has_same_rollout_settings(old: &MachineConfigPool, new: &MachineConfigPool) -> bool {
    let ours = |pool: &MachineConfigPool| -> BTreeMap<String, String> {
        let all = pool.metadata.annotations.clone().unwrap_or_default().into_iter();
        all.filter(|(key, _)| key.starts_with("machinist.dev/")).collect()
    };
    old.spec.paused.unwrap_or_default() == new.spec.paused.unwrap_or_default()
        && old.spec.max_unavailable == new.spec.max_unavailable
        && ours(old) == ours(new)
}

/// The machines that change their pool.
fn pool_moves(before: &PoolAssignment<'_>, after: &PoolAssignment<'_>) -> Vec<PoolMove> {
    let by_machine = |assignment: &PoolAssignment<'_>| -> BTreeMap<String, String> {
        let pairs = assignment.members.iter().flat_map(|(pool, nodes)| {
            nodes.iter().map(|node| (NodeView(node).name().to_owned(), pool.clone()))
        });
        pairs.collect()
    };
    let (before, after) = (by_machine(before), by_machine(after));
    let mut all: Vec<&String> = before.keys().chain(after.keys()).collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter()
        .map(|machine| PoolMove {
            machine: machine.clone(),
            from: before.get(machine).cloned(),
            to: after.get(machine).cloned(),
        })
        .filter(|one| one.from != one.to)
        .collect()
}
