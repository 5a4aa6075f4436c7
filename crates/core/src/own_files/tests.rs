use super::*;
use serde_json::{Value, json};

fn check(section: &str, entry: &Value) -> Result<(), String> {
    let (outer, inner) = section.split_once('.').unwrap();
    let config = json!({"ignition": {"version": "3.5.0"}, outer: {inner: [entry]}});
    let (config, _) = crate::ignition::parse_and_upgrade(&config).unwrap();
    check_own_files(&config).map_err(|problem| problem.to_string())
}

#[test]
fn paths_of_machinist_are_refused() {
    for (path, is_refused) in [
        ("/var/lib/machinist", true),
        ("/var/lib/machinist/kubeconfig", true),
        ("/var/lib/machinist-other/x", false),
        ("/usr/local/bin/machinist", true),
        ("/usr/local/bin/machinist-report", false),
        ("/etc/systemd/system/machinist-daemon.service", true),
        ("/etc/systemd/system/machinist-daemon.service.d/10.conf", true),
        ("/etc/systemd/system/machinist-.service.d/10.conf", true),
        ("/run/systemd/system/machinist-daemon.service.d/10.conf", true),
        ("/etc/systemd/system/multi-user.target.wants/machinist-daemon.service", true),
        ("/etc/systemd/system/machinist-watchdog.timer", true),
        ("/etc/systemd/system/machinist-ca-trust.service", false),
        ("/etc/systemd/system/report-machinist-daemon.service", false),
        ("/etc/machinist-daemon.service", false),
    ] {
        for section in ["storage.files", "storage.directories", "storage.links"] {
            let checked = check(section, &json!({"path": path, "target": "/dev/null"}));
            assert_eq!(checked.is_err(), is_refused, "{section} {path}");
            let names_it = checked.is_err_and(|text| text.contains(path));
            assert_eq!(names_it, is_refused, "{section} {path}");
        }
    }
}

#[test]
fn units_of_machinist_are_refused() {
    let own = "machinist-daemon.service";
    for (unit, is_refused) in [
        (json!({"name": own, "mask": true}), true),
        (json!({"name": own, "enabled": false}), true),
        (json!({"name": own, "contents": "[Service]\n"}), true),
        (json!({"name": own, "dropins": [{"name": "a.conf", "contents": "x"}]}), true),
        (json!({"name": "machinist-.service", "dropins": [{"name": "a.conf"}]}), true),
        (json!({"name": own, "enabled": true}), false),
        (json!({"name": own, "mask": false}), false),
        (json!({"name": "my-machinist-daemon.service", "mask": true}), false),
    ] {
        assert_eq!(check("systemd.units", &unit).is_err(), is_refused, "{unit}");
    }
}

fn data_url(text: &str) -> Value {
    json!({"source": crate::ignition::data_url::encode(text.as_bytes())})
}

#[test]
fn drop_ins_for_all_services_may_set_limits_only() {
    for (directory, is_for_ours) in [
        ("/etc/systemd/system/service.d", true),
        ("/run/systemd/system/service.d", true),
        ("/usr/local/lib/systemd/system/service.d", true),
        ("/etc/systemd/system.control/service.d", true),
        ("/etc/systemd/system/timer.d", true),
        ("/etc/systemd/system/crio.service.d", false),
        ("/etc/systemd/system/socket.d", false),
        ("/etc/service.d", false),
    ] {
        let path = format!("{directory}/10-all.conf");
        for (text, is_safe) in [
            ("[Service]\nLimitNOFILE=65536\n", true),
            ("[Unit]\nOnFailure=report@%N.service\n", true),
            ("[Service]\nExecStart=\nExecStart=/bin/true\n", false),
            ("[Unit]\nConditionPathExists=/never\n", false),
        ] {
            let file = json!({"path": path, "contents": data_url(text)});
            let checked = check("storage.files", &file);
            assert_eq!(checked.is_ok(), is_safe || !is_for_ours, "{path}: {text}");
            if let Err(message) = checked {
                let setting =
                    if text.contains("Exec") { "ExecStart" } else { "ConditionPathExists" };
                assert!(message.contains(&path) && message.contains(setting), "{message}");
            }
        }
        let readme = json!({"path": format!("{directory}/README"), "contents": data_url("User=x")});
        assert_eq!(check("storage.files", &readme), Ok(()));
        let link = json!({"path": path, "target": "/opt/all.conf"});
        assert_eq!(check("storage.links", &link).is_err(), is_for_ours, "{path}");
        let null = json!({"path": path, "target": "/dev/null"});
        assert_eq!(check("storage.links", &null), Ok(()));
    }
    let hidden = json!({"path": "/etc/systemd/system/service.d", "target": "/opt/all"});
    assert!(check("storage.links", &hidden).is_err());
    let large = json!({"path": "/etc/systemd/system/service.d/a.conf",
        "contents": data_url(&" ".repeat(2 << 20))});
    assert!(check("storage.files", &large).unwrap_err().contains("larger than"));
}

#[test]
fn other_units_may_not_replace_or_stop_ours() {
    for (text, is_refused) in [
        ("[Install]\nAlias=machinist-daemon.service\n", true),
        ("[Install]\nAlias=other.service machinist-watchdog.timer\n", true),
        ("[Unit]\nConflicts=machinist-daemon.service\n", true),
        ("[Unit]\nAfter=machinist-daemon.service\n", false),
        ("[Unit]\nConflicts=shutdown.target\n[Install]\nAlias=dbus-x.service\n", false),
    ] {
        let unit = json!({"name": "other.service", "contents": text});
        assert_eq!(check("systemd.units", &unit).is_err(), is_refused, "{text}");
        let drop_in =
            json!({"name": "other.service", "dropins": [{"name": "a.conf", "contents": text}]});
        let refusal = check("systemd.units", &drop_in);
        assert_eq!(refusal.is_err(), is_refused, "{text}");
        assert!(refusal.err().is_none_or(|text| text.contains("other.service.d/a.conf")));
        let file = json!({"path": "/etc/systemd/system/other.service", "contents": data_url(text)});
        assert_eq!(check("storage.files", &file).is_err(), is_refused, "{text}");
    }
    for (text, is_refused) in [
        ("disable machinist-daemon.service\n", true),
        ("enable ssh.service\ndisable machinist-*\n", true),
        ("disable *\n", false),
        ("enable machinist-daemon.service\n", false),
        ("# disable machinist-daemon.service\n", false),
    ] {
        let path = "/etc/systemd/system-preset/10-own.preset";
        let file = json!({"path": path, "contents": data_url(text)});
        assert_eq!(check("storage.files", &file).is_err(), is_refused, "{text}");
    }
}

#[test]
fn what_starts_machinist_stays() {
    for target in TARGETS {
        let mask = json!({"name": target, "mask": true});
        assert!(check("systemd.units", &mask).unwrap_err().contains(target));
        let path = format!("/etc/systemd/system/{target}");
        assert!(check("storage.links", &json!({"path": path, "target": "/dev/null"})).is_err());
        let enabled = json!({"name": target, "enabled": true, "dropins": [{"name": "a.conf"}]});
        assert_eq!(check("systemd.units", &enabled), Ok(()));
    }
    for (target, is_refused) in [
        ("/usr/lib/systemd/system/multi-user.target", false),
        ("/usr/lib/systemd/system/graphical.target", false),
        ("/usr/lib/systemd/system/rescue.target", true),
        ("emergency.target", true),
    ] {
        let link = json!({"path": "/etc/systemd/system/default.target", "target": target});
        assert_eq!(check("storage.links", &link).is_err(), is_refused, "{target}");
    }
    assert_eq!(check("systemd.units", &json!({"name": "graphical.target", "mask": true})), Ok(()));
}

#[test]
fn mounts_over_the_state_are_refused() {
    for (name, is_refused) in [
        ("var-lib-machinist.mount", true),
        ("var-lib-machinist.automount", true),
        ("var-lib-machinist-last\\x2dgood.mount", true),
        ("usr-local-bin-machinist.mount", true),
        ("var-lib-machinist\\x2dother.mount", false),
        ("var-lib.mount", false),
        ("var.mount", false),
        ("var-lib-machinist.service", false),
    ] {
        let unit = json!({"name": name, "contents": "[Mount]\nWhat=/dev/sdb\n"});
        assert_eq!(check("systemd.units", &unit).is_err(), is_refused, "{name}");
        let file = json!({"path": format!("/etc/systemd/system/{name}")});
        assert_eq!(check("storage.files", &file).is_err(), is_refused, "{name}");
    }
}

#[test]
fn kernel_arguments_that_mask_ours_are_refused() {
    for (argument, is_refused) in [
        ("systemd.mask=machinist-daemon.service", true),
        ("quiet systemd.mask=\"machinist-watchdog.timer\"", true),
        ("systemd.mask=multi-user.target", true),
        ("systemd.mask=ssh.service", false),
        ("mask=machinist-daemon.service", false),
        ("", false),
    ] {
        assert_eq!(check_own_kernel_arguments([argument]).is_err(), is_refused, "{argument}");
    }
}
