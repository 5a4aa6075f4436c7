//! The boot guard: a unit on a host whose daemon is a pod. A config that breaks the kubelet also keeps the daemon from
//! starting after the reboot, so somebody else has to notice. The daemon arms the guard before it reboots into a new
//! config; the guard checks the kubelet and the health checks of the config, and rolls back. Performed by
//! `daemon/agent/boot_guard` in the shell.

use std::time::Duration;

use super::PendingChange;
use super::update::needs_offline_health_check;

/// The unit.
pub const BOOT_GUARD_UNIT: &str = "machinist-guard.service";
/// The directory of its binary, beneath the root of the host.
pub const BOOT_GUARD_DIR: &str = "var/lib/machinist/guard";
/// How long a kubelet may take after the first boot with a new config whose health checks have no deadline.
pub const BOOT_GUARD_DEADLINE: Duration = Duration::from_secs(600);

/// Whether the guard is armed for the reboot into a change. `kubelet_runs` is the state before the reboot: a kubelet that
/// did not run before says nothing about the change.
#[must_use]
pub fn arms_boot_guard(pending: &PendingChange, kubelet_runs: bool, is_pod: bool) -> bool {
    is_pod && kubelet_runs && !pending.is_rollback && !pending.keeps_config()
}

/// Whether the guard has a change to judge in this boot. There is none once the daemon runs and has completed it, and in
/// the boot before the change.
#[must_use]
pub fn has_change_to_guard(
    config_on_disk: &str,
    pending: Option<&PendingChange>,
    boot_id: &str,
) -> bool {
    pending.is_some_and(|pending| {
        pending.boot != boot_id
            && !pending.keeps_config()
            && needs_offline_health_check(config_on_disk, pending, boot_id)
    })
}

/// The unit file of the guard. It runs on the next boot, at the same time as the kubelet and not after it.
#[must_use]
pub fn boot_guard_unit(kubelet_healthz: &str) -> String {
    // systemd expands specifiers in ExecStart.
    let endpoint = kubelet_healthz.replace('%', "%%");
    format!(
        "\
# Written by the Machinist daemon before it reboots into a new config; removed when the machine runs it.
[Unit]
Description=Machinist: returns to the previous config if the kubelet does not run with the new one
Documentation=https://github.com/machinist-dev/machinist

[Service]
ExecStart=/{BOOT_GUARD_DIR}/machinist daemon guard --kubelet-healthz-endpoint={endpoint}
Restart=on-failure
RestartSec=30

[Install]
WantedBy=multi-user.target
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::MachineConfig;
    use crate::api::operator::{DisruptionAction, DisruptionActionType};

    fn change(from: &str, to: &str) -> PendingChange {
        let config = |name: &str| {
            let mut config = MachineConfig::default();
            config.metadata.name = Some(name.to_owned());
            config
        };
        let type_ = DisruptionActionType::Reboot;
        let reboot = vec![DisruptionAction { type_, ..DisruptionAction::default() }];
        PendingChange::new(&config(from), &config(to), reboot, "boot-1", None)
    }

    #[test]
    fn it_is_armed_where_a_kubelet_starts_the_daemon() {
        let (new, same) = (change("a", "b"), change("a", "a"));
        for (pending, kubelet_runs, is_pod, expected) in [
            (new.clone(), true, true, true),
            (new.clone(), false, true, false),
            (new.clone(), true, false, false),
            (new.rollback("boot-1"), true, true, false),
            (same, true, true, false),
        ] {
            assert_eq!(arms_boot_guard(&pending, kubelet_runs, is_pod), expected, "{pending:?}");
        }
    }

    #[test]
    fn it_judges_the_boot_of_a_change_that_is_not_complete() {
        let new = change("a", "b");
        for (disk, pending, boot, expected) in [
            ("b", Some(&new), "boot-2", true),
            // The boot in which the change was written.
            ("b", Some(&new), "boot-1", false),
            // The daemon has completed it, or it was undone.
            ("b", None, "boot-2", false),
            ("a", Some(&new), "boot-2", false),
            ("a", Some(&change("a", "a")), "boot-2", false),
            ("a", Some(&new.clone().rollback("boot-2")), "boot-3", false),
        ] {
            assert_eq!(has_change_to_guard(disk, pending, boot), expected, "{disk} {boot}");
        }
    }

    #[test]
    fn the_unit_names_the_endpoint_as_systemd_reads_it() {
        let unit = boot_guard_unit("http://[::1%25lo]:10248/healthz");
        let expected = "ExecStart=/var/lib/machinist/guard/machinist daemon guard --kubelet-healthz-endpoint=http://[::1%%25lo]:10248/healthz\n";
        assert!(unit.contains(expected), "{unit}");
    }
}
