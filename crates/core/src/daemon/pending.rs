//! What a change leaves to be done once the files are in place. It is on the disk before the change
//! begins, so that a daemon that dies in between knows what is missing.

use serde::{Deserialize, Serialize};

use crate::api::MachineConfig;
use crate::api::operator::{DisruptionAction, DisruptionActionType};
use crate::disruption::simplify_actions;
use crate::os;

/// Where it is written down, for root alone: the way back may hold secrets.
pub const PENDING_PATH: &str = "/etc/machine-config-daemon/machinist-pending.json";

/// The part of a change that is about the operating system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PendingOsChange {
    /// What changes. Nothing, where something is staged that is not wanted any more.
    pub change: os::OsChange,
    /// What was booted before: the way back.
    pub was: os::OsDeployment,
    /// Whether it is made for the next boot.
    pub is_staged: bool,
    /// How often it has been made again because it got lost.
    pub attempts: u32,
}

/// A change whose end has not been reported yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingChange {
    /// The config that the machine had: the way back.
    pub previous: MachineConfig,
    /// The config that it is to have.
    pub config: String,
    /// What has to be done before the config is in force.
    pub actions: Vec<DisruptionAction>,
    /// The boot in which this was written: a restart makes all actions needless.
    pub boot: String,
    /// Whether the machine goes back because it was not well: then nobody has to allow a restart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_way_back: bool,
    /// What is to happen to the operating system, or has happened and not proved itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os: Option<PendingOsChange>,
    /// The change before, which was not complete either: it counts if this one does not happen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Box<PendingChange>>,
}

impl PendingChange {
    /// A new change. What an earlier one has left to be done is left to this one, and the way back
    /// is that of the earlier one.
    #[must_use]
    pub fn new(
        old: &MachineConfig,
        new: &MachineConfig,
        actions: Vec<DisruptionAction>,
        boot: &str,
        earlier: Option<Self>,
    ) -> Self {
        let mut earlier = earlier;
        if let Some(earlier) = &mut earlier {
            earlier.earlier = None;
        }
        let left = earlier.as_ref().map_or(&[][..], |earlier| earlier.remaining_actions(boot));
        Self {
            previous: earlier.as_ref().map_or(old, |earlier| &earlier.previous).clone(),
            config: new.metadata.name.clone().unwrap_or_default(),
            actions: simplify_actions(left.iter().cloned().chain(actions).collect()),
            boot: boot.to_owned(),
            is_way_back: false,
            os: None,
            earlier: earlier.map(Box::new),
        }
    }

    /// The way back from a config on which the machine was not well: what had to be done on the way
    /// there has to be done again. If it does not happen, this change is not complete yet, and is
    /// looked at again.
    #[must_use]
    pub fn rollback(mut self, boot: &str) -> Self {
        self.earlier = None;
        Self {
            previous: self.previous.clone(),
            config: self.previous.metadata.name.clone().unwrap_or_default(),
            actions: self.actions.clone(),
            boot: boot.to_owned(),
            is_way_back: true,
            os: None,
            earlier: Some(Box::new(self)),
        }
    }

    /// The same change once more, because its operating system was not put in place.
    #[must_use]
    pub fn retry(mut self, boot: &str) -> Self {
        let type_ = DisruptionActionType::Reboot;
        self.actions = vec![DisruptionAction { type_, ..DisruptionAction::default() }];
        boot.clone_into(&mut self.boot);
        if let Some(os) = &mut self.os {
            os.is_staged = false;
            os.attempts += 1;
        }
        self
    }

    /// What remains when this change did not happen: the one before, if the disk is as it left it.
    #[must_use]
    pub fn fallback(self, disk: &str) -> Option<Self> {
        self.earlier.map(|earlier| *earlier).filter(|earlier| earlier.config == disk)
    }

    /// What is left to do in this boot.
    #[must_use]
    pub fn remaining_actions(&self, boot: &str) -> &[DisruptionAction] {
        if self.boot == boot { &self.actions } else { &[] }
    }

    /// Whether the machine has to restart, and has not.
    #[must_use]
    pub fn needs_reboot(&self, boot: &str) -> bool {
        let restarts = |action: &DisruptionAction| action.type_ == DisruptionActionType::Reboot;
        self.remaining_actions(boot).iter().any(restarts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::from_ignition;
    use serde_json::json;

    fn config(name: &str) -> MachineConfig {
        let mut config = from_ignition(json!({}));
        config.metadata.name = Some(name.to_owned());
        config
    }

    fn actions(types: &[DisruptionActionType]) -> Vec<DisruptionAction> {
        let action = |type_: &DisruptionActionType| DisruptionAction {
            type_: type_.clone(),
            ..DisruptionAction::default()
        };
        types.iter().map(action).collect()
    }

    #[test]
    fn what_an_earlier_change_left_is_not_forgotten() {
        use DisruptionActionType::{DaemonReload, None as Nothing, Reboot};
        let [a, b, c] = ["a", "b", "c"].map(config);
        let first = PendingChange::new(&a, &b, actions(&[Reboot]), "now", None);
        assert!(first.needs_reboot("now") && !first.needs_reboot("later"));
        let second = PendingChange::new(&b, &c, actions(&[Nothing]), "now", Some(first.clone()));
        assert!(second.needs_reboot("now"));
        assert_eq!(second.previous, a);
        assert_eq!(second.clone().fallback("b"), Some(first.clone()));
        assert_eq!(second.clone().fallback("x"), None);
        // A restart in between has done what the first one asked for.
        let second = PendingChange::new(&b, &c, actions(&[DaemonReload]), "later", Some(first));
        assert_eq!(second.remaining_actions("later"), actions(&[DaemonReload]));
        let third = PendingChange::new(&c, &a, actions(&[Nothing]), "later", Some(second));
        assert_eq!(third.remaining_actions("later"), actions(&[DaemonReload]));
        assert_eq!(third.earlier.unwrap().earlier, None);
    }

    #[test]
    fn a_rollback_that_was_lost_is_retried() {
        use DisruptionActionType::Reboot;
        let [a, b] = ["a", "b"].map(config);
        let there = PendingChange::new(&a, &b, actions(&[Reboot]), "now", None);
        let back = there.clone().rollback("later");
        assert!(back.is_way_back && back.needs_reboot("later"));
        assert_eq!((back.config.as_str(), &back.previous), ("a", &a));
        assert_eq!(back.fallback("b"), Some(there));
    }

    #[test]
    fn an_operating_system_that_got_lost_is_made_once_more() {
        use DisruptionActionType::Reboot;
        let [a, b] = ["a", "b"].map(config);
        let mut there = PendingChange::new(&a, &b, actions(&[Reboot]), "now", None);
        there.os = Some(PendingOsChange { is_staged: true, ..PendingOsChange::default() });
        assert!(there.remaining_actions("later").is_empty());
        let again = there.retry("later");
        assert!(again.needs_reboot("later"));
        let step = again.os.unwrap();
        assert_eq!((step.is_staged, step.attempts), (false, 1));
    }
}
