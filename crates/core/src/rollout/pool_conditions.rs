//! What a pool reports about rendering, generating and rolling out, on top of the counts of `pool_status`.
//!
//! The controller's rollout loop collects the inputs and writes the result; every choice of a condition is here.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::names::annotation::machinist;
use crate::api::names::condition::pool as condition;
use crate::api::{
    Condition, ControllerConfig, MachineConfigNode, MachineConfigPool, MachineConfigPoolStatus,
    OSImageStream, find_condition, set_condition,
};
use crate::node::{MachineMode, NodeView};

use super::{PoolLayering, RolloutBlock, RolloutHalted, pool_status_for, stream_of};

/// The reason of a condition whose cause is a write that the API server refused.
const WRITE_FAILED: &str = "WriteFailed";

/// The result of the last attempt to render a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenderStatus {
    /// The pool has its config.
    Rendered,
    /// Rendering waits for something else, or is being retried.
    Waiting,
    /// There is nothing to render.
    NoSources(String),
    /// The sources are invalid.
    Failed(String),
    /// The API server keeps refusing to store the result.
    WriteFailed(String),
}

/// What a pool reports about the MachineConfigs that are generated for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolNotes {
    /// Sources that are invalid.
    pub problems: Vec<String>,
    /// Generated MachineConfigs that the API server keeps refusing to store.
    pub write_failures: Vec<String>,
    /// Files that a hand-written MachineConfig writes as well.
    pub overridden: Vec<String>,
}

/// Everything that the status of a pool depends on.
#[derive(Debug, Clone, Copy)]
pub struct PoolStatusInputs<'a> {
    /// The pool, with its previous status.
    pub pool: &'a MachineConfigPool,
    /// The image that the pool runs, if it has one of its own.
    pub layering: &'a PoolLayering<'a>,
    /// The machines of the pool.
    pub members: &'a [&'a Node],
    /// The MachineConfigNodes of all machines.
    pub machine_config_nodes: &'a [&'a MachineConfigNode],
    /// The ControllerConfig, for the expiry of certificates.
    pub controller_config: Option<&'a ControllerConfig>,
    /// The OS image streams to choose from.
    pub streams: Option<&'a OSImageStream>,
    /// How rendering went; none before the first attempt.
    pub render: Option<&'a RenderStatus>,
    /// What keeps the rollout from going on.
    pub rollout_problems: &'a [String],
    /// The machines, pods and budgets that keep the rollout from going on.
    pub rollout_blocks: &'a [RolloutBlock],
    /// What is known about generated MachineConfigs.
    pub notes: &'a PoolNotes,
}

/// The status that a pool is to have. `image_of` gives the OS image of a MachineConfig by name.
#[must_use]
pub fn reported_pool_status(
    inputs: &PoolStatusInputs<'_>,
    image_of: impl Fn(&str) -> Option<String>,
    now: &Time,
) -> MachineConfigPoolStatus {
    let mut pool = inputs.pool.clone();
    let mut before = pool.status.take().unwrap_or_default();
    set_render_condition(before.conditions.get_or_insert_default(), inputs.render, now);
    // A pool that has never had a config has nothing to report about its machines.
    if pool.spec.configuration.as_ref().is_none_or(|c| c.name.is_none()) {
        let mut status = unrendered_status(before, &pool, inputs, now);
        // Without MachineConfigs there is nothing to render: the reason is what cannot be generated.
        set_generated_conditions(status.conditions.get_or_insert_default(), inputs.notes, now);
        return status;
    }
    pool.status = Some(before);
    let mut status = pool_status_for(
        inputs.layering,
        &pool,
        inputs.members,
        inputs.machine_config_nodes,
        inputs.controller_config,
        now,
    );
    status.os_image_stream = stream_of(&status, image_of, inputs.streams);
    let conditions = status.conditions.get_or_insert_default();
    set_blocked_condition(conditions, inputs, now);
    set_generated_conditions(conditions, inputs.notes, now);
    set_observing_condition(conditions, &pool, inputs.members, now);
    status
}

/// Sets `Observing`: what the config would change on machines that are only observed.
fn set_observing_condition(
    conditions: &mut Vec<Condition>,
    pool: &MachineConfigPool,
    members: &[&Node],
    now: &Time,
) {
    const SHOWN: usize = 10;
    let mode = pool_mode(pool);
    let views = members.iter().map(|node| NodeView(node));
    let observed =
        views.filter(|view| MachineMode::of_machine(*view, mode) != MachineMode::Enforce);
    let mut messages: Vec<String> = observed
        .map(|view| {
            let found = view.observation().unwrap_or("not compared yet");
            format!("{}: {found}", view.name())
        })
        .collect();
    let more = messages.len().saturating_sub(SHOWN);
    messages.truncate(SHOWN);
    if more > 0 {
        messages.push(format!("and {more} more machines"));
    }
    set_sparse_condition(conditions, condition::OBSERVING, "ObserveMode", &messages, now);
}

/// The mode of a pool, whatever else its policy says. One that cannot be parsed is the one that does no
/// harm.
#[must_use]
pub fn pool_mode(pool: &MachineConfigPool) -> MachineMode {
    let annotations = pool.metadata.annotations.as_ref();
    let text = annotations.and_then(|annotations| annotations.get(machinist::MODE));
    text.map_or(MachineMode::Enforce, |text| text.trim().parse().unwrap_or(MachineMode::Observe))
}

/// The status of a pool that has no config yet: only why.
fn unrendered_status(
    mut status: MachineConfigPoolStatus,
    pool: &MachineConfigPool,
    inputs: &PoolStatusInputs<'_>,
    now: &Time,
) -> MachineConfigPoolStatus {
    status.observed_generation = pool.metadata.generation;
    let conditions = status.conditions.get_or_insert_default();
    let is_degraded =
        find_condition(conditions, condition::RENDER_DEGRADED).is_some_and(Condition::is_true);
    set_condition(conditions, condition::DEGRADED, is_degraded, "", "", now);
    set_blocked_condition(conditions, inputs, now);
    status
}

/// Sets `RenderDegraded`. While the result is not known, the previous condition stands.
fn set_render_condition(
    conditions: &mut Vec<Condition>,
    render: Option<&RenderStatus>,
    now: &Time,
) {
    let (is_degraded, reason, message) = match render {
        None | Some(RenderStatus::Waiting) => return,
        Some(RenderStatus::Rendered) => (false, "", ""),
        Some(RenderStatus::NoSources(message)) => (false, "NothingToRender", message.as_str()),
        Some(RenderStatus::Failed(message)) => (true, "", message.as_str()),
        Some(RenderStatus::WriteFailed(message)) => (true, WRITE_FAILED, message.as_str()),
    };
    set_condition(conditions, condition::RENDER_DEGRADED, is_degraded, reason, message, now);
}

/// Sets `RolloutBlocked`: what MCO would only log. Its reason says what blocks if that is one thing.
fn set_blocked_condition(
    conditions: &mut Vec<Condition>,
    inputs: &PoolStatusInputs<'_>,
    now: &Time,
) {
    const MANY: &str = "Blocked";
    let blocks = inputs.rollout_blocks;
    let reason = match blocks.first() {
        Some(first) if inputs.rollout_problems.is_empty() => {
            let is_one = blocks.iter().all(|block| block.reason == first.reason);
            if is_one { first.reason } else { MANY }
        }
        _ => MANY,
    };
    let problems = inputs.rollout_problems.iter();
    let messages: Vec<String> =
        problems.chain(blocks.iter().map(|block| &block.message)).cloned().collect();
    set_sparse_condition(conditions, condition::ROLLOUT_BLOCKED, reason, &messages, now);
}

/// Sets the conditions about generated MachineConfigs. Invalid sources come before failed writes: a person can correct them.
fn set_generated_conditions(conditions: &mut Vec<Condition>, notes: &PoolNotes, now: &Time) {
    let (reason, messages) = if notes.problems.is_empty() {
        (WRITE_FAILED, &notes.write_failures)
    } else {
        ("InvalidSource", &notes.problems)
    };
    set_sparse_condition(conditions, condition::GENERATE_DEGRADED, reason, messages, now);
    let overridden = condition::GENERATED_OVERRIDDEN;
    set_sparse_condition(conditions, overridden, "SameFile", &notes.overridden, now);
}

/// Sets a condition that exists only on pools that ever needed it.
fn set_sparse_condition(
    conditions: &mut Vec<Condition>,
    type_: &str,
    reason: &str,
    messages: &[String],
    now: &Time,
) {
    if !messages.is_empty() {
        set_condition(conditions, type_, true, reason, &messages.join("; "), now);
    } else if find_condition(conditions, type_).is_some() {
        set_condition(conditions, type_, false, "", "", now);
    }
}

/// Why the whole pool stands still, if a person has to act.
#[must_use]
pub fn halted_message(halted: &RolloutHalted) -> Option<String> {
    match halted {
        RolloutHalted::BadConfig { config, failed } => Some(format!(
            "{config} is remembered as bad ({}); take it out of the annotation {} to try it again",
            if failed.is_empty() {
                "no machine fails on it now".to_owned()
            } else {
                format!("failed on {}", failed.join(", "))
            },
            machinist::BAD_CONFIGS,
        )),
        _ => None,
    }
}

/// Whether a pool reports that all its machines are up to date.
#[must_use]
pub fn is_updated(pool: &MachineConfigPool) -> bool {
    let conditions = pool.status.as_ref().and_then(|status| status.conditions.as_deref());
    let updated = find_condition(conditions.unwrap_or_default(), condition::UPDATED);
    updated.is_some_and(Condition::is_true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn now() -> Time {
        Time("2026-01-01T00:00:00Z".parse().unwrap())
    }

    fn pool(config: Option<&str>, conditions: &serde_json::Value) -> MachineConfigPool {
        serde_json::from_value(json!({
            "metadata": {"name": "worker", "generation": 3},
            "spec": {"configuration": config.map(|name| json!({"name": name}))},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    /// `status reason: message` of a condition, or nothing where it is missing.
    fn shown(
        pool: &MachineConfigPool,
        render: Option<&RenderStatus>,
        problems: &[String],
        notes: &PoolNotes,
        type_: &str,
    ) -> String {
        let inputs = PoolStatusInputs {
            pool,
            layering: &PoolLayering::default(),
            members: &[],
            machine_config_nodes: &[],
            controller_config: None,
            streams: None,
            render,
            rollout_problems: problems,
            rollout_blocks: &[],
            notes,
        };
        let status = reported_pool_status(&inputs, |_| None, &now());
        assert_eq!(status.observed_generation, Some(3));
        let conditions = status.conditions.unwrap_or_default();
        let Some(found) = find_condition(&conditions, type_) else { return String::new() };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        format!("{} {}: {}", found.status, text(&found.reason), text(&found.message))
    }

    #[test]
    fn render_degraded_follows_the_last_attempt() {
        let degraded = json!([{"type": "RenderDegraded", "status": "True", "message": "old"}]);
        let notes = PoolNotes::default();
        for (before, render, expected) in [
            (json!([]), None, ""),
            (degraded.clone(), None, "True : old"),
            (degraded.clone(), Some(RenderStatus::Waiting), "True : old"),
            (degraded, Some(RenderStatus::Rendered), "False : "),
            (
                json!([]),
                Some(RenderStatus::NoSources("none".into())),
                "False NothingToRender: none",
            ),
            (json!([]), Some(RenderStatus::Failed("bad".into())), "True : bad"),
            (json!([]), Some(RenderStatus::WriteFailed("no".into())), "True WriteFailed: no"),
        ] {
            for config in [None, Some("rendered-worker-1")] {
                let pool = pool(config, &before);
                let found = shown(&pool, render.as_ref(), &[], &notes, "RenderDegraded");
                assert_eq!(found, expected, "{render:?}");
            }
        }
    }

    #[test]
    fn a_pool_without_a_config_is_degraded_if_rendering_fails() {
        let notes = PoolNotes::default();
        let pool = pool(None, &json!([]));
        for (render, expected) in [
            (RenderStatus::Rendered, "False : "),
            (RenderStatus::Failed("bad".into()), "True : "),
            (RenderStatus::WriteFailed("no".into()), "True : "),
        ] {
            assert_eq!(shown(&pool, Some(&render), &[], &notes, "Degraded"), expected);
        }
    }

    #[test]
    fn sparse_conditions_appear_when_needed_and_stay_as_false() {
        let was_blocked = json!([{"type": "RolloutBlocked", "status": "True", "message": "x"}]);
        let notes = PoolNotes::default();
        let problems = ["a".to_owned(), "b".to_owned()];
        for (before, problems, expected) in [
            (json!([]), &[][..], ""),
            (json!([]), &problems[..], "True Blocked: a; b"),
            (was_blocked, &[][..], "False : "),
        ] {
            for config in [None, Some("rendered-worker-1")] {
                let pool = pool(config, &before);
                assert_eq!(shown(&pool, None, problems, &notes, "RolloutBlocked"), expected);
            }
        }
    }

    #[test]
    fn the_reason_says_what_blocks_if_it_is_one_thing() {
        let pool = pool(Some("rendered-worker-1"), &json!([]));
        let block = |reason, message: &str| RolloutBlock { reason, message: message.to_owned() };
        let (cordoned, budget) = (block("NodeCordoned", "a"), block("DisruptionBudget", "b"));
        let problem = ["p".to_owned()];
        for (problems, blocks, expected) in [
            (&[][..], vec![cordoned.clone(), cordoned.clone()], "True NodeCordoned: a; a"),
            (&[], vec![cordoned.clone(), budget.clone()], "True Blocked: a; b"),
            (&problem, vec![budget], "True Blocked: p; b"),
            (&[], vec![], ""),
        ] {
            let inputs = PoolStatusInputs {
                pool: &pool,
                layering: &PoolLayering::default(),
                members: &[],
                machine_config_nodes: &[],
                controller_config: None,
                streams: None,
                render: None,
                rollout_problems: problems,
                rollout_blocks: &blocks,
                notes: &PoolNotes::default(),
            };
            let conditions = reported_pool_status(&inputs, |_| None, &now()).conditions;
            let conditions = conditions.unwrap_or_default();
            let found = find_condition(&conditions, "RolloutBlocked").map(|found| {
                let text = |text: &Option<String>| text.clone().unwrap_or_default();
                format!("{} {}: {}", found.status, text(&found.reason), text(&found.message))
            });
            assert_eq!(found.unwrap_or_default(), expected);
        }
    }

    #[test]
    fn invalid_sources_come_before_failed_writes() {
        let pool = pool(Some("rendered-worker-1"), &json!([]));
        let notes = |problems: &[&str], write_failures: &[&str]| PoolNotes {
            problems: problems.iter().map(ToString::to_string).collect(),
            write_failures: write_failures.iter().map(ToString::to_string).collect(),
            overridden: vec!["/etc/a".to_owned()],
        };
        for (notes, expected) in [
            (notes(&[], &[]), ""),
            (notes(&["bad"], &[]), "True InvalidSource: bad"),
            (notes(&[], &["no"]), "True WriteFailed: no"),
            (notes(&["bad"], &["no"]), "True InvalidSource: bad"),
        ] {
            assert_eq!(shown(&pool, None, &[], &notes, "GenerateDegraded"), expected);
            let overridden = shown(&pool, None, &[], &notes, "GeneratedOverridden");
            assert_eq!(overridden, "True SameFile: /etc/a");
        }
    }

    #[test]
    fn only_a_bad_config_needs_a_person() {
        let bad = |failed: &[&str]| RolloutHalted::BadConfig {
            config: "rendered-worker-2".to_owned(),
            failed: failed.iter().map(ToString::to_string).collect(),
        };
        let message = halted_message(&bad(&["a", "b"])).unwrap();
        assert!(message.starts_with("rendered-worker-2 is remembered as bad (failed on a, b);"));
        assert!(halted_message(&bad(&[])).unwrap().contains("no machine fails on it now"));
    }

    #[test]
    fn a_pool_is_updated_when_it_says_so() {
        let with = |status: &str| pool(None, &json!([{"type": "Updated", "status": status}]));
        assert!(is_updated(&with("True")));
        assert!(!is_updated(&with("False")));
        assert!(!is_updated(&pool(None, &json!([]))));
    }
}
