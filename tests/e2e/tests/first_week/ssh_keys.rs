//! Keys let their users in on a Debian machine, and nobody is locked out.

use super::fixture::FirstWeek;
use serde_json::json;

pub(super) fn keys_go_where_sshd_reads_them(week: &FirstWeek) {
    let (hub, machine) = (&week.hub, &week.plain);
    machine
        .sh("ssh-keygen -q -t ed25519 -N '' -f /root/key && ssh-keygen -A && systemctl start ssh.service")
        .unwrap();
    // An administrator's own key and password, which nobody asked to change.
    machine.sh("echo 'core:secret' | chpasswd; mkdir -p ~core/.ssh; echo 'ssh-ed25519 AAAA mine' >~core/.ssh/authorized_keys; chown -R core: ~core/.ssh").unwrap();
    let password = "getent shadow core | cut -d: -f2";
    let before = machine.sh(password).unwrap();
    let accounts = "cat /etc/passwd /etc/group /etc/shadow";
    let all = machine.sh(accounts).unwrap();
    let key = machine.sh("cat /root/key.pub").unwrap();
    let users = json!([
        {"name": "core", "sshAuthorizedKeys": [key.trim()]},
        {"name": "alice", "groups": ["sudo"], "sshAuthorizedKeys": [key.trim()]},
    ]);
    let config = hub.apply_config("70-keys", &json!({"passwd": {"users": users}}));
    // The other machine has no user core: it is created, as Ignition does.
    week.wait_done(&config);
    for user in ["core", "alice"] {
        let login = format!(
            "ssh -i /root/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null {user}@127.0.0.1 id -un"
        );
        assert_eq!(machine.sh(&login).unwrap(), format!("{user}\n"));
    }
    assert!(machine.sh("id -nG alice").unwrap().contains("sudo"));
    assert_eq!(machine.sh(password).unwrap(), before, "the password was not in the config");
    let keys = machine.sh("cat ~core/.ssh/authorized_keys").unwrap();
    assert!(keys.starts_with("ssh-ed25519 AAAA mine\n"), "{keys}");
    assert_eq!(week.boxes.sh("id -un core").unwrap(), "core\n");
    let config = hub.delete_config("70-keys");
    week.wait_done(&config);
    assert_eq!(machine.sh(accounts).unwrap(), all, "users and groups are as before");
    assert_eq!(machine.sh("cat ~core/.ssh/authorized_keys").unwrap(), "ssh-ed25519 AAAA mine\n");
    machine.sh("systemctl stop ssh.service").unwrap();
}
