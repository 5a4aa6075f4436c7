//! Reboots only where they are needed: settings of the kernel and of sshd take effect without one, broken settings of
//! sshd are refused by sshd itself and taken back, and an administrator says what the rest costs.

use super::fixture::{FirstWeek, machine_config};
use crate::daemon::fixture::{file, files};
use machinist_e2e::wait_for;
use serde_json::json;

const SYSCTL: &str = "/etc/sysctl.d/90-week.conf";
const SSHD: &str = "/etc/ssh/sshd_config.d/10-week.conf";

pub(super) fn changes_reboot_only_where_they_must(week: &FirstWeek) {
    let (hub, plain) = (&week.hub, &week.plain);
    plain.sh("ssh-keygen -A && systemctl start ssh.service").unwrap();
    // In the kit's machines, systemd skips its unit because these settings are read-only.
    plain.sh("mount --bind /proc/sys/net /proc/sys/net && mount -o remount,bind,rw /proc/sys/net && systemctl start systemd-sysctl.service").unwrap();
    let boots: Vec<u32> = week.machines().iter().map(|machine| machine.boots()).collect();
    let is_on = || plain.sh("cat /proc/sys/net/ipv4/conf/lo/log_martians").unwrap();
    assert_eq!(is_on().trim(), "0");
    let list =
        [file(SYSCTL, "net.ipv4.conf.lo.log_martians = 1\n"), file(SSHD, "MaxAuthTries 3\n")];
    let manifest = week.manifest(&machine_config("85-week", json!({"config": files(&list)})));
    let plan = hub.machinist(&["plan", "-f", &manifest]);
    for expected in [
        "a restart of systemd-sysctl.service (default of plain hosts for /etc/sysctl.d)",
        "(default of plain hosts for /etc/ssh/sshd_config.d)",
    ] {
        assert!(plan.stdout.contains(expected), "{expected}: {plan:?}");
    }
    let config = hub.apply_config("85-week", &files(&list));
    week.wait_done(&config);
    assert_eq!(is_on().trim(), "1");
    let effective = plain.sh("/usr/sbin/sshd -T | grep -i maxauthtries").unwrap();
    assert_eq!(effective.trim(), "maxauthtries 3");

    // sshd refuses the file, and the machine keeps the one that it had.
    let broken = [list[0].clone(), file(SSHD, "MaxAuthTries many\n")];
    hub.apply_config("85-week", &files(&broken));
    wait_for("the refusal of sshd", || {
        let reason = hub.annotation("plain", "machineconfiguration.openshift.io/reason");
        anyhow::ensure!(reason.contains("running /usr/sbin/sshd -t failed"), "{reason}");
        anyhow::ensure!(reason.contains("MaxAuthTries"), "the output of sshd is missing: {reason}");
        Ok(true)
    })
    .unwrap();
    assert_eq!(plain.read_file(SSHD).unwrap(), b"MaxAuthTries 3\n");
    plain.sh("systemctl is-active ssh.service && /usr/sbin/sshd -t").unwrap();

    // A command of an administrator runs, and nothing reboots although no default covers the file.
    let mut object =
        machine_config("85-week", json!({"config": files(&[file("/etc/week/a", "one\n")])}));
    object["metadata"]["annotations"] =
        json!({"machinist.dev/on-change": "run /usr/bin/touch /run/week"});
    let manifest = week.manifest(&object);
    let applied = hub.machinist(&["apply", "-f", &manifest]);
    assert_eq!(applied.code, 0, "{applied:?}");
    for machine in week.machines() {
        machine.wait_for("the command", |machine| machine.exists("/run/week")).unwrap();
    }
    // The rule of the file counts when the file goes, too.
    let config = hub.delete_config("85-week");
    week.wait_done(&config);
    let after: Vec<u32> = week.machines().iter().map(|machine| machine.boots()).collect();
    assert_eq!(after, boots, "nothing of this needs a reboot");
    plain.sh("systemctl stop ssh.service").unwrap();
}
