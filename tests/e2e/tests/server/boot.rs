//! Machines that the real Ignition sets up from our responses.

use crate::server::support::{
    HubWithServer, ServerProcess, get, machine_config, serve_directory_args,
};
use machinist_e2e::ignition::pointer_config;
use machinist_e2e::{Lab, wait_for};
use serde_json::{Value, json};
use std::fs;
use std::thread;

/// Lets the real Ignition set up a machine, boots it, and inspects it.
#[track_caller]
fn boot_with_ignition(lab: &Lab, name: &str, pointer: &str, greeting: &str) {
    let machine = lab.machine(name).with_ignition(pointer).boot().unwrap();
    let read = |path: &str| String::from_utf8(machine.read_file(path).unwrap()).unwrap();
    assert_eq!(read("/etc/greeting"), greeting);
    assert!(machine.exists("/var/marked").unwrap());
    assert!(read("/home/core/.ssh/authorized_keys.d/ignition").contains("ssh-ed25519 AAAA test"));
    let annotations: Value =
        serde_json::from_str(&read("/etc/machine-config-daemon/node-annotations.json")).unwrap();
    assert_eq!(annotations["machineconfiguration.openshift.io/state"], "Done");
    assert!(read("/etc/kubernetes/kubeconfig").contains("clusters:"));
    let inner: Value =
        serde_json::from_str(&read("/etc/ignition-machine-config-encapsulated.json")).unwrap();
    // As MCO writes it: from an API server without kind and apiVersion, which a bootstrap has read from a file.
    let kind = if name.starts_with("file-") { json!("MachineConfig") } else { Value::Null };
    assert_eq!(inner["kind"], kind);
    let whole: Value = serde_json::from_str(&read("/etc/mcs-machine-config-content.json")).unwrap();
    assert_eq!(whole["metadata"]["name"], inner["metadata"]["name"]);
}

/// Two ways to the same response: with TLS and the token in a header, and without TLS and the token in the URL.
fn boot_with_and_without_tls(lab: &Lab, authority: &str, pool: &str, text: &str, token: &str) {
    let address = lab.address();
    let is_from_file = pool == "master";
    let secure = format!("https://{address}:22623/config/{pool}");
    let plain = format!("http://{address}:22624/config/{pool}?token={token}");
    for (name, url) in [("tls", secure), ("plain", plain)] {
        let mut config: Value = serde_json::from_str(&pointer_config(&url, None)).unwrap();
        if name == "tls" {
            config["ignition"]["config"]["merge"][0]["httpHeaders"] =
                json!([{"name": "Authorization", "value": format!("Bearer {token}")}]);
        }
        config["ignition"]["security"]["tls"]["certificateAuthorities"] =
            json!([{"source": authority}]);
        let name = if is_from_file { format!("file-{name}") } else { name.to_owned() };
        boot_with_ignition(lab, &name, &config.to_string(), text);
    }
}

#[test]
fn ignition_starts_a_control_plane_machine_from_a_directory() {
    let lab = Lab::new().unwrap();
    let arguments = serve_directory_args(&lab);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    lab.create_bridge().unwrap();
    let server = ServerProcess::start(&lab, lab.address(), &arguments);
    boot_with_and_without_tls(&lab, &server.authority.data_url(), "master", "hello", "any");
    assert_eq!(server.get("/config/worker").0, 500);
}

#[test]
fn ignition_starts_a_machine_of_a_hub() {
    let lab = Lab::new().unwrap();
    let hub = HubWithServer::start(&lab, &[]);
    let (address, machinist) = (hub.address.clone(), |arguments: &[&str]| hub.machinist(arguments));
    let token = machinist(&["token", "create", "--all-pools"]);
    let status =
        |pool: &str, token: &str| get(&address, &format!("/config/{pool}?token={token}")).0;
    wait_for("the token to count", || Ok(status("worker", &token) != 401)).unwrap();
    // Without a token; an unknown pool; pools for which nothing is declared yet.
    assert_eq!(get(&address, "/config/worker"), (401, Vec::new()));
    assert_eq!(status("worker", "abcdef.wrong"), 401);
    assert_eq!(get(&address, &format!("/config/nothing?token={token}")), (404, Vec::new()));
    assert_eq!(status("worker", &token), 503);
    let mut config = machine_config("50-greeting", "hello");
    config["metadata"]["labels"] = json!({"machineconfiguration.openshift.io/role": "worker"});
    let manifest = lab.dir().join("greeting.json");
    fs::write(&manifest, config.to_string()).unwrap();
    machinist(&["apply", "-f", manifest.to_str().unwrap()]);
    wait_for("the pool to be served", || Ok(status("worker", &token) == 200)).unwrap();
    boot_with_and_without_tls(&lab, &hub.authority(), "worker", "hello", &token);
    // The response contains no token of the hub.
    let (_, body) = get(&address, &format!("/config/worker?token={token}"));
    assert!(!String::from_utf8(body).unwrap().contains("token"));
    // A token for a pool, for a network, for two uses; a revoked one.
    let twice = machinist(&["token", "create", "--pool=worker", "--uses=2"]);
    let elsewhere = machinist(&["token", "create", "--pool=worker", "--from=192.0.2.0/24"]);
    wait_for("the tokens to count", || Ok(status("worker", &elsewhere) != 401)).unwrap();
    assert_eq!(status("worker", &elsewhere), 403);
    assert_eq!(status("master", &twice), 403);
    let answers: Vec<u16> = (0..4).map(|_| status("worker", &twice)).collect();
    assert_eq!(answers, [200, 200, 401, 401]);
    // Concurrent requests do not exceed the number of uses either.
    let thrice = machinist(&["token", "create", "--pool=worker", "--uses=3"]);
    wait_for("the token to count", || Ok(status("master", &thrice) == 403)).unwrap();
    let answers: Vec<u16> = thread::scope(|scope| {
        let request = || scope.spawn(|| status("worker", &thrice));
        let requests: Vec<_> = (0..8).map(|_| request()).collect();
        requests.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(answers.iter().filter(|status| **status == 200).count(), 3, "{answers:?}");
    let listed = machinist(&["token", "list"]);
    assert!(listed.contains("2/2") && listed.contains("192.0.2.0/24"), "{listed}");
    machinist(&["token", "revoke", token.split_once('.').unwrap().0]);
    wait_for("the token to be revoked", || Ok(status("worker", &token) == 401)).unwrap();
    // No secret is in any log.
    let log = hub.log();
    for token in [&token, &twice, &elsewhere] {
        let (id, secret) = token.split_once('.').unwrap();
        assert!(log.contains(id) && !log.contains(secret));
    }
}
