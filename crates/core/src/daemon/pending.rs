//! The record of a change that is not complete: what is left to do once the files are written, and how
//! to return. It is on disk before the change begins, so that a daemon that is killed in between knows
//! what is missing.

use serde::{Deserialize, Serialize};

use crate::api::MachineConfig;
use crate::api::operator::{DisruptionAction, DisruptionActionType};
use crate::disruption::simplify_actions;
use crate::os;
use crate::versioned::{self, VersionedFileError};

/// The file, readable only by root: the previous config may contain secrets.
pub const PENDING_PATH: &str = "/etc/machine-config-daemon/machinist-pending.json";

/// The version of the file that this version writes.
const VERSION: u32 = 1;

/// The OS part of a change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PendingOsChange {
    /// What changes. Empty if something is staged that is no longer desired.
    pub change: os::OsChange,
    /// What was booted before, for a rollback.
    pub was: os::OsDeployment,
    /// Whether it is staged for the next boot.
    pub is_staged: bool,
    /// How often it was staged again because it was lost.
    pub attempts: u32,
}

/// A change that is not complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingChange {
    /// The previous config, for a rollback.
    pub previous: MachineConfig,
    /// The config that the change leads to.
    pub config: String,
    /// What has to be done before the config is in effect.
    pub actions: Vec<DisruptionAction>,
    /// How many of the actions have run. Counted only where one of them stops the daemon: the others are
    /// repeated after a restart, which is harmless.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub actions_done: usize,
    /// The boot in which the change was made. A reboot makes all actions unnecessary.
    pub boot: String,
    /// Whether the machine returns to this config because another one failed its health checks. Then
    /// the reboot needs no approval.
    #[serde(default, alias = "isWayBack", skip_serializing_if = "std::ops::Not::not")]
    pub is_rollback: bool,
    /// The request of an administrator that the reboot fulfils, as it stands in the annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_reboot: Option<String>,
    /// The OS part, until it has passed the health checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os: Option<PendingOsChange>,
    /// The change before, if it was not complete either. It counts if this one does not happen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Box<PendingChange>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl PendingChange {
    /// A new change. It takes over the remaining actions and the previous config of an earlier change
    /// that is not complete.
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
        let remaining = earlier.as_ref().map_or(&[][..], |earlier| earlier.remaining_actions(boot));
        let requested_reboot =
            earlier.as_ref().and_then(|earlier| earlier.requested_reboot.clone());
        Self {
            previous: earlier.as_ref().map_or(old, |earlier| &earlier.previous).clone(),
            config: new.metadata.name.clone().unwrap_or_default(),
            actions: simplify_actions(remaining.iter().cloned().chain(actions).collect()),
            actions_done: 0,
            boot: boot.to_owned(),
            is_rollback: false,
            requested_reboot,
            os: None,
            earlier: earlier.map(Box::new),
        }
    }

    /// A reboot that an administrator has asked for. The config stays.
    #[must_use]
    pub fn reboot(config: &MachineConfig, request: &str, boot: &str) -> Self {
        let type_ = DisruptionActionType::Reboot;
        let actions = vec![DisruptionAction { type_, ..DisruptionAction::default() }];
        let requested_reboot = Some(request.to_owned());
        Self { requested_reboot, ..Self::new(config, config, actions, boot, None) }
    }

    /// A change whose record is lost. Nobody knows which of its actions are left, and a reboot does for all of them.
    #[must_use]
    pub fn with_lost_record(config: &MachineConfig, boot: &str) -> Self {
        Self { requested_reboot: None, ..Self::reboot(config, "", boot) }
    }

    /// Whether the config stays, so that there is nothing to return to.
    #[must_use]
    pub fn keeps_config(&self) -> bool {
        self.previous.metadata.name.as_deref() == Some(self.config.as_str())
    }

    /// The rollback of this change, with the same actions. If the rollback does not happen, this change
    /// is pending again.
    #[must_use]
    pub fn rollback(mut self, boot: &str) -> Self {
        self.earlier = None;
        Self {
            previous: self.previous.clone(),
            config: self.previous.metadata.name.clone().unwrap_or_default(),
            actions: self.actions.clone(),
            actions_done: 0,
            boot: boot.to_owned(),
            is_rollback: true,
            requested_reboot: self.requested_reboot.clone(),
            os: None,
            earlier: Some(Box::new(self)),
        }
    }

    /// The same change again, because its staged OS was lost.
    #[must_use]
    pub fn retry(mut self, boot: &str) -> Self {
        let type_ = DisruptionActionType::Reboot;
        self.actions = vec![DisruptionAction { type_, ..DisruptionAction::default() }];
        self.actions_done = 0;
        boot.clone_into(&mut self.boot);
        if let Some(os) = &mut self.os {
            os.is_staged = false;
            os.attempts += 1;
        }
        self
    }

    /// What is pending if this change did not happen: the one before, if it matches the disk.
    #[must_use]
    pub fn fallback(self, disk: &str) -> Option<Self> {
        self.earlier.map(|earlier| *earlier).filter(|earlier| earlier.config == disk)
    }

    /// The actions that are left to do in this boot.
    #[must_use]
    pub fn remaining_actions(&self, boot: &str) -> &[DisruptionAction] {
        if self.boot == boot {
            self.actions.get(self.actions_done..).unwrap_or_default()
        } else {
            &[]
        }
    }

    /// Whether the machine has to reboot and has not.
    #[must_use]
    pub fn needs_reboot(&self, boot: &str) -> bool {
        super::actions::needs_reboot(self.remaining_actions(boot))
    }

    /// The contents of the file.
    ///
    /// # Errors
    /// The change cannot be written as JSON.
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        versioned::to_json(VERSION, self)
    }

    /// Reads the contents of the file.
    ///
    /// # Errors
    /// The file is damaged, or a newer Machinist wrote it.
    pub fn from_json(bytes: &[u8]) -> Result<Self, VersionedFileError> {
        versioned::from_json(PENDING_PATH, VERSION, bytes)
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
    fn actions_of_an_earlier_change_are_taken_over() {
        use DisruptionActionType::{DaemonReload, None as Nothing, Reboot};
        let [a, b, c] = ["a", "b", "c"].map(config);
        let first = PendingChange::new(&a, &b, actions(&[Reboot]), "now", None);
        assert!(first.needs_reboot("now") && !first.needs_reboot("later"));
        let second = PendingChange::new(&b, &c, actions(&[Nothing]), "now", Some(first.clone()));
        assert!(second.needs_reboot("now"));
        assert_eq!(second.previous, a);
        assert_eq!(second.clone().fallback("b"), Some(first.clone()));
        assert_eq!(second.clone().fallback("x"), None);
        // A reboot in between has done what the first change asked for.
        let second = PendingChange::new(&b, &c, actions(&[DaemonReload]), "later", Some(first));
        assert_eq!(second.remaining_actions("later"), actions(&[DaemonReload]));
        let third = PendingChange::new(&c, &a, actions(&[Nothing]), "later", Some(second));
        assert_eq!(third.remaining_actions("later"), actions(&[DaemonReload]));
        assert_eq!(third.earlier.unwrap().earlier, None);
    }

    #[test]
    fn a_change_whose_record_is_lost_reboots_and_is_nobodys_request() {
        let pending = PendingChange::with_lost_record(&config("a"), "now");
        assert!(pending.needs_reboot("now") && !pending.needs_reboot("later"));
        assert!(pending.keeps_config() && pending.requested_reboot.is_none());
    }

    #[test]
    fn actions_that_stopped_the_daemon_are_not_repeated_except_by_a_rollback() {
        use DisruptionActionType::{DaemonReload, Restart};
        let [a, b] = ["a", "b"].map(config);
        let all = actions(&[Restart, DaemonReload]);
        let mut change = PendingChange::new(&a, &b, all.clone(), "now", None);
        change.actions_done = 1;
        let read = PendingChange::from_json(&change.to_json().unwrap()).unwrap();
        assert_eq!(read.remaining_actions("now"), actions(&[DaemonReload]));
        change.actions_done = 9;
        assert!(change.remaining_actions("now").is_empty());
        assert_eq!(change.rollback("now").remaining_actions("now"), all);
    }

    #[test]
    fn a_rollback_that_was_lost_is_retried() {
        use DisruptionActionType::Reboot;
        let [a, b] = ["a", "b"].map(config);
        let there = PendingChange::new(&a, &b, actions(&[Reboot]), "now", None);
        let back = there.clone().rollback("later");
        assert!(back.is_rollback && back.needs_reboot("later"));
        assert_eq!((back.config.as_str(), &back.previous), ("a", &a));
        assert_eq!(back.fallback("b"), Some(there));
    }

    #[test]
    fn a_lost_os_is_staged_again() {
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

    #[test]
    fn a_file_of_the_first_release_is_read() {
        let config = json!({"metadata": {"name": "a"}, "spec": {}});
        let old = json!({
            "previous": config, "config": "a", "actions": [{"type": "Reboot"}], "boot": "now",
            "isWayBack": true, // words: keep
            "earlier": {
                "previous": config, "config": "b", "actions": [], "boot": "before",
                "os": {"change": {"image": "i"}, "was": {}, "isStaged": true, "attempts": 1},
            },
        });
        let read = PendingChange::from_json(old.to_string().as_bytes()).unwrap();
        assert!(read.is_rollback && read.needs_reboot("now"));
        assert!(read.earlier.as_ref().unwrap().os.as_ref().unwrap().is_staged);
        let written = read.to_json().unwrap();
        let text = String::from_utf8(written.clone()).unwrap();
        assert!(
            text.starts_with("{\"version\":1,") && text.contains("\"isRollback\":true"),
            "{text}"
        );
        assert_eq!(PendingChange::from_json(&written), Ok(read));
        let newer = PendingChange::from_json(br#"{"version": 2}"#).unwrap_err();
        assert!(newer.to_string().starts_with(PENDING_PATH), "{newer}");
    }
}
