//! The rollout loop: sends machines to their pool's config and writes the status of pools.
//!
//! `core::rollout` decides who goes next. Woken by changes of pools, machines, configs and the other loops' results.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use machinist_core::api::names::annotation::machinist;
use machinist_core::api::names::misspelt_annotations;
use machinist_core::api::{
    MachineConfig, MachineConfigNode, MachineConfigPool, MachineOSBuild, MachineOSConfig, selector,
};
use machinist_core::plan::host_refusals;
use machinist_core::rollout::{
    PoolAssignment, PoolLayering, RolloutBlocks, RolloutDecision, RolloutPolicy, assign_nodes,
    decide_layered_rollout, halted_message, is_updated, max_unavailable, rollout_blocks,
    without_pool_message,
};
use serde_json::json;
use tracing::Instrument as _;

use super::context::{Context, WriteError};
use super::debounce::Debounce;
use super::event_component;
use super::status;

/// A burst of changes ends when there was none for this long...
const DEBOUNCE: Duration = Duration::from_millis(50);
/// ...but a pass never waits longer than this.
const MAX_WAIT: Duration = Duration::from_millis(250);
/// A pass looks at every machine. With many machines there are fewer passes during a burst, so that the work of a rollout
/// grows with the number of machines and not with its square. The end of a burst is still handled after [`DEBOUNCE`].
const MAX_WAIT_PER_MACHINE: Duration = Duration::from_micros(120);
/// Tasks under which failed writes are reported.
const WRITE_STATUS: &str = "write the pool status";
const WRITE_ANNOTATIONS: &str = "write the pool annotations";
/// The wait after a failed write.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// What the loop has reported, so that it reports everything once.
#[derive(Debug, Default)]
struct RolloutReported {
    /// Warnings that still hold: (pool, message).
    warnings: BTreeSet<(String, String)>,
    /// The last known target of each pool, and whether all its machines had it.
    targets: BTreeMap<String, (String, bool)>,
    /// Machines that no pool selects.
    without_pool: BTreeSet<String>,
}

/// When the loop has to run again even if nothing changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Requeue(Duration);

/// Runs for ever.
pub(super) async fn run(context: Context) {
    let caches = &context.caches;
    let mut debounce = Debounce::new("rollout", &context.liveness, DEBOUNCE, MAX_WAIT);
    debounce.watch(caches.pools.subscribe());
    debounce.watch(caches.nodes.subscribe());
    debounce.watch(caches.configs.subscribe());
    debounce.watch(caches.machine_config_nodes.subscribe());
    debounce.watch(caches.controller_configs.subscribe());
    debounce.watch(caches.os_configs.subscribe());
    debounce.watch(caches.os_builds.subscribe());
    debounce.watch(caches.os_image_streams.subscribe());
    debounce.watch(context.render_statuses.subscribe());
    debounce.watch(context.pool_notes.subscribe());
    debounce.watch(context.drain_blockers.subscribe());
    caches.wait_until_ready().await;
    let mut reported = RolloutReported::default();
    let mut again = Some(Duration::ZERO);
    loop {
        debounce.set_max_wait(max_wait(caches.nodes.len()));
        debounce.next(again).await;
        again = reconcile(&context, &mut reported).await.map(|Requeue(after)| after);
    }
}

/// How long a burst of changes may last before a pass runs.
fn max_wait(machines: usize) -> Duration {
    MAX_WAIT.max(MAX_WAIT_PER_MACHINE.saturating_mul(u32::try_from(machines).unwrap_or(u32::MAX)))
}

/// Reconciles all pools once.
async fn reconcile(context: &Context, reported: &mut RolloutReported) -> Option<Requeue> {
    let caches = &context.caches;
    let (pools, nodes) = (caches.pools.all(), caches.nodes.all());
    let assignment = assign_nodes(&pools, &nodes);
    let machine_config_nodes = caches.machine_config_nodes.all();
    let (os_configs, os_builds) = (caches.os_configs.all(), caches.os_builds.all());
    let os_configs: Vec<&MachineOSConfig> = os_configs.iter().map(AsRef::as_ref).collect();
    let os_builds: Vec<&MachineOSBuild> = os_builds.iter().map(AsRef::as_ref).collect();
    context.metrics.set_pool_alerts(&assignment.kept_by_master);
    report_machines_without_pool(context, &assignment, &pools, reported);
    let mut again = None;
    for pool in &pools {
        let name = pool.name_any();
        let none = Vec::new();
        let pass = PoolReconcile {
            context,
            pool,
            members: assignment.members.get(&name).unwrap_or(&none),
            problems: assignment.problems_of(&name),
            layering: PoolLayering::for_pool(pool, &os_configs, &os_builds),
            machine_config_nodes: &machine_config_nodes,
            now: Time(Timestamp::now()),
        };
        let span = tracing::info_span!("rollout", pool = name, config = pass.target());
        let next = pass.reconcile(reported).instrument(span).await;
        again = [again, next].into_iter().flatten().min();
    }
    again
}

/// Reports machines that no pool selects, each once until it is in a pool again.
fn report_machines_without_pool(
    context: &Context,
    assignment: &PoolAssignment<'_>,
    pools: &[Arc<MachineConfigPool>],
    reported: &mut RolloutReported,
) {
    // Before the pools are known, no machine is in one.
    if pools.is_empty() && reported.targets.is_empty() {
        return;
    }
    let names: BTreeSet<String> =
        assignment.without_pool.iter().map(|node| node.name_any()).collect();
    for node in &assignment.without_pool {
        if !reported.without_pool.contains(&node.name_any()) {
            let message = without_pool_message(node, pools);
            context.events.report_event(event_component::NODE, *node, true, "NotInPool", message);
        }
    }
    reported.without_pool = names;
}

/// One pool in one pass.
pub(super) struct PoolReconcile<'a> {
    pub(super) context: &'a Context,
    pub(super) pool: &'a Arc<MachineConfigPool>,
    pub(super) members: &'a [&'a Node],
    problems: Vec<String>,
    pub(super) layering: PoolLayering<'a>,
    machine_config_nodes: &'a [Arc<MachineConfigNode>],
    now: Time,
}

impl PoolReconcile<'_> {
    async fn reconcile(&self, reported: &mut RolloutReported) -> Option<Requeue> {
        let selector = self.pool.spec.node_selector.as_ref();
        let has_names = self.pool.annotations().contains_key(machinist::NODE_NAMES);
        if selector.is_some_and(selector::is_empty) && !has_names {
            let message =
                "This machineconfigpool is selecting all nodes. A non-empty selector is required.";
            self.report_once(reported, "SelectingAll", message);
            return None;
        }
        let mut problems = self.problems.clone();
        for problem in &problems {
            self.report_once(reported, "Membership", problem);
        }
        let misspelt = misspelt_annotations(self.pool.metadata.annotations.as_ref());
        for problem in &misspelt {
            self.report_once(reported, "UnknownAnnotation", problem);
        }
        let decision = match self.decide() {
            Ok(decision) => Some(decision),
            Err(problem) => {
                self.report_once(reported, "RolloutPolicy", &problem);
                problems.push(problem);
                None
            }
        };
        let upgrade = self.upgrade_daemons().await;
        if let Some(problem) = &upgrade.problem {
            self.report_once(reported, "DaemonUpgradeStopped", problem);
        }
        // A problem that is solved is reported again if it comes back.
        let name = self.pool.name_any();
        let holds = |message: &String| {
            problems.contains(message)
                || misspelt.contains(message)
                || upgrade.problem.as_ref() == Some(message)
        };
        reported.warnings.retain(|(pool, message)| *pool != name || holds(message));
        let mut again = upgrade.decision.wake.as_ref().map(|wake| self.requeue_at(wake));
        if upgrade.failed_writes > 0 {
            again = again.into_iter().chain([Requeue(RETRY_DELAY)]).min();
        }
        if let Some(decision) = &decision {
            again = again.into_iter().chain(self.apply_decision(decision).await).min();
            if let Some(halted) = decision.halted.as_ref() {
                problems.extend(halted_message(halted));
            }
        }
        let blocks = self.blocks(decision.as_ref());
        let recheck = blocks.recheck.as_ref().map(|at| self.requeue_at(at));
        again = again.into_iter().chain(recheck).min();
        let result = status::write_status(
            self.context,
            self.pool,
            &self.layering,
            self.members,
            self.machine_config_nodes,
            (&problems, &blocks.blocks),
            &self.now,
        )
        .await;
        match result {
            Ok(written) => {
                self.context.write_succeeded(WRITE_STATUS, self.pool.as_ref());
                if let Some(written) = written {
                    self.report_progress(reported, &written);
                }
            }
            Err(error) => {
                self.write_failed(WRITE_STATUS, &error);
                again = Some(
                    again.map_or(Requeue(RETRY_DELAY), |a: Requeue| a.min(Requeue(RETRY_DELAY))),
                );
            }
        }
        again
    }

    fn decide(&self) -> Result<RolloutDecision, String> {
        let mut policy =
            RolloutPolicy::from_annotations(self.pool).map_err(|error| error.to_string())?;
        policy.refused = self.refusals();
        policy.is_release = self.context.releases_machines;
        let max = max_unavailable(self.pool, self.members.len()).map_err(|e| e.to_string())?;
        let goal = self.layering.target(self.pool);
        let decision =
            decide_layered_rollout(goal, self.pool, self.members, &policy, max, &self.now);
        Ok(decision.waiting_for_image(self.layering.wait_reason()))
    }

    /// The machines whose hosts the pool's config is not for.
    fn refusals(&self) -> BTreeMap<String, String> {
        let configs = self.context.caches.configs.all();
        let by_name: BTreeMap<&str, &MachineConfig> = configs
            .iter()
            .filter_map(|config| Some((config.metadata.name.as_deref()?, config.as_ref())))
            .collect();
        let find = |name: &str| by_name.get(name).copied();
        host_refusals(self.members, find(self.target()), find)
    }

    /// The machines, pods and budgets that block the rollout.
    fn blocks(&self, decision: Option<&RolloutDecision>) -> RolloutBlocks {
        let Some(decision) = decision else { return RolloutBlocks::default() };
        let drains = self.context.drain_blockers.borrow();
        rollout_blocks(self.members, decision, &drains, &self.now)
    }

    fn requeue_at(&self, at: &Time) -> Requeue {
        let until = at.0.duration_since(self.now.0);
        Requeue(Duration::try_from(until).unwrap_or_default() + Duration::from_millis(10))
    }

    pub(super) fn now(&self) -> &Time {
        &self.now
    }

    fn target(&self) -> &str {
        let configuration = self.pool.spec.configuration.as_ref();
        configuration.and_then(|configuration| configuration.name.as_deref()).unwrap_or_default()
    }

    /// Performs the decision.
    async fn apply_decision(&self, decision: &RolloutDecision) -> Option<Requeue> {
        let mut again = decision.wake.as_ref().map(|wake| self.requeue_at(wake));
        let mut sooner =
            |other: Requeue| again = Some(again.map_or(other, |again| again.min(other)));
        if self.pool.metadata.deletion_timestamp.is_some() {
            return None;
        }
        if !decision.memory.is_empty() {
            let patch = json!({"metadata": {
                "resourceVersion": self.pool.resource_version(),
                "annotations": decision.memory,
            }});
            match self.context.merge_patch(&self.pool.name_any(), &patch).await {
                Ok(written) => {
                    self.context.write_succeeded(WRITE_ANNOTATIONS, self.pool.as_ref());
                    self.context.caches.pools.upsert(written);
                    // The annotations have to be stored before anything follows from them.
                    sooner(Requeue(Duration::ZERO));
                }
                Err(error) => {
                    self.write_failed(WRITE_ANNOTATIONS, &error);
                    sooner(Requeue(RETRY_DELAY));
                }
            }
            return again;
        }
        let target = self.target();
        let exists = self.context.caches.configs.get(target).is_some();
        if exists {
            let failed = self.send(&decision.next, target).await;
            let failed = failed + self.allow_restart(&decision.restart, target).await;
            let failed = failed + self.withdraw(&decision.withdraw).await;
            if failed > 0 {
                sooner(Requeue(RETRY_DELAY));
            }
        }
        if self.tend(decision, exists).await {
            sooner(Requeue(Duration::ZERO));
        }
        again
    }

    fn report_progress(&self, reported: &mut RolloutReported, written: &MachineConfigPool) {
        let name = self.pool.name_any();
        let target = self.target().to_owned();
        let done = is_updated(written);
        let before = reported.targets.insert(name.clone(), (target.clone(), done));
        if target.is_empty() || before == Some((target.clone(), done)) {
            return;
        }
        if done {
            let text = format!("Pool {name} has completed update to MachineConfig {target}");
            self.report_event("Completed", &text);
        } else if before.is_none_or(|(config, _)| config != target) {
            self.report_event(
                "Updating",
                &format!("Pool {name} now targeting MachineConfig {target}"),
            );
        }
    }

    pub(super) fn report_event(&self, reason: &'static str, message: &str) {
        self.context.events.report_event(
            event_component::NODE,
            self.pool.as_ref(),
            false,
            reason,
            message,
        );
    }

    /// A warning that is not repeated every pass.
    fn report_once(&self, reported: &mut RolloutReported, reason: &'static str, message: &str) {
        if reported.warnings.insert((self.pool.name_any(), message.to_owned())) {
            self.context.events.report_event(
                event_component::NODE,
                self.pool.as_ref(),
                true,
                reason,
                message,
            );
        }
    }

    /// Reports a failed write of the pool. A conflict is none: the watch brings the newer pool, and another pass with it.
    fn write_failed(&self, task: &'static str, error: &WriteError) {
        if !error.is_conflict() {
            self.context.write_failed(task, event_component::NODE, self.pool.as_ref(), error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_machines_make_passes_rarer() {
        assert_eq!(max_wait(3), MAX_WAIT);
        assert_eq!(max_wait(5_000), Duration::from_millis(600));
    }
}
