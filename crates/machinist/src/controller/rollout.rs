//! The rollout loop: who gets the new config now, and what the pools say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use machinist_core::api::{
    MachineConfigNode, MachineConfigPool, MachineOSBuild, MachineOSConfig, selector,
};
use machinist_core::rollout::{
    MembershipError, PoolAssignment, PoolLayering, RolloutDecision, RolloutPolicy, assign_nodes,
    decide_layered_rollout, max_unavailable,
};
use serde_json::json;

use super::context::{Context, WriteError};
use super::debounce::Debounce;
use super::event_component;
use super::status;

/// Changes within this time are answered together.
const DEBOUNCE: Duration = Duration::from_millis(50);
const MAX_WAIT: Duration = Duration::from_millis(250);
/// A turn looks at every machine, so that many machines are looked at less often while they are busy: the work of a rollout
/// grows with them, not with their square. The end of a burst is answered after [`QUIET`] as ever.
const MAX_WAIT_PER_MACHINE: Duration = Duration::from_micros(120);
/// After something that did not work.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// What the loop remembers from one turn to the next, to say things once.
#[derive(Debug, Default)]
struct RolloutReported {
    /// What was said about a pool and still holds: (pool, message).
    warnings: BTreeSet<(String, String)>,
    /// The config that each pool was last seen going to, and whether it had arrived.
    targets: BTreeMap<String, (String, bool)>,
}

/// When the loop has to look again although nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Requeue(Duration);

/// Rolls out for ever.
pub(super) async fn run(shell: Context) {
    let world = &shell.caches;
    let mut turns = Debounce::new(DEBOUNCE, MAX_WAIT);
    turns.watch(world.pools.subscribe());
    turns.watch(world.nodes.subscribe());
    turns.watch(world.configs.subscribe());
    turns.watch(world.machine_config_nodes.subscribe());
    turns.watch(world.controller_configs.subscribe());
    turns.watch(world.os_configs.subscribe());
    turns.watch(world.os_builds.subscribe());
    turns.watch(world.os_image_streams.subscribe());
    turns.watch(shell.render_statuses.subscribe());
    turns.watch(shell.pool_notes.subscribe());
    world.wait_until_ready().await;
    let mut memory = RolloutReported::default();
    let mut again = Some(Duration::ZERO);
    loop {
        turns.set_max_wait(max_wait(world.nodes.len()));
        turns.next(again).await;
        again = reconcile(&shell, &mut memory).await.map(|Requeue(after)| after);
    }
}

/// How long a burst of changes may last before it is answered.
fn max_wait(machines: usize) -> Duration {
    MAX_WAIT.max(MAX_WAIT_PER_MACHINE.saturating_mul(u32::try_from(machines).unwrap_or(u32::MAX)))
}

/// Looks at all pools once.
async fn reconcile(shell: &Context, memory: &mut RolloutReported) -> Option<Requeue> {
    let world = &shell.caches;
    let (pools, nodes) = (world.pools.all(), world.nodes.all());
    let assignment = assign_nodes(&pools, &nodes);
    let machine_config_nodes = world.machine_config_nodes.all();
    let (os_configs, os_builds) = (world.os_configs.all(), world.os_builds.all());
    let os_configs: Vec<&MachineOSConfig> = os_configs.iter().map(AsRef::as_ref).collect();
    let os_builds: Vec<&MachineOSBuild> = os_builds.iter().map(AsRef::as_ref).collect();
    shell.metrics.set_pool_alerts(&assignment.kept_by_master);
    let mut again = None;
    for pool in &pools {
        let name = pool.name_any();
        let none = Vec::new();
        let turn = PoolReconcile {
            context: shell,
            pool,
            members: assignment.members.get(&name).unwrap_or(&none),
            problems: membership_problems(&assignment, &name),
            layering: PoolLayering::for_pool(pool, &os_configs, &os_builds),
            machine_config_nodes: &machine_config_nodes,
            now: Time(Timestamp::now()),
        };
        let next = turn.reconcile(memory).await;
        again = [again, next].into_iter().flatten().min();
    }
    again
}

/// What keeps machines out of a pool that they may belong to.
fn membership_problems(assignment: &PoolAssignment<'_>, name: &str) -> Vec<String> {
    let concerns = |error: &&MembershipError| match error {
        MembershipError::MultipleCustomPools { pools, .. } => pools.iter().any(|pool| pool == name),
        MembershipError::InvalidSelector { pool, .. } => pool == name,
    };
    let texts = assignment.errors.iter().filter(concerns).map(ToString::to_string);
    // The same selector is wrong for every machine.
    texts.collect::<BTreeSet<String>>().into_iter().collect()
}

/// One pool in one turn.
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
    async fn reconcile(&self, memory: &mut RolloutReported) -> Option<Requeue> {
        let selector = self.pool.spec.node_selector.as_ref();
        if selector.is_some_and(selector::is_empty) {
            let message =
                "This machineconfigpool is selecting all nodes. A non-empty selector is required.";
            self.report_once(memory, "SelectingAll", message);
            return None;
        }
        let mut problems = self.problems.clone();
        for problem in &problems {
            self.report_once(memory, "Membership", problem);
        }
        let decision = match self.decide() {
            Ok(decision) => Some(decision),
            Err(problem) => {
                self.report_once(memory, "RolloutPolicy", &problem);
                problems.push(problem);
                None
            }
        };
        // What has been put right is worth saying again when it comes back.
        let name = self.pool.name_any();
        memory.warnings.retain(|(pool, message)| *pool != name || problems.contains(message));
        let mut again = None;
        if let Some(decision) = &decision {
            again = self.apply_decision(decision).await;
            if let Some(halted) = decision.halted.as_ref() {
                problems.extend(status::halted_message(halted));
            }
        }
        let result = status::write_status(
            self.context,
            self.pool,
            &self.layering,
            self.members,
            self.machine_config_nodes,
            &problems,
            &self.now,
        )
        .await;
        match result {
            Ok(Some(written)) => self.report_progress(memory, &written),
            Ok(None) => {}
            Err(error) => {
                self.log_failure("cannot write the status of the pool", &error);
                again = Some(
                    again.map_or(Requeue(RETRY_DELAY), |a: Requeue| a.min(Requeue(RETRY_DELAY))),
                );
            }
        }
        again
    }

    fn decide(&self) -> Result<RolloutDecision, String> {
        let policy =
            RolloutPolicy::from_annotations(self.pool).map_err(|error| error.to_string())?;
        let max = max_unavailable(self.pool, self.members.len()).map_err(|e| e.to_string())?;
        let goal = self.layering.target(self.pool);
        let decision =
            decide_layered_rollout(goal, self.pool, self.members, &policy, max, &self.now);
        Ok(decision.waiting_for_image(self.layering.wait_reason()))
    }

    fn target(&self) -> &str {
        let configuration = self.pool.spec.configuration.as_ref();
        configuration.and_then(|configuration| configuration.name.as_deref()).unwrap_or_default()
    }

    /// Writes what was decided.
    async fn apply_decision(&self, decision: &RolloutDecision) -> Option<Requeue> {
        let mut again = decision.wake.as_ref().map(|wake| {
            let until = wake.0.duration_since(self.now.0);
            Requeue(Duration::try_from(until).unwrap_or_default() + Duration::from_millis(10))
        });
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
                Ok(written) => self.context.caches.pools.upsert(written),
                Err(error) => self.log_failure("cannot write the annotations of the pool", &error),
            }
            // What was to be remembered is remembered before anything follows from it.
            sooner(Requeue(Duration::ZERO));
            return again;
        }
        let target = self.target();
        let exists = self.context.caches.configs.get(target).is_some();
        if exists {
            let failed = self.send(&decision.next, target).await;
            let failed = failed + self.allow_restart(&decision.restart, target).await;
            if failed > 0 {
                sooner(Requeue(RETRY_DELAY));
            }
        }
        if self.tend(decision, exists).await {
            sooner(Requeue(Duration::ZERO));
        }
        again
    }

    fn report_progress(&self, memory: &mut RolloutReported, written: &MachineConfigPool) {
        let name = self.pool.name_any();
        let target = self.target().to_owned();
        let done = status::is_updated(written);
        let before = memory.targets.insert(name.clone(), (target.clone(), done));
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

    /// A warning that is not repeated every turn.
    fn report_once(&self, memory: &mut RolloutReported, reason: &'static str, message: &str) {
        if memory.warnings.insert((self.pool.name_any(), message.to_owned())) {
            self.context.events.report_event(
                event_component::NODE,
                self.pool.as_ref(),
                true,
                reason,
                message,
            );
        }
    }

    pub(super) fn log_failure(&self, what: &str, error: &WriteError) {
        if !matches!(error, WriteError::NotLeading) && !error.is_conflict() {
            tracing::warn!(pool = self.pool.name_any(), %error, "{what}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_machines_are_looked_at_less_often() {
        assert_eq!(max_wait(3), MAX_WAIT);
        assert_eq!(max_wait(5_000), Duration::from_millis(600));
    }
}
