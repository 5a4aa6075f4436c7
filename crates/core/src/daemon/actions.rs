//! What the actions after a change want, and how they are called.

use crate::api::operator::{DisruptionAction, DisruptionActionType as Type};
use crate::disruption::unsafe_because;
use crate::reconcile_check::Change;

/// Whether a machine has to be emptied before a change. For the image registries it depends on what
/// changes there.
#[must_use]
pub fn wants_drain(actions: &[DisruptionAction], change: &Change) -> bool {
    let has = |type_: &Type| actions.iter().any(|action| action.type_ == *type_);
    has(&Type::Reboot)
        || has(&Type::Drain)
        || has(&Type::Special) && unsafe_because(change).is_some()
}

/// Whether a machine has to restart after a change.
#[must_use]
pub fn wants_restart(actions: &[DisruptionAction]) -> bool {
    actions.iter().any(|action| action.type_ == Type::Reboot)
}

/// What one action does to systemd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doing {
    /// Nothing to be done any more.
    Nothing,
    /// Say that nothing has to be done.
    SayNothing,
    /// Restart the machine.
    Reboot,
    /// Reload a service.
    Reload(String),
    /// Restart a service.
    Restart(String),
    /// Have systemd read its units again.
    DaemonReload,
    /// This version cannot do it.
    Unknown(String),
}

/// What an action means.
#[must_use]
pub fn doing(action: &DisruptionAction) -> Doing {
    let name = |service: &Option<crate::api::operator::ServiceReference>| {
        service.as_ref().map(|service| service.service_name.clone()).unwrap_or_default()
    };
    match &action.type_ {
        Type::Reboot => Doing::Reboot,
        // It was done before the change.
        Type::Drain => Doing::Nothing,
        Type::None => Doing::SayNothing,
        Type::Reload => Doing::Reload(name(&action.reload)),
        Type::Restart => Doing::Restart(name(&action.restart)),
        Type::DaemonReload => Doing::DaemonReload,
        Type::Special => Doing::Reload("crio".to_owned()),
        Type::Unknown(word) => Doing::Unknown(word.clone()),
    }
}

/// The word for an action.
#[must_use]
pub fn word(action: &DisruptionAction) -> String {
    match &action.type_ {
        Type::Unknown(word) => word.clone(),
        known => format!("{known:?}"),
    }
}

/// All actions in one line: `Reload chronyd.service, DaemonReload`.
#[must_use]
pub fn line(actions: &[DisruptionAction]) -> String {
    let one = |action: &DisruptionAction| match doing(action) {
        Doing::Reload(name) if action.type_ == Type::Reload => format!("Reload {name}"),
        Doing::Restart(name) => format!("Restart {name}"),
        _ => word(action),
    };
    actions.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::{empty_config, from_ignition};
    use crate::disruption::REGISTRIES;
    use crate::reconcile_check::{Overrides, reconcilable};
    use serde_json::{Value, json};

    fn actions(list: &Value) -> Vec<DisruptionAction> {
        serde_json::from_value(list.clone()).unwrap()
    }

    #[test]
    fn which_actions_want_a_drain() {
        let with = from_ignition(json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [
            {"path": REGISTRIES, "contents": {"source": "data:,short-name-mode=%22x%22%0Aunqualified-search-registries=%5B'a'%5D"}}]}}));
        let added = reconcilable(&empty_config(), &with, Overrides::default()).unwrap();
        let removed = reconcilable(&with, &empty_config(), Overrides::default()).unwrap();
        for (list, change, expected) in [
            (json!([{"type": "Reboot"}]), &added, true),
            (json!([{"type": "Drain"}, {"type": "DaemonReload"}]), &added, true),
            (json!([{"type": "None"}]), &removed, false),
            (json!([{"type": "Special"}]), &added, false),
            (json!([{"type": "Special"}]), &removed, true),
        ] {
            assert_eq!(wants_drain(&actions(&list), change), expected, "{list}");
        }
    }

    #[test]
    fn words() {
        let list = actions(&json!([
            {"type": "Drain"}, {"type": "Reload", "reload": {"serviceName": "a.service"}},
            {"type": "Restart", "restart": {"serviceName": "b.service"}}, {"type": "Special"},
            {"type": "Dance"},
        ]));
        assert_eq!(line(&list), "Drain, Reload a.service, Restart b.service, Special, Dance");
        assert_eq!(doing(&list[4]), Doing::Unknown("Dance".to_owned()));
        assert_eq!(doing(&list[3]), Doing::Reload("crio".to_owned()));
        assert!(!wants_restart(&list));
    }
}
