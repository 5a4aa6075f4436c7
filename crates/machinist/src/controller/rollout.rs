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

use super::events::Component;
use super::shell::{Shell, WriteError};
use super::status;
use super::turn::Turns;

/// Changes within this time are answered together.
const QUIET: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_millis(250);
/// A turn looks at every machine, so that many machines are looked at less often while they are busy: the work of a rollout
/// grows with them, not with their square. The end of a burst is answered after [`QUIET`] as ever.
const PATIENCE_PER_MACHINE: Duration = Duration::from_micros(120);
/// After something that did not work.
const RETRY: Duration = Duration::from_secs(1);

/// What the loop remembers from one turn to the next, to say things once.
#[derive(Debug, Default)]
struct Memory {
    /// What was said about a pool and still holds: (pool, message).
    said: BTreeSet<(String, String)>,
    /// The config that each pool was last seen going to, and whether it had arrived.
    seen: BTreeMap<String, (String, bool)>,
}

/// When the loop has to look again although nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Again(Duration);

/// Rolls out for ever.
pub(super) async fn run(shell: Shell) {
    let world = &shell.world;
    let mut turns = Turns::new(QUIET, PATIENCE);
    turns.after(world.pools.changes());
    turns.after(world.nodes.changes());
    turns.after(world.configs.changes());
    turns.after(world.machine_config_nodes.changes());
    turns.after(world.controller_configs.changes());
    turns.after(world.os_configs.changes());
    turns.after(world.os_builds.changes());
    turns.after(world.os_image_streams.changes());
    turns.after(shell.renders.subscribe());
    turns.after(shell.notes.subscribe());
    world.ready().await;
    let mut memory = Memory::default();
    let mut again = Some(Duration::ZERO);
    loop {
        turns.have_patience(patience(world.nodes.len()));
        turns.next(again).await;
        again = pass(&shell, &mut memory).await.map(|Again(after)| after);
    }
}

/// How long a burst of changes may last before it is answered.
fn patience(machines: usize) -> Duration {
    PATIENCE.max(PATIENCE_PER_MACHINE.saturating_mul(u32::try_from(machines).unwrap_or(u32::MAX)))
}

/// Looks at all pools once.
async fn pass(shell: &Shell, memory: &mut Memory) -> Option<Again> {
    let world = &shell.world;
    let (pools, nodes) = (world.pools.all(), world.nodes.all());
    let assignment = assign_nodes(&pools, &nodes);
    let machine_config_nodes = world.machine_config_nodes.all();
    let (os_configs, os_builds) = (world.os_configs.all(), world.os_builds.all());
    let os_configs: Vec<&MachineOSConfig> = os_configs.iter().map(AsRef::as_ref).collect();
    let os_builds: Vec<&MachineOSBuild> = os_builds.iter().map(AsRef::as_ref).collect();
    shell.metrics.kept_by_master(&assignment.kept_by_master);
    let mut again = None;
    for pool in &pools {
        let name = pool.name_any();
        let none = Vec::new();
        let turn = Turn {
            shell,
            pool,
            members: assignment.members.get(&name).unwrap_or(&none),
            problems: problems(&assignment, &name),
            layering: PoolLayering::for_pool(pool, &os_configs, &os_builds),
            machine_config_nodes: &machine_config_nodes,
            now: Time(Timestamp::now()),
        };
        let next = turn.take(memory).await;
        again = [again, next].into_iter().flatten().min();
    }
    again
}

/// What keeps machines out of a pool that they may belong to.
fn problems(assignment: &PoolAssignment<'_>, name: &str) -> Vec<String> {
    let concerns = |error: &&MembershipError| match error {
        MembershipError::MultipleCustomPools { pools, .. } => pools.iter().any(|pool| pool == name),
        MembershipError::InvalidSelector { pool, .. } => pool == name,
    };
    let texts = assignment.errors.iter().filter(concerns).map(ToString::to_string);
    // The same selector is wrong for every machine.
    texts.collect::<BTreeSet<String>>().into_iter().collect()
}

/// One pool in one turn.
pub(super) struct Turn<'a> {
    pub(super) shell: &'a Shell,
    pub(super) pool: &'a Arc<MachineConfigPool>,
    pub(super) members: &'a [&'a Node],
    problems: Vec<String>,
    pub(super) layering: PoolLayering<'a>,
    machine_config_nodes: &'a [Arc<MachineConfigNode>],
    now: Time,
}

impl Turn<'_> {
    async fn take(&self, memory: &mut Memory) -> Option<Again> {
        let selector = self.pool.spec.node_selector.as_ref();
        if selector.is_some_and(selector::is_empty) {
            let message =
                "This machineconfigpool is selecting all nodes. A non-empty selector is required.";
            self.say_once(memory, "SelectingAll", message);
            return None;
        }
        let mut problems = self.problems.clone();
        for problem in &problems {
            self.say_once(memory, "Membership", problem);
        }
        let decision = match self.decide() {
            Ok(decision) => Some(decision),
            Err(problem) => {
                self.say_once(memory, "RolloutPolicy", &problem);
                problems.push(problem);
                None
            }
        };
        // What has been put right is worth saying again when it comes back.
        let name = self.pool.name_any();
        memory.said.retain(|(pool, message)| *pool != name || problems.contains(message));
        let mut again = None;
        if let Some(decision) = &decision {
            again = self.carry_out(decision).await;
            if let Some(halted) = decision.halted.as_ref() {
                problems.extend(status::halted(halted));
            }
        }
        let result = status::write(
            self.shell,
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
                self.complain("cannot write the status of the pool", &error);
                again = Some(again.map_or(Again(RETRY), |a: Again| a.min(Again(RETRY))));
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
    async fn carry_out(&self, decision: &RolloutDecision) -> Option<Again> {
        let mut again = decision.wake.as_ref().map(|wake| {
            let until = wake.0.duration_since(self.now.0);
            Again(Duration::try_from(until).unwrap_or_default() + Duration::from_millis(10))
        });
        let mut sooner = |other: Again| again = Some(again.map_or(other, |again| again.min(other)));
        if self.pool.metadata.deletion_timestamp.is_some() {
            return None;
        }
        if !decision.memory.is_empty() {
            let patch = json!({"metadata": {
                "resourceVersion": self.pool.resource_version(),
                "annotations": decision.memory,
            }});
            match self.shell.merge(&self.pool.name_any(), &patch).await {
                Ok(written) => self.shell.world.pools.put(written),
                Err(error) => self.complain("cannot write the annotations of the pool", &error),
            }
            // What was to be remembered is remembered before anything follows from it.
            sooner(Again(Duration::ZERO));
            return again;
        }
        let target = self.target();
        let exists = self.shell.world.configs.get(target).is_some();
        if exists {
            let failed = self.send(&decision.next, target).await;
            let failed = failed + self.allow_restart(&decision.restart, target).await;
            if failed > 0 {
                sooner(Again(RETRY));
            }
        }
        if self.tend(decision, exists).await {
            sooner(Again(Duration::ZERO));
        }
        again
    }

    fn report_progress(&self, memory: &mut Memory, written: &MachineConfigPool) {
        let name = self.pool.name_any();
        let target = self.target().to_owned();
        let done = status::is_updated(written);
        let before = memory.seen.insert(name.clone(), (target.clone(), done));
        if target.is_empty() || before == Some((target.clone(), done)) {
            return;
        }
        if done {
            let text = format!("Pool {name} has completed update to MachineConfig {target}");
            self.say("Completed", &text);
        } else if before.is_none_or(|(config, _)| config != target) {
            self.say("Updating", &format!("Pool {name} now targeting MachineConfig {target}"));
        }
    }

    pub(super) fn say(&self, reason: &'static str, message: &str) {
        self.shell.events.report(Component::Node, self.pool.as_ref(), false, reason, message);
    }

    /// A warning that is not repeated every turn.
    fn say_once(&self, memory: &mut Memory, reason: &'static str, message: &str) {
        if memory.said.insert((self.pool.name_any(), message.to_owned())) {
            self.shell.events.report(Component::Node, self.pool.as_ref(), true, reason, message);
        }
    }

    pub(super) fn complain(&self, what: &str, error: &WriteError) {
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
        assert_eq!(patience(3), PATIENCE);
        assert_eq!(patience(5_000), Duration::from_millis(600));
    }
}
