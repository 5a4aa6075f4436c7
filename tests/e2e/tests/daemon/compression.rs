//! A large config travels compressed from the hub to a daemon: the bytes on the wire are counted.

use super::fixture::{HubFixture, file, files};
use machinist_e2e::{TcpProxy, binary, wait_for};
use serde_json::json;
use std::fs;
use std::process::Command;

const NODE: &str = "wire";

#[test]
fn a_large_config_travels_compressed() {
    let fixture = HubFixture::start();
    let lab = &fixture.lab;
    let address = format!("{}:6443", lab.address());
    let proxy = TcpProxy::start(&lab.address(), &address).unwrap();
    let kubeconfig = fs::read_to_string(&fixture.kubeconfig).unwrap();
    assert!(kubeconfig.contains(&address), "{kubeconfig}");
    let through_proxy = lab.dir().join("through-proxy");
    fs::write(&through_proxy, kubeconfig.replace(&address, &proxy.address().to_string())).unwrap();
    let root = lab.create_dir("root").unwrap();
    fs::create_dir_all(root.join("etc")).unwrap();
    let policy = json!({"files": [{"path": "/etc", "actions": [{"type": "None"}]}]});
    fixture.set_node_disruption_policy(&policy);

    let mut daemon = Command::new(binary::machinist_binary().unwrap());
    daemon.args(["daemon", "--register", "--label", "node-role.kubernetes.io/worker="]);
    daemon.args(["--node-name", NODE, "--kubeconfig"]).arg(&through_proxy).arg("--root").arg(&root);
    let mut daemon = lab.spawn("daemon", &daemon).unwrap();
    wait_for("the machine to join", || {
        daemon.check_alive()?;
        let node = machinist_e2e::block_on(fixture.nodes().get_opt(NODE))?;
        Ok(node.is_some() && fixture.annotation(NODE, "state") == "Done")
    })
    .unwrap();

    let text = "# a line of a large config, which has many that resemble it\n".repeat(4000);
    let before = proxy.bytes_sent();
    let config = fixture.apply_config("50-large", &files(&[file("/etc/large", &text)]));
    wait_for("the config", || {
        daemon.check_alive()?;
        Ok(fixture.annotation(NODE, "currentConfig") == config
            && fixture.annotation(NODE, "state") == "Done")
    })
    .unwrap();
    assert!(fs::read_to_string(root.join("etc/large")).unwrap() == text);
    let sent = proxy.bytes_sent() - before;
    // Each byte is three in the data URL, and all of it is read at least once.
    let plain = 3 * text.len() as u64;
    eprintln!("the daemon received {sent} bytes for a config of more than {plain}");
    assert!(sent < plain / 4, "{sent} bytes");
}
