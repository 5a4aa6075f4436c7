//! What the actions after a change require, and what they are called.

use crate::api::operator::{DisruptionAction, DisruptionActionType as Type};
use crate::disruption::{drain_reason, is_default_unit};
use crate::reconcile_check::ConfigChange;

/// Whether a machine has to be drained before a change. For the image registries it depends on what
/// changes there, and on whether the host runs pods at all.
#[must_use]
pub fn needs_drain(actions: &[DisruptionAction], change: &ConfigChange, runs_pods: bool) -> bool {
    let has = |type_: &Type| actions.iter().any(|action| action.type_ == *type_);
    let is_unsafe = || runs_pods && drain_reason(change).is_some();
    has(&Type::Reboot) || has(&Type::Drain) || has(&Type::Special) && is_unsafe()
}

/// The units that run the pods of a machine. A host with none of them has none.
pub const POD_UNITS: [&str; 2] = ["crio.service", "kubelet.service"];

/// Why the action on a unit is skipped: the host does not have it. `load_state` is systemd's. Only units of the default
/// policies are skipped, which are those of MCO's hosts; a unit that an administrator names has to be there.
#[must_use]
pub fn skipped_action(verb: &str, unit: &str, load_state: &str) -> Option<String> {
    (load_state == "not-found" && is_default_unit(unit)).then(|| {
        format!(
            "not applied: {verb} {unit}: this host has no such unit, so there is nothing to {verb}"
        )
    })
}

/// Why an action that counts only where a host has what it acts on is skipped. `load_state` and `active_state` are
/// systemd's. A timer is started; everything else that does not run reads its settings when it starts.
#[must_use]
pub fn absent_action(
    verb: &str,
    unit: &str,
    load_state: &str,
    active_state: &str,
) -> Option<String> {
    let why = match (load_state, active_state) {
        ("not-found", _) => "this host has no such unit",
        ("masked", _) => "it is masked on this host",
        (_, "inactive") if !unit.ends_with(".timer") => {
            "it does not run, and reads its settings when it starts"
        }
        // A restart may be what repairs it; a reload cannot.
        (_, "failed") if verb == "reload" => "it has failed, and reads its settings when it starts",
        _ => return None,
    };
    Some(format!("not applied: {verb} {unit}: {why}"))
}

/// Whether a unit is stopped instead: its file is gone, as in a rollback, and it still runs.
#[must_use]
pub fn stops_without_file(load_state: &str, active_state: &str) -> bool {
    load_state == "not-found" && active_state != "inactive"
}

/// The units of which one has to be active for a command to mean something; empty if it always does. An sshd that is
/// installed and not used may have no host keys, which `sshd -t` takes for an error.
#[must_use]
pub fn units_of_command(command: &[String]) -> &'static [&'static str] {
    match runtime_directory(command) {
        Some(_) => &["ssh.service", "sshd.service", "ssh.socket", "sshd.socket"],
        None => &[],
    }
}

/// The directory below `/run` that a command needs and that only its service makes: `sshd -t` fails without it on
/// hosts where a socket starts sshd.
#[must_use]
pub fn runtime_directory(command: &[String]) -> Option<&'static str> {
    command.first().is_some_and(|first| first.ends_with("/sshd")).then_some("sshd")
}

/// Whether a machine has to reboot after a change.
#[must_use]
pub fn needs_reboot(actions: &[DisruptionAction]) -> bool {
    actions.iter().any(|action| action.type_ == Type::Reboot)
}

/// What one action does to systemd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SystemdAction {
    /// Nothing is left to do.
    Nothing,
    /// Log that nothing has to be done.
    LogNoAction,
    /// Reboot the machine.
    Reboot,
    /// Reload a service.
    Reload(String),
    /// Restart a service.
    Restart(String),
    /// Restart the daemon itself, once, after the change is complete.
    RestartDaemon,
    /// Run a command.
    Run(Vec<String>),
    /// Reload the units of systemd.
    DaemonReload,
    /// This version does not know the action.
    Unknown(String),
}

/// The unit of the daemon.
pub const DAEMON_UNIT: &str = "machinist-daemon.service";

/// Whether the daemon has to be restarted after a change is complete. It cannot restart itself before: the
/// job would wait for the daemon to stop, and the daemon for the job.
#[must_use]
pub fn restarts_daemon(actions: &[DisruptionAction]) -> bool {
    actions.iter().any(|action| systemd_action(action) == SystemdAction::RestartDaemon)
}

/// What an action means.
#[must_use]
pub fn systemd_action(action: &DisruptionAction) -> SystemdAction {
    match service_action(action) {
        // The daemon reads its settings when it starts, so a reload is a restart.
        SystemdAction::Restart(unit) | SystemdAction::Reload(unit)
            if unit.strip_suffix(".service").unwrap_or(&unit)
                == DAEMON_UNIT.trim_end_matches(".service") =>
        {
            SystemdAction::RestartDaemon
        }
        other => other,
    }
}

fn service_action(action: &DisruptionAction) -> SystemdAction {
    let name = |service: &Option<crate::api::operator::ServiceReference>| {
        service.as_ref().map(|service| service.service_name.clone()).unwrap_or_default()
    };
    match &action.type_ {
        Type::Reboot => SystemdAction::Reboot,
        // The drain was done before the change.
        Type::Drain => SystemdAction::Nothing,
        Type::None => SystemdAction::LogNoAction,
        Type::Reload => SystemdAction::Reload(name(&action.reload)),
        Type::Restart => SystemdAction::Restart(name(&action.restart)),
        Type::Run => SystemdAction::Run(action.run.clone()),
        Type::DaemonReload => SystemdAction::DaemonReload,
        Type::Special => SystemdAction::Reload("crio".to_owned()),
        Type::Unknown(word) => SystemdAction::Unknown(word.clone()),
    }
}

/// The name of an action.
#[must_use]
pub fn action_name(action: &DisruptionAction) -> String {
    match &action.type_ {
        Type::Unknown(word) => word.clone(),
        known => format!("{known:?}"),
    }
}

/// All actions in one line: `Reload chronyd.service, DaemonReload`.
#[must_use]
pub fn actions_summary(actions: &[DisruptionAction]) -> String {
    let one = |action: &DisruptionAction| match service_action(action) {
        SystemdAction::Reload(name) if action.type_ == Type::Reload => format!("Reload {name}"),
        SystemdAction::Restart(name) => format!("Restart {name}"),
        SystemdAction::Run(words) => format!("Run {}", words.join(" ")),
        _ => action_name(action),
    };
    actions.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Whether actions restart or reload services without a reboot of the machine.
#[must_use]
pub fn restarts_services(actions: &[DisruptionAction]) -> bool {
    let does_nothing = |action: &DisruptionAction| {
        matches!(systemd_action(action), SystemdAction::Nothing | SystemdAction::LogNoAction)
    };
    !needs_reboot(actions) && !actions.iter().all(does_nothing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::{empty_config, from_ignition};
    use crate::disruption::REGISTRIES_CONF;
    use crate::reconcile_check::{ValidationOverrides, check_reconcilable};
    use serde_json::{Value, json};

    fn actions(list: &Value) -> Vec<DisruptionAction> {
        serde_json::from_value(list.clone()).unwrap()
    }

    #[test]
    fn which_actions_restart_services() {
        let restart = json!({"type": "Restart", "restart": {"serviceName": "kubelet.service"}});
        for (list, expected) in [
            (json!([]), false),
            (json!([{"type": "None"}]), false),
            (json!([{"type": "Drain"}]), false),
            (json!([restart]), true),
            (json!([{"type": "Drain"}, {"type": "DaemonReload"}]), true),
            // After a reboot, the daemon of a pod runs only if the kubelet does.
            (json!([restart, {"type": "Reboot"}]), false),
        ] {
            assert_eq!(restarts_services(&actions(&list)), expected, "{list}");
        }
    }

    #[test]
    fn which_actions_need_a_drain() {
        let with = from_ignition(json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [
            {"path": REGISTRIES_CONF, "contents": {"source": "data:,short-name-mode=%22x%22%0Aunqualified-search-registries=%5B'a'%5D"}}]}}));
        let added =
            check_reconcilable(&empty_config(), &with, ValidationOverrides::default()).unwrap();
        let removed =
            check_reconcilable(&with, &empty_config(), ValidationOverrides::default()).unwrap();
        for (list, change, expected) in [
            (json!([{"type": "Reboot"}]), &added, true),
            (json!([{"type": "Drain"}, {"type": "DaemonReload"}]), &added, true),
            (json!([{"type": "None"}]), &removed, false),
            (json!([{"type": "Special"}]), &added, false),
            (json!([{"type": "Special"}]), &removed, true),
        ] {
            assert_eq!(needs_drain(&actions(&list), change, true), expected, "{list}");
        }
        let special = actions(&json!([{"type": "Special"}]));
        assert!(!needs_drain(&special, &removed, false), "there are no pods");
        assert!(needs_drain(&actions(&json!([{"type": "Reboot"}])), &removed, false));
    }

    #[test]
    fn the_daemon_restarts_itself_after_the_change() {
        for (action, expected) in [
            (
                json!({"type": "Restart", "restart": {"serviceName": "machinist-daemon.service"}}),
                true,
            ),
            (json!({"type": "Restart", "restart": {"serviceName": "machinist-daemon"}}), true),
            (
                json!({"type": "Reload", "reload": {"serviceName": "machinist-daemon.service"}}),
                true,
            ),
            (json!({"type": "Restart", "restart": {"serviceName": "machinist-daemon-x"}}), false),
            (json!({"type": "Restart", "restart": {"serviceName": "crio.service"}}), false),
            (json!({"type": "DaemonReload"}), false),
        ] {
            let list = actions(&json!([{"type": "None"}, action]));
            assert_eq!(restarts_daemon(&list), expected, "{action}");
        }
    }

    #[test]
    fn actions_on_units_that_a_host_does_not_have_are_skipped_and_named() {
        let skipped = skipped_action("reload", "crio.service", "not-found").unwrap();
        assert!(
            skipped.starts_with("not applied: reload crio.service: this host has no such unit")
        );
        assert!(skipped_action("reload", "crio", "not-found").is_some());
        assert_eq!(skipped_action("reload", "mine.service", "not-found"), None);
        for state in ["loaded", "masked", "bad-setting", "error"] {
            assert_eq!(skipped_action("reload", "crio.service", state), None, "{state}");
        }
    }

    #[test]
    fn what_a_host_does_not_have_is_not_acted_on() {
        for (unit, load, active, expected) in [
            ("a.service", "loaded", "active", None),
            ("a.service", "loaded", "reloading", None),
            ("a.service", "loaded", "inactive", Some("it does not run")),
            ("a.service", "loaded", "failed", None),
            ("a.service", "not-found", "inactive", Some("this host has no such unit")),
            ("a.service", "masked", "inactive", Some("it is masked")),
            ("a.timer", "loaded", "inactive", None),
            ("a.timer", "not-found", "inactive", Some("this host has no such unit")),
        ] {
            let found = absent_action("restart", unit, load, active);
            assert_eq!(found.is_some(), expected.is_some(), "{unit} {load} {active}: {found:?}");
            let text = found.unwrap_or_default();
            assert!(text.contains(expected.unwrap_or_default()), "{text}");
        }
        let found = absent_action("reload", "a.service", "loaded", "failed").unwrap();
        assert!(found.contains("it has failed"), "{found}");
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(runtime_directory(&words("/usr/sbin/sshd -t")), Some("sshd"));
        assert_eq!(runtime_directory(&words("/usr/bin/update-ca-trust")), None);
        assert_eq!(runtime_directory(&[]), None);
        assert!(units_of_command(&words("/usr/sbin/sshd -t")).contains(&"ssh.socket"));
        assert!(units_of_command(&words("/usr/bin/update-ca-trust")).is_empty());
    }

    #[test]
    fn actions_have_names() {
        let list = actions(&json!([
            {"type": "Drain"}, {"type": "Reload", "reload": {"serviceName": "a.service"}},
            {"type": "Restart", "restart": {"serviceName": "b.service"}}, {"type": "Special"},
            {"type": "Dance"},
        ]));
        assert_eq!(
            actions_summary(&list),
            "Drain, Reload a.service, Restart b.service, Special, Dance"
        );
        assert_eq!(systemd_action(&list[4]), SystemdAction::Unknown("Dance".to_owned()));
        assert_eq!(systemd_action(&list[3]), SystemdAction::Reload("crio".to_owned()));
        assert!(!needs_reboot(&list));
    }
}
