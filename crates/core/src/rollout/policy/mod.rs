//! The rollout policy of a pool, from its annotations: canaries, maintenance windows, deferred
//! reboots, a failure limit (see `docs/rollout.md`). Without annotations a rollout works as in MCO.

mod canary;
mod decide;
mod failures;
#[cfg(test)]
mod request_scenarios;
#[cfg(test)]
mod scenarios;
mod window;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::api::MachineConfigPool;
use crate::api::names::annotation::machinist;
use crate::drain::DrainFlags;
use crate::node::MachineMode;

pub use decide::{RolloutDecision, RolloutHalted, decide_layered_rollout, decide_rollout};
pub use window::MaintenanceWindows;

/// When a machine reboots if a change needs it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RebootPolicy {
    /// As soon as the change is applied.
    #[default]
    Immediate,
    /// In the maintenance window, or when an administrator approves it.
    Deferred,
}

/// How a pool is rolled out. The default is MCO's behaviour.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RolloutPolicy {
    /// How many machines get a config first.
    pub canary: usize,
    /// How long they have to stay healthy before the others follow.
    pub soak: Duration,
    /// When machines may be changed. Without windows, always.
    pub windows: Option<MaintenanceWindows>,
    /// When a machine reboots.
    pub reboot: RebootPolicy,
    /// How many machines may fail on a config before its rollout stops.
    pub max_failures: Option<usize>,
    /// Whether machines that do not say otherwise are changed.
    pub mode: MachineMode,
    /// Configs that no machine gets.
    pub bad_configs: BTreeSet<String>,
    /// Which pods a drain may evict.
    pub drain: DrainFlags,
    /// Whether the system is about to be removed: no machine gets a config, whatever its mode, and drains are withdrawn.
    pub is_release: bool,
    /// The machines that would refuse the pool's config, and why. Not from annotations: the caller compares their
    /// hosts with the config.
    pub refused: BTreeMap<String, String>,
}

/// An annotation of a pool is invalid. The pool is not rolled out until it is corrected: a guess
/// could reboot machines at noon.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("MachineConfigPool {pool}: annotation {annotation}: {value:?}: {problem} ({remedy})")]
pub struct RolloutPolicyError {
    /// The pool.
    pub pool: String,
    /// The annotation.
    pub annotation: &'static str,
    /// Its value.
    pub value: String,
    /// What is wrong with it.
    pub problem: String,
    /// What to write instead.
    pub remedy: &'static str,
}

impl RolloutPolicy {
    /// Parses the annotations of a pool.
    pub fn from_annotations(pool: &MachineConfigPool) -> Result<Self, RolloutPolicyError> {
        let annotations = PoolAnnotations(pool);
        let count = "write a whole number such as 1, or remove the annotation";
        let number = |text: &str| {
            text.parse::<usize>().map_err(|_| "not a whole number of machines".to_owned())
        };
        let reboot = |text: &str| match text {
            "immediate" => Ok(RebootPolicy::Immediate),
            "deferred" => Ok(RebootPolicy::Deferred),
            _ => Err("not a time to restart".to_owned()),
        };
        Ok(Self {
            canary: annotations.parse(machinist::CANARY, count, number)?.unwrap_or_default(),
            soak: annotations
                .parse(
                    machinist::CANARY_SOAK,
                    "write a duration such as 30m, 2h or 1h30m, or remove the annotation",
                    crate::duration::parse_duration,
                )?
                .unwrap_or_default(),
            windows: annotations.parse(
                machinist::MAINTENANCE_WINDOW,
                "write days, hours and time zone, such as \"Sat,Sun 02:00-05:00 Europe/Berlin\"; days may be left out, several windows are separated by \";\"",
                MaintenanceWindows::parse,
            )?,
            reboot: annotations
                .parse(
                    machinist::REBOOT,
                    "write immediate or deferred, or remove the annotation",
                    reboot,
                )?
                .unwrap_or_default(),
            max_failures: annotations.parse(machinist::MAX_FAILURES, count, number)?,
            mode: annotations
                .parse(machinist::MODE, "write observe or enforce, or remove the annotation", |text| {
                    text.parse().map_err(|_| "not a mode".to_owned())
                })?
                .unwrap_or_default(),
            bad_configs: failures::bad_configs(pool),
            drain: annotations
                .parse(
                    machinist::DRAIN_FLAGS,
                    "write --force, --delete-emptydir-data or both, nothing for neither, or remove the annotation",
                    |text| DrainFlags::parse(text).map_err(|error| error.to_string()),
                )?
                .unwrap_or_default(),
            is_release: false,
            refused: BTreeMap::new(),
        })
    }

    /// The annotations that the controller writes to a machine together with a new config. The approval
    /// of a reboot for another config is removed, so that it does not apply if that config returns.
    #[must_use]
    pub fn node_annotations(&self) -> BTreeMap<String, Option<String>> {
        let reboot = match self.reboot {
            RebootPolicy::Immediate => None,
            RebootPolicy::Deferred => Some("deferred".to_owned()),
        };
        [(machinist::REBOOT.to_owned(), reboot), (machinist::REBOOT_APPROVED.to_owned(), None)]
            .into()
    }
}

struct PoolAnnotations<'a>(&'a MachineConfigPool);

impl PoolAnnotations<'_> {
    fn parse<T>(
        &self,
        annotation: &'static str,
        remedy: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, RolloutPolicyError> {
        let Some(value) = annotation_of(self.0, annotation) else { return Ok(None) };
        match parse(value.trim()) {
            Ok(parsed) => Ok(Some(parsed)),
            Err(problem) => Err(RolloutPolicyError {
                pool: self.0.metadata.name.clone().unwrap_or_default(),
                annotation,
                value: value.to_owned(),
                problem,
                remedy,
            }),
        }
    }
}

fn annotation_of<'a>(pool: &'a MachineConfigPool, key: &str) -> Option<&'a str> {
    pool.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pool(annotations: &Value) -> MachineConfigPool {
        serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": "infra", "annotations": annotations}, "spec": {}
        }))
        .unwrap()
    }

    #[test]
    fn the_default_policy_has_no_restrictions() {
        assert_eq!(
            RolloutPolicy::from_annotations(&pool(&json!({}))),
            Ok(RolloutPolicy::default())
        );
        assert_eq!(
            RolloutPolicy::from_annotations(&pool(&json!({"other.example/canary": "x"}))),
            Ok(RolloutPolicy::default())
        );
        let written = RolloutPolicy::default().node_annotations();
        assert!(written.values().all(Option::is_none), "{written:?}");
    }

    #[test]
    fn every_annotation_is_parsed() {
        let policy = RolloutPolicy::from_annotations(&pool(&json!({
            machinist::CANARY: "2", machinist::CANARY_SOAK: "1h30m", machinist::REBOOT: "deferred",
            machinist::MAX_FAILURES: " 0 ", machinist::BAD_CONFIGS: "b, a,,",
            machinist::MAINTENANCE_WINDOW: "02:00-05:00 UTC"
        })))
        .unwrap();
        assert_eq!((policy.canary, policy.soak), (2, Duration::from_secs(5400)));
        assert_eq!((policy.reboot, policy.max_failures), (RebootPolicy::Deferred, Some(0)));
        assert!(policy.windows.is_some());
        assert_eq!(policy.bad_configs, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
        let written = policy.node_annotations();
        assert_eq!(written[machinist::REBOOT].as_deref(), Some("deferred"));
        assert_eq!(written[machinist::REBOOT_APPROVED], None);
    }

    #[test]
    fn errors_name_pool_annotation_value_and_remedy() {
        for (annotation, value) in [
            (machinist::CANARY, "-1"),
            (machinist::CANARY, "10%"),
            (machinist::CANARY, ""),
            (machinist::CANARY_SOAK, "30"),
            (machinist::MAINTENANCE_WINDOW, "night"),
            (machinist::REBOOT, "later"),
            (machinist::REBOOT, "Deferred"),
            (machinist::MAX_FAILURES, "1.5"),
            (machinist::MODE, "Observe"),
        ] {
            let error =
                RolloutPolicy::from_annotations(&pool(&json!({annotation: value}))).unwrap_err();
            let text = error.to_string();
            let start = format!("MachineConfigPool infra: annotation {annotation}: {value:?}: ");
            assert!(text.starts_with(&start), "{text}");
            assert!(text.contains("(write "), "{text}");
        }
    }
}
