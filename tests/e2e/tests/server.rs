//! The machine config server and the real Ignition: out of a folder, out of a hub, out of a Kubernetes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may panic as tests do")]

use machinist_e2e::ignition::pointer;
use machinist_e2e::lab::Process;
use machinist_e2e::pki::Authority;
use machinist_e2e::{Home, Lab, figures, program, wait_for};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Instant;

const API: &str = "machineconfiguration.openshift.io/v1";
const POOLS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools";
const CONFIGS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigs";
const OS_CONFIGS: &str = "/apis/machineconfiguration.openshift.io/v1/machineosconfigs";
const OS_BUILDS: &str = "/apis/machineconfiguration.openshift.io/v1/machineosbuilds";
const SPEC_3: &str = "application/vnd.coreos.ignition+json;version=3.5.0";

fn ignition_config(greeting: &str) -> Value {
    let unit = "[Service]\nType=oneshot\nExecStart=touch /var/marked\n[Install]\nWantedBy=multi-user.target\n";
    json!({
        "ignition": {"version": "3.5.0"},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA test"]}]},
        "storage": {"files": [{"path": "/etc/greeting", "mode": 0o640, "overwrite": true,
            "contents": {"source": format!("data:,{greeting}")}}]},
        "systemd": {"units": [{"name": "mark.service", "enabled": true, "contents": unit}]},
    })
}

fn object(kind: &str, name: &str, rest: &Value) -> Value {
    let mut object = rest.clone();
    object["apiVersion"] = API.into();
    object["kind"] = kind.into();
    object["metadata"]["name"] = name.into();
    object
}

fn machine_config(name: &str, greeting: &str) -> Value {
    let spec = json!({"config": ignition_config(greeting)});
    object("MachineConfig", name, &json!({"spec": spec}))
}

/// A server of a lab, with its certificate.
struct Server {
    address: String,
    process: Process,
    authority: Authority,
}

impl Server {
    /// Starts `machinist server` on the ports of the real system, at an address of the lab's own.
    fn start(lab: &Lab, address: String, arguments: &[&str]) -> Self {
        let folder = lab.folder("tls").unwrap();
        let authority = Authority::new("test").unwrap();
        let identity = authority.issue("server", &[], &[&address]).unwrap();
        let (certificate, key) = identity.write(&folder, "tls").unwrap();
        let mut command = Command::new(program::machinist().unwrap());
        command.arg("server").args(arguments).args(["--listen-address", &address]);
        command.arg("--cert").arg(certificate).arg("--key").arg(key);
        let process = lab.spawn("server", &command).unwrap();
        let mut server = Self { address, process, authority };
        server.wait();
        server
    }

    fn wait(&mut self) {
        let (process, address) = (&mut self.process, &self.address);
        wait_for("the server to listen", || {
            process.alive()?;
            Ok(TcpStream::connect((address.as_str(), 22624)).is_ok())
        })
        .unwrap();
    }

    fn get(&self, path: &str) -> (u16, Vec<u8>) {
        get(&self.address, path)
    }
}

/// Asks over plain HTTP.
fn get(address: &str, path: &str) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect((address, 22624)).unwrap();
    let head =
        format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {SPEC_3}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let status = String::from_utf8_lossy(&bytes[9..12]).parse().unwrap();
    (status, bytes[end + 4..].to_vec())
}

/// The contents of the greeting that machines of a pool get.
fn greeting(address: &str, pool: &str) -> Option<String> {
    let (status, body) = get(address, &format!("/config/{pool}"));
    if status != 200 {
        return None;
    }
    let config: Value = serde_json::from_slice(&body).unwrap();
    let files = config["storage"]["files"].as_array().unwrap();
    let file = files.iter().find(|file| file["path"] == "/etc/greeting").unwrap();
    Some(file["contents"]["source"].as_str().unwrap().trim_start_matches("data:,").to_owned())
}

/// Lets the real Ignition set up a machine, boots it, and looks at it.
#[track_caller]
fn ignite(lab: &Lab, name: &str, pointer: &str, greeting: &str) {
    let machine = lab.machine(name).ignite(pointer).boot().unwrap();
    let read = |path: &str| String::from_utf8(machine.get(path).unwrap()).unwrap();
    assert_eq!(read("/etc/greeting"), greeting);
    assert!(machine.exists("/var/marked").unwrap());
    assert!(read("/home/core/.ssh/authorized_keys.d/ignition").contains("ssh-ed25519 AAAA test"));
    let annotations: Value =
        serde_json::from_str(&read("/etc/machine-config-daemon/node-annotations.json")).unwrap();
    assert_eq!(annotations["machineconfiguration.openshift.io/state"], "Done");
    assert!(read("/etc/kubernetes/kubeconfig").contains("clusters:"));
    let inner: Value =
        serde_json::from_str(&read("/etc/ignition-machine-config-encapsulated.json")).unwrap();
    assert_eq!(inner["kind"], "MachineConfig");
    let whole: Value = serde_json::from_str(&read("/etc/mcs-machine-config-content.json")).unwrap();
    assert_eq!(whole["metadata"]["name"], inner["metadata"]["name"]);
}

/// Both ways to the same answer: with TLS, the token in a header, and without, the token in the URL.
fn ignite_both(lab: &Lab, authority: &str, pool: &str, text: &str, token: &str) {
    let address = lab.address();
    let secure = format!("https://{address}:22623/config/{pool}");
    let plain = format!("http://{address}:22624/config/{pool}?token={token}");
    for (name, url) in [("tls", secure), ("plain", plain)] {
        let mut config: Value = serde_json::from_str(&pointer(&url, None)).unwrap();
        if name == "tls" {
            config["ignition"]["config"]["merge"][0]["httpHeaders"] =
                json!([{"name": "Authorization", "value": format!("Bearer {token}")}]);
        }
        config["ignition"]["security"]["tls"]["certificateAuthorities"] =
            json!([{"source": authority}]);
        ignite(lab, name, &config.to_string(), text);
    }
}

fn write(folder: &Path, name: &str, object: &Value) {
    let path = folder.join(format!("{name}.yaml"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, object.to_string()).unwrap();
}

#[test]
fn ignition_starts_a_control_plane_machine_out_of_a_folder() {
    let lab = Lab::new().unwrap();
    let base = lab.folder("base").unwrap();
    write(
        &base,
        "machine-configs/rendered-master-1",
        &machine_config("rendered-master-1", "hello"),
    );
    let status = json!({"configuration": {"name": "rendered-master-1"}});
    let pool = object("MachineConfigPool", "master", &json!({"spec": {}, "status": status}));
    write(&base, "machine-pools/master", &pool);
    let spec = json!({"kubeAPIServerServingCAData": "Y2E="});
    let name = "machine-config-controller";
    let controller_config = object("ControllerConfig", name, &json!({"spec": spec}));
    write(&base, &format!("controller-config/{name}"), &controller_config);
    let kubeconfig = lab.dir().join("kubeconfig");
    fs::write(&kubeconfig, "clusters:\n- name: a\n  cluster: {server: 'https://api'}\n").unwrap();
    let (base, kubeconfig) = (base.to_str().unwrap(), kubeconfig.to_str().unwrap());
    let arguments = ["bootstrap", "--server-basedir", base, "--bootstrap-kubeconfig", kubeconfig];
    lab.bridge().unwrap();
    let server = Server::start(&lab, lab.address(), &arguments);
    ignite_both(&lab, &server.authority.data_url(), "master", "hello", "any");
    assert_eq!(server.get("/config/worker").0, 500);
}

#[test]
fn ignition_starts_a_machine_of_a_hub() {
    let lab = Lab::new().unwrap();
    lab.bridge().unwrap();
    let (data, address) = (lab.folder("data").unwrap(), lab.address());
    let listen = |port: u16| format!("{address}:{port}");
    let mut up = Command::new(program::machinist().unwrap());
    up.arg("up").arg("--data").arg(&data).args(["--api-listen", &listen(6443)]);
    up.args(["--server-listen", &listen(22623), "--server-insecure-listen", &listen(22624)]);
    let mut process = lab.spawn("up", &up).unwrap();
    wait_for("the server to listen", || {
        process.alive()?;
        Ok(TcpStream::connect((address.as_str(), 22624)).is_ok())
    })
    .unwrap();
    let kubeconfig = data.join("kubeconfig");
    let machinist = |arguments: &[&str]| {
        let mut command = Command::new(program::machinist().unwrap());
        let output = command.args(arguments).arg("--kubeconfig").arg(&kubeconfig).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let token = machinist(&["token", "create", "--all-pools"]);
    let status =
        |pool: &str, token: &str| get(&address, &format!("/config/{pool}?token={token}")).0;
    wait_for("the token to count", || Ok(status("worker", &token) != 401)).unwrap();
    // Nobody without a token; a pool that there is none of; pools for which nobody has declared anything yet.
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
    let authority = fs::read_to_string(data.join("pki/ca.crt")).unwrap();
    let authority: String = authority.bytes().map(|byte| format!("%{byte:02X}")).collect();
    ignite_both(&lab, &format!("data:,{authority}"), "worker", "hello", &token);
    // What is handed out holds no token of the hub.
    let (_, body) = get(&address, &format!("/config/worker?token={token}"));
    assert!(!String::from_utf8(body).unwrap().contains("token"));
    // A token for a pool, for a network, for two uses; one that is taken back.
    let twice = machinist(&["token", "create", "--pool=worker", "--uses=2"]);
    let elsewhere = machinist(&["token", "create", "--pool=worker", "--from=192.0.2.0/24"]);
    wait_for("the tokens to count", || Ok(status("worker", &elsewhere) != 401)).unwrap();
    assert_eq!(status("worker", &elsewhere), 403);
    assert_eq!(status("master", &twice), 403);
    let answers: Vec<u16> = (0..4).map(|_| status("worker", &twice)).collect();
    assert_eq!(answers, [200, 200, 401, 401]);
    // Nor do those get in too often who come at the same time.
    let thrice = machinist(&["token", "create", "--pool=worker", "--uses=3"]);
    wait_for("the token to count", || Ok(status("master", &thrice) == 403)).unwrap();
    let answers: Vec<u16> = thread::scope(|scope| {
        let ask = || scope.spawn(|| status("worker", &thrice));
        let asked: Vec<_> = (0..8).map(|_| ask()).collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(answers.iter().filter(|status| **status == 200).count(), 3, "{answers:?}");
    let listed = machinist(&["token", "list"]);
    assert!(listed.contains("2/2") && listed.contains("192.0.2.0/24"), "{listed}");
    machinist(&["token", "revoke", token.split_once('.').unwrap().0]);
    wait_for("the token to be revoked", || Ok(status("worker", &token) == 401)).unwrap();
    // No secret is in any log.
    let log = process.log() + &fs::read_to_string(data.join("audit.log")).unwrap();
    for token in [&token, &twice, &elsewhere] {
        let (id, secret) = token.split_once('.').unwrap();
        assert!(log.contains(id) && !log.contains(secret));
    }
}

/// `machinist server start` against a home.
fn serve_home(lab: &Lab, home: &Home) -> Server {
    let tokens = lab.folder("token").unwrap();
    fs::write(tokens.join("token"), "a.secret").unwrap();
    fs::write(tokens.join("ca.crt"), "PEM").unwrap();
    let arguments = [
        "start",
        "--apiserver-url=https://api:6443",
        "--allow-missing-controller-config",
        "--kubeconfig",
        home.kubeconfig().to_str().unwrap(),
        "--bootstrap-token-dir",
        tokens.to_str().unwrap(),
    ];
    Server::start(lab, lab.loopback(), &arguments)
}

/// A file that machines of a pool get.
fn file(address: &str, pool: &str, path: &str) -> Option<String> {
    let (status, body) = get(address, &format!("/config/{pool}"));
    let config: Value = serde_json::from_slice(&body).ok().filter(|_| status == 200)?;
    let files = config["storage"]["files"].as_array()?;
    let file = files.iter().find(|file| file["path"] == path)?;
    Some(file["contents"]["source"].as_str()?.to_owned())
}

#[test]
fn a_hub_can_be_served_from_outside() {
    let (home, lab) = (Home::hub().unwrap(), Lab::new().unwrap());
    let server = serve_home(&lab, &home);
    let address = lab.loopback();
    assert_eq!(server.get("/config/worker").0, 503);
    let mut config = machine_config("50-greeting", "hello");
    config["metadata"]["labels"] = json!({"machineconfiguration.openshift.io/role": "worker"});
    assert_eq!(home.post(CONFIGS, &config).code, 201);
    let served = || Ok(greeting(&address, "worker").as_deref() == Some("hello"));
    wait_for("the pool to be served", served).unwrap();
    // Whoever comes this way gets the token that the administrator has put there.
    let kubeconfig = file(&address, "worker", "/etc/kubernetes/kubeconfig").unwrap();
    assert!(kubeconfig.contains("token%3A%20a.secret"), "{kubeconfig}");
    drop(home);
    assert_eq!(greeting(&address, "worker").as_deref(), Some("hello"));
}

#[test]
fn machines_of_a_pool_with_its_own_image_start_with_it() {
    let home = Home::kubernetes().unwrap();
    let lab = home.cluster().unwrap().lab().clone();
    let (config, image) = ("rendered-worker-1", format!("quay.io/os/os@sha256:{}", "0".repeat(64)));
    assert_eq!(home.post(CONFIGS, &machine_config(config, "one")).code, 201);
    let spec = json!({"configuration": {"name": config}});
    let pool = object("MachineConfigPool", "worker", &json!({"spec": spec}));
    assert_eq!(home.post(POOLS, &pool).code, 201);
    let status = |path: &str, status: Value| {
        let patch = json!({"status": status});
        let answer = home.patch(&format!("{path}/status"), "merge-patch+json", &patch);
        assert_eq!(answer.code, 200, "{answer:?}");
    };
    status(&format!("{POOLS}/worker"), json!({"updatedMachineCount": 1}));
    let push = "quay.io/os/os:latest";
    let os_config = object(
        "MachineOSConfig",
        "worker",
        &json!({"spec": {
            "machineConfigPool": {"name": "worker"},
            "imageBuilder": {"imageBuilderType": "Job"},
            "renderedImagePushSecret": {"name": "push"},
            "renderedImagePushSpec": push,
        }}),
    );
    let answer = home.post(OS_CONFIGS, &os_config);
    assert_eq!(answer.code, 201, "{answer:?}");
    let build = object(
        "MachineOSBuild",
        "build",
        &json!({"spec": {
            "machineConfig": {"name": config},
            "machineOSConfig": {"name": "worker"},
            "renderedImagePushSpec": push,
        }}),
    );
    let answer = home.post(OS_BUILDS, &build);
    assert_eq!(answer.code, 201, "{answer:?}");
    let _server = serve_home(&lab, &home);
    let annotations = || {
        let path = "/etc/machine-config-daemon/node-annotations.json";
        file(&lab.loopback(), "worker", path).unwrap()
    };
    assert!(!annotations().contains("currentImage"));
    status(&format!("{OS_CONFIGS}/worker"), json!({"currentImagePullSpec": image}));
    let time = "2026-01-01T00:00:00Z";
    status(
        &format!("{OS_BUILDS}/build"),
        json!({"buildStart": time, "conditions": [{"type": "Succeeded", "status": "True",
            "reason": "Built", "message": "", "lastTransitionTime": time}]}),
    );
    wait_for("the image to be named", || Ok(annotations().contains("currentImage"))).unwrap();
    assert!(annotations().contains("os%40sha256%3A0000"), "{}", annotations());
}

#[test]
fn a_change_in_the_api_is_served_at_once_and_a_lost_api_is_no_loss() {
    let home = Home::kubernetes().unwrap();
    for (name, text) in [("rendered-worker-1", "one"), ("rendered-worker-2", "two")] {
        assert_eq!(home.post(CONFIGS, &machine_config(name, text)).code, 201);
    }
    let pool = object("MachineConfigPool", "worker", &json!({"spec": {}}));
    assert_eq!(home.post(POOLS, &pool).code, 201);
    let lab = home.cluster().unwrap().lab().clone();
    let address = lab.loopback();
    let server = serve_home(&lab, &home);
    assert_eq!(server.get("/config/none"), (404, Vec::new()));
    assert_eq!(server.get("/config/worker").0, 503);
    let mut fastest = u128::MAX;
    for round in 0..10 {
        let (name, text) = [("rendered-worker-1", "one"), ("rendered-worker-2", "two")][round % 2];
        let status = json!({"status": {"configuration": {"name": name}}});
        let path = format!("{POOLS}/worker/status");
        assert_eq!(home.patch(&path, "merge-patch+json", &status).code, 200);
        let start = Instant::now();
        while greeting(&address, "worker").as_deref() != Some(text) {
            assert!(start.elapsed().as_secs() < 60, "the change is not served");
        }
        fastest = fastest.min(start.elapsed().as_millis());
    }
    figures::record("server-change", format!("{fastest} ms")).unwrap();
    assert!(fastest <= 100, "{fastest} ms");
    // A pool that goes and comes.
    assert_eq!(home.delete(&format!("{POOLS}/worker"), &Value::Null).code, 200);
    wait_for("the pool to go", || Ok(get(&address, "/config/worker").0 == 404)).unwrap();
    assert_eq!(home.post(POOLS, &pool).code, 201);
    let status = json!({"status": {"configuration": {"name": "rendered-worker-1"}}});
    home.patch(&format!("{POOLS}/worker/status"), "merge-patch+json", &status);
    wait_for("the pool to come", || Ok(greeting(&address, "worker").is_some())).unwrap();
    drop(home);
    for _ in 0..20 {
        assert_eq!(greeting(&address, "worker").as_deref(), Some("one"));
    }
}
