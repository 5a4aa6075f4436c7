//! The kit's Ignition: the real binary sets up a root that then boots.

use machinist_e2e::ignition::pointer_config;
use machinist_e2e::pki::TestCa;
use machinist_e2e::{HttpServer, IgnitionRun, Lab};
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
    let machine = lab.machine("a").with_ignition(&config()).boot().unwrap();
    assert_eq!(machine.read_file("/etc/greeting").unwrap(), b"hello\n");
    let listed = machine.tree("/etc").unwrap();
    assert!(listed.get("/etc/greeting").unwrap().starts_with("0640 0:0 file 6 "));
    assert!(machine.exists("/var/marked").unwrap());
    assert_eq!(machine.sh("systemctl is-enabled mark.service").unwrap().trim(), "enabled");
    let keys = machine.read_file("/home/core/.ssh/authorized_keys.d/ignition").unwrap();
    assert!(String::from_utf8(keys).unwrap().contains("ssh-ed25519 AAAA test"));
    assert_eq!(machine.failed_units().unwrap(), Vec::<String>::new());
}

#[test]
fn a_pointer_config_is_followed_over_http_and_https() {
    let lab = Lab::new().unwrap();
    let ignition = IgnitionRun::new(&lab.create_dir("ignition").unwrap()).unwrap();
    let address = lab.loopback();
    let authority = TestCa::new("test").unwrap();
    let identity = authority.issue("server", &[], &[&address]).unwrap();
    let plain = HttpServer::http(&address).unwrap();
    let secure = HttpServer::https(&address, &identity).unwrap();
    for server in [&plain, &secure] {
        server.respond("/config/worker", config());
        let url = format!("{}/config/worker", server.url());
        let fetched = ignition.fetch(&pointer_config(&url, Some(&authority))).unwrap();
        assert_eq!(fetched["storage"]["files"][0]["path"], "/etc/greeting");
        let requests = server.requests();
        assert!(requests[0].headers["accept"].contains("version=3."), "{requests:?}");
        assert!(requests[0].headers["user-agent"].starts_with("Ignition/"), "{requests:?}");
    }
}
