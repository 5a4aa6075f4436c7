//! Which rule decides what the change of a file or unit costs. The first of these that covers it, and within one of
//! them the closest path:
//!
//! 1. the administrator's `nodeDisruptionPolicy` in the MachineConfiguration,
//! 2. `machinist.dev/on-change` of the MachineConfig that the file or unit comes from,
//! 3. `machinist.dev/on-change` of the pool,
//! 4. the default policies, which are MCO's,
//! 5. the defaults of plain hosts.
//!
//! What none of them covers costs a reboot.

use std::fmt;

use serde::{Serialize, Serializer};

use super::plain_defaults::PlainHost;
use super::{closest_policy, system_policy};
use crate::api::MachineConfig;
use crate::api::operator::{DisruptionAction, DisruptionActionType as Type, NodeDisruptionPolicy};
use crate::ignition::schema::Config;
use crate::on_change::OnChangeRules;
use crate::os::abilities::HostAbilities;
use crate::reconcile_check::ConfigChange;

/// Everything that decides about a change.
#[derive(Debug, Clone, PartialEq)]
pub struct DisruptionRules {
    /// The administrator's policy, merged over the default policies.
    policy: NodeDisruptionPolicy,
    defaults: NodeDisruptionPolicy,
    /// The rules of the new config.
    new: OnChangeRules,
    /// Those of the old one, for what the new one no longer has.
    old: OnChangeRules,
    host: Option<PlainHost>,
}

/// The rule that decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecidingRule {
    /// The administrator's policy for a path or unit.
    Policy(String),
    /// The annotation of a MachineConfig.
    MachineConfig(String),
    /// The annotation of a pool, for a path or unit.
    Pool(String, Option<String>),
    /// A default policy of MCO.
    Default(String),
    /// A default for plain hosts.
    PlainDefault(String),
    /// None.
    None,
}

impl fmt::Display for DecidingRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(subject) => {
                write!(f, "nodeDisruptionPolicy of MachineConfiguration cluster for {subject}")
            }
            Self::MachineConfig(name) => write!(f, "on-change of MachineConfig {name}"),
            Self::Pool(pool, None) => write!(f, "on-change of pool {pool}"),
            Self::Pool(pool, Some(subject)) => write!(f, "on-change of pool {pool} for {subject}"),
            Self::Default(subject) => write!(f, "default for {subject}"),
            Self::PlainDefault(subject) => write!(f, "default of plain hosts for {subject}"),
            Self::None => f.write_str("no rule covers it"),
        }
    }
}

impl Serialize for DecidingRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What decided about a file or unit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DecidedChange {
    /// The file or unit.
    pub name: String,
    /// The rule.
    pub rule: DecidingRule,
    /// Its actions.
    pub actions: Vec<DisruptionAction>,
}

impl DisruptionRules {
    /// Only a policy that already includes the default policies.
    #[must_use]
    pub fn of_policy(policy: &NodeDisruptionPolicy) -> Self {
        let (old, new) = (OnChangeRules::default(), OnChangeRules::default());
        let policy = policy.clone();
        Self { policy, defaults: system_policy(), new, old, host: None }
    }

    /// The policy, the rules of both rendered configs, and the defaults for a host.
    #[must_use]
    pub fn new(
        policy: &NodeDisruptionPolicy,
        old: &MachineConfig,
        new: &MachineConfig,
        host: Option<&HostAbilities>,
    ) -> Self {
        Self {
            new: OnChangeRules::from_rendered(new),
            old: OnChangeRules::from_rendered(old),
            host: host.and_then(PlainHost::from_abilities),
            ..Self::of_policy(policy)
        }
    }

    /// The administrator's policy for SSH keys, or the default one.
    pub(super) fn ssh_key_actions(&self) -> impl Iterator<Item = DisruptionAction> {
        self.policy.sshkey.iter().flat_map(|policy| of_policy(&policy.actions))
    }

    /// Decides about a file.
    pub(super) fn decide_file(&self, path: &str, change: &ConfigChange) -> DecidedChange {
        let policies = self.policy.files.as_deref().unwrap_or_default();
        let found = closest_policy(path, policies);
        let is_default =
            found.is_some_and(|it| self.defaults.files.iter().flatten().any(|own| own == it));
        let found = found.map(|it| (it.path.clone(), it.actions.as_slice()));
        let is_there = |config: &Config| config.storage.files.iter().any(|file| file.path == path);
        let plain = || self.host.as_ref().and_then(|host| host.file(path));
        self.decide(path, found, is_default, is_there(&change.new), plain)
    }

    /// Decides about a unit.
    pub(super) fn decide_unit(&self, name: &str, change: &ConfigChange) -> DecidedChange {
        let found = self.policy.units.iter().flatten().find(|policy| policy.name == name);
        let is_default =
            found.is_some_and(|it| self.defaults.units.iter().flatten().any(|own| own == it));
        let found = found.map(|it| (it.name.clone(), it.actions.as_slice()));
        let is_there = change.new.systemd.units.iter().any(|unit| unit.name == name);
        let plain = || self.host.as_ref().and_then(|_| PlainHost::unit(name, change));
        self.decide(name, found, is_default, is_there, plain)
    }

    fn decide(
        &self,
        name: &str,
        policy: Option<(String, &[DisruptionAction])>,
        is_default: bool,
        is_in_new: bool,
        plain: impl FnOnce() -> Option<(String, Vec<DisruptionAction>)>,
    ) -> DecidedChange {
        let decided = |rule, actions| DecidedChange { name: name.to_owned(), rule, actions };
        let policy = policy.map(|(subject, actions)| (subject, of_policy(actions).collect()));
        if let Some((subject, actions)) = policy.clone().filter(|_| !is_default) {
            return decided(DecidingRule::Policy(subject), actions);
        }
        let rules = if is_in_new { &self.new } else { &self.old };
        if let Some(own) = rules.own(name) {
            return decided(
                DecidingRule::MachineConfig(own.machine_config.clone()),
                own.actions.clone(),
            );
        }
        // The pool's rules of now count for what is removed, too.
        if let Some(rule) = self.new.closest(name) {
            let pool = DecidingRule::Pool(self.new.pool.clone(), rule.subject.clone());
            return decided(pool, rule.actions.clone());
        }
        if let Some((subject, actions)) = policy {
            return decided(DecidingRule::Default(subject), actions);
        }
        match plain() {
            Some((subject, actions)) => decided(DecidingRule::PlainDefault(subject), actions),
            None => {
                let reboot = DisruptionAction { type_: Type::Reboot, ..Default::default() };
                decided(DecidingRule::None, vec![reboot])
            }
        }
    }
}

/// The actions of a policy. MCO's policies run no commands, so one there is not known.
fn of_policy(actions: &[DisruptionAction]) -> impl Iterator<Item = DisruptionAction> {
    actions.iter().cloned().map(|action| match action.type_ {
        Type::Run => {
            DisruptionAction { type_: Type::Unknown("Run".to_owned()), run: Vec::new(), ..action }
        }
        _ => DisruptionAction { if_present: false, ..action },
    })
}

#[cfg(test)]
mod tests;
