//! The Ignition room of the kit: the real program sets up a root that then boots.

use machinist_e2e::ignition::pointer;
use machinist_e2e::pki::Authority;
use machinist_e2e::{Ignition, Lab, Server};
use serde_json::json;

fn config() -> String {
    let unit = "[Service]\nType=oneshot\nExecStart=touch /var/marked\n[Install]\nWantedBy=multi-user.target\n";
    json!({
        "ignition": {"version": "3.2.0"},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA test"]}]},
        "storage": {"files": [{"path": "/etc/greeting", "mode": 0o640,
            "contents": {"source": "data:,hello%0A"}}]},
        "systemd": {"units": [{"name": "mark.service", "enabled": true, "contents": unit}]},
    })
    .to_string()
}

#[test]
fn a_root_written_by_ignition_boots_with_its_units_enabled() {
    let lab = Lab::new().unwrap();
    let machine = lab.machine("a").ignite(&config()).boot().unwrap();
    assert_eq!(machine.get("/etc/greeting").unwrap(), b"hello\n");
    let listed = machine.tree("/etc").unwrap();
    assert!(listed.get("/etc/greeting").unwrap().starts_with("0640 0:0 file 6 "));
    assert!(machine.exists("/var/marked").unwrap());
    assert_eq!(machine.sh("systemctl is-enabled mark.service").unwrap().trim(), "enabled");
    let keys = machine.get("/home/core/.ssh/authorized_keys.d/ignition").unwrap();
    assert!(String::from_utf8(keys).unwrap().contains("ssh-ed25519 AAAA test"));
    assert_eq!(machine.failed_units().unwrap(), Vec::<String>::new());
}

#[test]
fn a_pointer_is_followed_plain_and_over_tls() {
    let lab = Lab::new().unwrap();
    let ignition = Ignition::new(&lab.folder("ignition").unwrap()).unwrap();
    let address = lab.loopback();
    let authority = Authority::new("test").unwrap();
    let identity = authority.issue("server", &[], &[&address]).unwrap();
    let plain = Server::http(&address).unwrap();
    let secure = Server::https(&address, &identity).unwrap();
    for server in [&plain, &secure] {
        server.answer("/config/worker", config());
        let url = format!("{}/config/worker", server.url());
        let fetched = ignition.fetch(&pointer(&url, Some(&authority))).unwrap();
        assert_eq!(fetched["storage"]["files"][0]["path"], "/etc/greeting");
        let asked = server.requests();
        assert!(asked[0].headers["accept"].contains("version=3."), "{asked:?}");
        assert!(asked[0].headers["user-agent"].starts_with("Ignition/"), "{asked:?}");
    }
}
