//! Sealed configs end to end: the real Ignition sets a machine up without a secret, the machine enrols with its own key
//! when it boots, and an administrator approves it.

use crate::server::support::{
    CONFIGS, HubWithServer, POOLS, get, machine_config, object, start_server_with,
};
use machinist_e2e::ignition::pointer_config;
use machinist_e2e::{ApiServer, Lab, binary, wait_for};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use std::thread;

const SECRET: &str = "swordfish";

#[test]
fn a_machine_of_a_hub_enrols_and_gets_its_secrets() {
    let lab = Lab::new().unwrap();
    let url = format!("https://{}:22623", lab.address());
    let hub = HubWithServer::start(&lab, &["--server-anonymous", "--server-sealed", &url]);
    let (address, machinist) = (hub.address.clone(), |arguments: &[&str]| hub.machinist(arguments));
    let mut config = machine_config("50-greeting", "hello");
    config["metadata"]["labels"] = json!({"machineconfiguration.openshift.io/role": "worker"});
    config["metadata"]["annotations"] = json!({"machinist.dev/public-paths": "/etc/greeting"});
    config["spec"]["config"]["storage"]["files"].as_array_mut().unwrap().extend([
        json!({"path": "/etc/closed", "mode": 0o600, "overwrite": true,
            "contents": {"source": format!("data:,{SECRET}")}}),
        json!({"path": "/etc/named", "mode": 0o644, "overwrite": true,
            "contents": {"source": format!("data:,{SECRET}")}}),
    ]);
    // Anybody may read the greeting.
    config["spec"]["config"]["storage"]["files"][0]["mode"] = json!(0o644);
    let hash = "$6$salt$hash";
    config["spec"]["config"]["passwd"]["users"][0]["passwordHash"] = hash.into();
    let manifest = lab.dir().join("greeting.json");
    fs::write(&manifest, config.to_string()).unwrap();
    machinist(&["apply", "-f", manifest.to_str().unwrap()]);
    let served = || Ok(get(&address, "/config/worker").0 == 200);
    wait_for("the pool to be served", served).unwrap();
    let open = String::from_utf8(get(&address, "/config/worker").1).unwrap();
    assert!(open.contains("/etc/greeting") && open.contains("machinist-enrol.service"), "{open}");
    assert!(!open.contains(SECRET) && !open.contains(hash), "{open}");
    assert_eq!(get(&address, "/sealed/worker").0, 401);

    let mut pointer: Value =
        serde_json::from_str(&pointer_config(&format!("{url}/config/worker"), None)).unwrap();
    pointer["ignition"]["security"]["tls"]["certificateAuthorities"] =
        json!([{"source": hub.authority()}]);
    // One machine waits for approval. Its boot ends when it has everything.
    let machine = lab.machine("one").with_machinist().unwrap().with_ignition(&pointer.to_string());
    let machine = machine.build().unwrap();
    let mut line = String::new();
    thread::scope(|scope| {
        let booting = scope.spawn(|| machine.power_on());
        wait_for("the machine to ask", || {
            line = machinist(&["enrolment", "list"]).lines().nth(1).unwrap_or_default().to_owned();
            Ok(line.contains("pending"))
        })
        .unwrap();
        assert!(line.contains("worker") && line.contains(machine.address()), "{line}");
        assert!(!machine.exists("/etc/closed").unwrap());
        let id = line.split(' ').next().unwrap();
        machine.wait_for("it to show its id", |it| Ok(it.journal()?.contains(id))).unwrap();
        machinist(&["enrolment", "approve", id]);
        booting.join().unwrap().unwrap();
    });
    let id = line.split(' ').next().unwrap();
    assert!(machine.exists("/etc/machinist/enrolled").unwrap());
    for path in ["/etc/closed", "/etc/named"] {
        assert_eq!(machine.read_file(path).unwrap(), SECRET.as_bytes(), "{path}");
    }
    assert_eq!(machine.sh("stat -c %a /etc/closed").unwrap().trim(), "600");
    assert!(machine.sh("getent shadow core").unwrap().contains(hash));
    assert!(machine.exists("/etc/kubernetes/kubeconfig").unwrap());
    // Another one brings a token, which the author of the pointer config has added.
    let token = machinist(&["token", "create", "--pool=worker", "--uses=1"]);
    pointer["storage"]["files"] = json!([{"path": "/etc/machinist/enrol-token", "mode": 0o600,
        "contents": {"source": format!("data:,{token}")}}]);
    let machine = lab
        .machine("two")
        .with_machinist()
        .unwrap()
        .with_ignition(&pointer.to_string())
        .boot()
        .unwrap();
    assert!(machine.exists("/etc/machinist/enrolled").unwrap());
    assert_eq!(machine.read_file("/etc/closed").unwrap(), SECRET.as_bytes());
    assert!(!machine.exists("/etc/machinist/enrol-token").unwrap());
    let listed = machinist(&["enrolment", "list"]);
    let (token_id, token_secret) = token.split_once('.').unwrap();
    assert!(listed.contains(token_id), "{listed}");
    // A denied machine loses access immediately, even with a certificate.
    machinist(&["enrolment", "deny", id]);
    let log = hub.log();
    assert!(!log.contains(SECRET) && !log.contains(token_secret));
    let sealed = |line: &str| line.contains("part=\"sealed\"") && line.contains("status=200");
    assert!(log.lines().find(|line| sealed(line)).unwrap().contains(id), "{log}");
}

#[test]
fn a_cluster_keeps_enrolments_too() {
    let api_server = ApiServer::kubernetes().unwrap();
    let lab = api_server.cluster().unwrap().lab().clone();
    let namespace = "openshift-machine-config-operator";
    let made = api_server.kubectl(&["create", "namespace", namespace]).unwrap();
    assert!(made.code == 0 || made.stderr.contains("exists"), "{made:?}");
    let (config, address) = ("rendered-worker-1", lab.loopback());
    assert_eq!(api_server.post(CONFIGS, &machine_config(config, "hello")).code, 201);
    let pool = object("MachineConfigPool", "worker", &json!({"spec": {}}));
    assert_eq!(api_server.post(POOLS, &pool).code, 201);
    let status = json!({"status": {"configuration": {"name": config}}});
    let path = format!("{POOLS}/worker/status");
    assert_eq!(api_server.patch(&path, "merge-patch+json", &status).code, 200);
    let url = format!("https://{address}:22623");
    let authority = lab.dir().join("sealed-ca.crt");
    fs::write(&authority, "to be replaced").unwrap();
    let more = ["--sealed-url", &url, "--sealed-ca", authority.to_str().unwrap()];
    let server = start_server_with(&lab, &api_server, &more);
    wait_for("the pool to be served", || Ok(server.get("/config/worker").0 == 200)).unwrap();
    // What Ignition would have written.
    let root = lab.create_dir("root").unwrap();
    fs::create_dir_all(root.join("etc/machinist")).unwrap();
    let instructions = json!({"server": url, "pool": "worker"}).to_string();
    fs::write(root.join("etc/machinist/enrol.json"), instructions).unwrap();
    let certificate = server.authority.certificate();
    fs::write(root.join("etc/machinist/enrol-ca.crt"), certificate).unwrap();
    let enrol = |time: &str| {
        let mut command = Command::new(binary::machinist_binary().unwrap());
        command.args(["enrol", "--node-name=n1", "--timeout", time, "--root"]).arg(&root);
        command.output().unwrap()
    };
    // The enrolment is first pending, then denied, then approved.
    assert_eq!(enrol("1s").status.code(), Some(1));
    let listed = api_server.kubectl(&["get", "secrets", "-n", namespace, "-o", "name"]).unwrap();
    let secret = listed.stdout.lines().find(|line| line.contains("enrolment-"));
    let secret = secret.filter(|line| !line.contains("-ca")).unwrap().to_owned();
    for (word, code) in [("denied", 3), ("approved", 0)] {
        let label = format!("machinist.dev/enrolment={word}");
        let arguments = ["label", &secret, "-n", namespace, &label, "--overwrite"];
        assert_eq!(api_server.kubectl(&arguments).unwrap().code, 0);
        wait_for("the server to know", || Ok(enrol("10s").status.code() == Some(code))).unwrap();
    }
    // The token with which the machine joins the cluster is a secret, so it arrives this way.
    let kubeconfig = fs::read_to_string(root.join("etc/kubernetes/kubeconfig")).unwrap();
    assert!(kubeconfig.contains("a.secret"), "{kubeconfig}");
    let open = || String::from_utf8(server.get("/config/worker").1).unwrap();
    assert!(!open().contains("a.secret"), "{}", open());
    // A new CA is served without a restart.
    fs::write(&authority, "replaced").unwrap();
    wait_for("the other CA", || Ok(open().contains("data:,replaced"))).unwrap();
}
