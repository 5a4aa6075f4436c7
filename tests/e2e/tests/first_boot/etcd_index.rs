//! The index of an etcd member, from the first request to a later config: the server fills it in, the daemon keeps it, and
//! neither drift nor healing nor an update undoes it.

use crate::first_boot::fixture::{FirstBootFixture, ServerMode, file, machine_config};
use crate::first_boot::{power_on_new_machine, read};
use machinist_e2e::{Lab, wait_for};
use serde_json::json;

const MEMBER: &str = "/etc/etcd-member";
const TRIMMED: &str = "/etc/etcd-member-trimmed";
/// A unit with the index: what healing broke once.
const UNIT: &str = "[Unit]\nDescription=The member {{.etcd_index}}\n\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
    ExecStart=/bin/sh -c 'echo member {{.etcd_index}} >/run/member'\n\n[Install]\nWantedBy=multi-user.target\n";

#[test]
fn a_member_keeps_its_etcd_index() {
    let lab = Lab::new().unwrap();
    let fixture = FirstBootFixture::of_pool(&lab, ServerMode::Embedded, "master");
    let member = |text: &str| {
        [
            file(MEMBER, 0o644, &format!("{text} {{{{.etcd_index}}}}\n")),
            file(TRIMMED, 0o644, &format!("{text} {{{{- .etcd_index -}}}} !\n")),
        ]
    };
    let mut unit = machine_config("40-etcd-member", json!({}), &[]);
    unit["metadata"]["labels"]["machineconfiguration.openshift.io/role"] = "master".into();
    let units = json!([{"name": "etcd-member.service", "enabled": true, "contents": UNIT}]);
    unit["spec"]["config"]["systemd"]["units"] = units;
    let path = "/apis/machineconfiguration.openshift.io/v1/machineconfigs";
    let made = fixture.api_server.post(path, &unit);
    assert_eq!(made.code, 201, "{made:?}");
    let config = fixture.declare(json!({}), &member("member"));
    let mut pointer = fixture.pointer_config(Some(&fixture.token()));
    let source = &mut pointer["ignition"]["config"]["merge"][0]["source"];
    let url = source.as_str().unwrap().to_owned();
    let separator = if url.contains('?') { '&' } else { '?' };
    *source = format!("{url}{separator}etcd_index=2").into();
    let machine = power_on_new_machine(lab.machine("member").with_ignition(&pointer.to_string()));
    fixture.wait_done(&machine, &config);
    let assert_member = |text: &str| {
        assert_eq!(read(&machine, MEMBER), format!("{text} 2\n"));
        assert_eq!(read(&machine, TRIMMED), format!("{text}2!\n"));
        assert_eq!(read(&machine, "/run/member"), "member 2\n");
    };
    assert_member("member");

    // A daemon that starts compares the whole disk. It finds no drift.
    machine.sh("systemctl restart machinist-daemon").unwrap();
    let same = ["diff", "--live", "member", "--timeout", "120s"];
    assert!(fixture.machinist(&same).starts_with("member has what"));
    let node = fixture.wait_done(&machine, &config);
    assert!(node["metadata"]["annotations"]["machinist.dev/drifted"].is_null(), "{node}");

    // What someone changes by hand is healed to the index, not to the template.
    machine.write_file(MEMBER, "by hand\n").unwrap();
    wait_for("the drift", || {
        let node = fixture.api_server.get("/api/v1/nodes/member").body;
        Ok(node["metadata"]["annotations"]["machinist.dev/drifted"].is_string())
    })
    .unwrap();
    fixture.machinist(&["heal", "member", "--timeout", "120s"]);
    assert_member("member");

    // Nor does a later config, after its reboot.
    fixture.change(&json!({"config": {"storage": {"files": member("changed")}}}));
    wait_for("the config to change", || {
        let node = fixture.api_server.get("/api/v1/nodes/member").body;
        let key = "machineconfiguration.openshift.io/desiredConfig";
        Ok(node["metadata"]["annotations"][key] != config.as_str())
    })
    .unwrap();
    machine
        .wait_for("the changed config", |machine| {
            Ok(machine.sh(&format!("cat {MEMBER}"))? == "changed 2\n")
        })
        .unwrap();
    let node = fixture.api_server.get("/api/v1/nodes/member").body;
    let key = "machineconfiguration.openshift.io/desiredConfig";
    let changed = node["metadata"]["annotations"][key].as_str().unwrap().to_owned();
    fixture.wait_done(&machine, &changed);
    assert_member("changed");
}
