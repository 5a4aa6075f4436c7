//! Which rule decides, as a table over rules, hosts and paths.

use serde_json::{Value, json};

use super::*;
use crate::api::names::annotation::machinist::ON_CHANGE;
use crate::daemon::actions::actions_summary as words;
use crate::diff::{diff, parse_both};
use crate::disruption::{disruption, with_system_policy};
use crate::os::abilities::{HostRuntime, UserRules};
use crate::os::host::HostKind;
use crate::render::render;

const ROLE: &str = "machineconfiguration.openshift.io/role";

/// A rendered config of a pool with an annotation and one MachineConfig with another.
fn rendered(pool: &str, own: &str, files: &[&str], units: &Value) -> MachineConfig {
    let annotations = |text: &str| match text {
        "" => Value::Null,
        text => json!({ON_CHANGE: text}),
    };
    let files: Vec<Value> =
        files.iter().map(|path| json!({"path": path, "contents": {"source": "data:,x"}})).collect();
    let config = json!({"ignition": {"version": "3.5.0"}, "storage": {"files": files}, "systemd": {"units": units}});
    let config = serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "50-own", "labels": {ROLE: "web"}, "annotations": annotations(own)},
        "spec": {"config": config},
    }));
    let pool = serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "web", "annotations": annotations(pool)},
        "spec": {"machineConfigSelector": {"matchLabels": {ROLE: "web"}}},
    }))
    .unwrap();
    render(&pool, [&config.unwrap()], None).unwrap().into_object(&pool, None, "").unwrap()
}

fn host(packages: &str) -> HostAbilities {
    HostAbilities {
        images: Some(HostKind::Plain),
        users: UserRules::Any,
        packages: Some(packages.to_owned()),
        ..HostAbilities::default()
    }
}

fn cost(
    policy: &Value,
    old: &MachineConfig,
    new: &MachineConfig,
    host: Option<&HostAbilities>,
) -> (String, Vec<String>) {
    let policy = with_system_policy(&serde_json::from_value(policy.clone()).unwrap());
    let change = parse_both(old, new).unwrap();
    let rules = DisruptionRules::new(&policy, old, new, host);
    let found = disruption(&change, diff(old, new, &change).flags, &rules);
    let rules = found.decided.iter().map(|it| format!("{}: {}", it.name, it.rule)).collect();
    (words(&found.actions), rules)
}

fn files(list: &[&str]) -> MachineConfig {
    rendered("", "", list, &json!([]))
}

#[test]
fn the_first_rule_that_covers_a_file_decides() {
    let reload = |path: &str, unit: &str| json!({"files": [{"path": path, "actions": [{"type": "Reload", "reload": {"serviceName": unit}}]}]});
    let none = json!({});
    let (nothing, debian) = (files(&[]), host("apt"));
    for (policy, pool, own, path, actions, rule) in [
        (
            reload("/etc", "a.service"),
            "none",
            "reboot",
            "/etc/sysctl.d/a.conf",
            "Reload a.service",
            "nodeDisruptionPolicy of MachineConfiguration cluster for /etc",
        ),
        (
            none.clone(),
            "none",
            "run /bin/a -b; restart b.service",
            "/etc/sysctl.d/a.conf",
            "Run /bin/a -b, Restart b.service",
            "on-change of MachineConfig 50-own",
        ),
        (
            none.clone(),
            "none",
            "/etc/x: reboot",
            "/etc/x/y",
            "Reboot",
            "on-change of MachineConfig 50-own",
        ),
        (
            none.clone(),
            "/etc/sysctl.d: reload c.service",
            "",
            "/etc/sysctl.d/a.conf",
            "Reload c.service",
            "on-change of pool web for /etc/sysctl.d",
        ),
        (none.clone(), "none", "", "/opt/anything", "None", "on-change of pool web"),
        // A pool that says something of everything is asked before MCO's defaults.
        (none.clone(), "none", "", "/etc/containers/policy.json", "None", "on-change of pool web"),
        (
            none.clone(),
            "/etc/x: none",
            "",
            "/etc/containers/policy.json",
            "Reload crio.service",
            "default for /etc/containers/policy.json",
        ),
        (
            none.clone(),
            "",
            "",
            "/etc/sysctl.d/a.conf",
            "Restart systemd-sysctl.service",
            "default of plain hosts for /etc/sysctl.d",
        ),
        (none.clone(), "", "", "/opt/anything", "Reboot", "no rule covers it"),
    ] {
        let new = rendered(pool, own, &[path], &json!([]));
        let found = cost(&policy, &nothing, &new, Some(&debian));
        assert_eq!(
            found,
            (actions.to_owned(), vec![format!("{path}: {rule}")]),
            "{pool} {own} {path}"
        );
        // What is taken away costs the same, by the rules of the config that had it.
        let gone = rendered(pool, "", &[], &json!([]));
        assert_eq!(cost(&policy, &new, &gone, Some(&debian)).0, actions, "without {path}");
    }
}

#[test]
fn plain_hosts_have_defaults_and_mcos_hosts_do_not() {
    let (debian, fedora) = (host("apt"), host("dnf"));
    let crio = HostAbilities { container_runtimes: vec![HostRuntime::Crio], ..host("dnf") };
    let image = HostAbilities { images: Some(HostKind::RpmOstree), ..host("dnf") };
    let core = HostAbilities { users: UserRules::Core, ..host("apt") };
    for (path, on_debian, on_fedora) in [
        (
            "/etc/sysctl.d/a.conf",
            "Restart systemd-sysctl.service",
            "Restart systemd-sysctl.service",
        ),
        (
            "/etc/ssh/sshd_config",
            "Run /usr/sbin/sshd -t, Reload ssh.service",
            "Run /usr/sbin/sshd -t, Reload sshd.service",
        ),
        (
            "/etc/ssh/sshd_config.d/a.conf",
            "Run /usr/sbin/sshd -t, Reload ssh.service",
            "Run /usr/sbin/sshd -t, Reload sshd.service",
        ),
        ("/etc/chrony/conf.d/a.conf", "Restart chrony.service", "Restart chronyd.service"),
        (
            "/usr/local/share/ca-certificates/a.crt",
            "Run /usr/sbin/update-ca-certificates --fresh",
            "Run /usr/sbin/update-ca-certificates --fresh",
        ),
        (
            "/etc/pki/ca-trust/source/anchors/a.crt",
            "Run /usr/bin/update-ca-trust",
            "Run /usr/bin/update-ca-trust",
        ),
        (
            "/etc/systemd/journald.conf.d/a.conf",
            "Restart systemd-journald.service",
            "Restart systemd-journald.service",
        ),
        (
            "/etc/systemd/resolved.conf",
            "Restart systemd-resolved.service",
            "Restart systemd-resolved.service",
        ),
        ("/etc/motd", "None", "None"),
        ("/etc/motd.d/a", "None", "None"),
        ("/etc/motdx", "Reboot", "Reboot"),
        ("/etc/ssh/moduli", "Reboot", "Reboot"),
        ("/etc/fstab", "Reboot", "Reboot"),
    ] {
        let (old, new) = (files(&[]), files(&[path]));
        let on = |host| cost(&json!({}), &old, &new, host).0;
        assert_eq!(
            (on(Some(&debian)).as_str(), on(Some(&fedora)).as_str()),
            (on_debian, on_fedora),
            "{path}"
        );
        for mcos in [Some(&crio), Some(&image), Some(&core), Some(&HostAbilities::default()), None]
        {
            assert_eq!(on(mcos), "Reboot", "{path} on {mcos:?}");
        }
    }
    // Several files of the same default cost it once.
    let two = files(&["/etc/sysctl.d/a.conf", "/etc/sysctl.d/b.conf", "/etc/motd"]);
    let found = cost(&json!({}), &files(&[]), &two, Some(&debian));
    assert_eq!(found.0, "Restart systemd-sysctl.service");
}

#[test]
fn timers_are_restarted_and_their_services_left_alone() {
    let unit = |name: &str, enabled: Option<bool>| json!({"name": name, "enabled": enabled, "contents": "[Unit]\n[Install]\nWantedBy=timers.target\n"});
    let timer = unit("a.timer", Some(true));
    for (units, expected) in [
        (json!([timer]), "Restart a.timer"),
        (json!([timer, unit("a.service", None)]), "Restart a.timer"),
        (json!([timer, unit("a.service", Some(true))]), "Reboot"),
        (json!([timer, unit("b.service", None)]), "Reboot"),
        (json!([unit("a.timer", Some(false))]), "Reboot"),
        (json!([unit("a.service", None)]), "Reboot"),
    ] {
        let (old, new) = (files(&[]), rendered("", "", &[], &units));
        assert_eq!(cost(&json!({}), &old, &new, Some(&host("apt"))).0, expected, "{units}");
        assert_eq!(cost(&json!({}), &old, &new, None).0, "Reboot", "{units}");
        // A timer that is removed may still run.
        assert_eq!(cost(&json!({}), &new, &old, Some(&host("apt"))).0, "Reboot", "without {units}");
    }
}

#[test]
fn only_the_annotation_runs_commands() {
    let policy =
        json!({"files": [{"path": "/etc/x", "actions": [{"type": "Run", "run": ["/bin/evil"]}]}]});
    let found = cost(&policy, &files(&[]), &files(&["/etc/x"]), Some(&host("apt")));
    assert_eq!(found.0, "Run");
    let policy = with_system_policy(&serde_json::from_value(policy).unwrap());
    let actions: Vec<DisruptionAction> =
        of_policy(&policy.files.unwrap().last().unwrap().actions).collect();
    assert_eq!((&actions[0].type_, actions[0].run.len()), (&Type::Unknown("Run".to_owned()), 0));
}
