//! Managed user data: every pool has a Secret that points its machines at the server, on both API servers.
use anyhow::{Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use machinist_e2e::{ApiServer, Lab, binary, wait_for};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

const POOLS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools";
const SECRETS: &str = "/api/v1/namespaces/openshift-machine-api/secrets";

fn pool(name: &str) -> Value {
    let role = format!("node-role.kubernetes.io/{name}");
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": name},
        "spec": {
            "machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": name}},
            "nodeSelector": {"matchLabels": {role: ""}},
        },
    })
}

/// The pointer config in a pool's Secret.
fn pointer_config(api_server: &ApiServer, pool: &str) -> Result<Value> {
    let response = api_server.get(&format!("{SECRETS}/{pool}-user-data-managed"));
    ensure!(response.code == 200, "{response:?}");
    let data = response.body["data"]["userData"].as_str().unwrap_or_default();
    Ok(serde_json::from_slice(&BASE64_STANDARD.decode(data)?)?)
}

fn source(config: &Value) -> &str {
    config["ignition"]["config"]["merge"][0]["source"].as_str().unwrap_or_default()
}

fn authority(config: &Value) -> String {
    let authorities = &config["ignition"]["security"]["tls"]["certificateAuthorities"];
    let source = authorities[0]["source"].as_str().unwrap_or_default();
    let data = source.trim_start_matches("data:text/plain;charset=utf-8;base64,");
    String::from_utf8(BASE64_STANDARD.decode(data).unwrap_or_default()).unwrap()
}

/// The token that a machine sends.
fn header(config: &Value) -> &Value {
    &config["ignition"]["config"]["merge"][0]["httpHeaders"][0]["value"]
}

fn controller(
    lab: &Lab,
    api_server: &ApiServer,
    authority: &Path,
    token: &Path,
) -> machinist_e2e::lab::LabProcess {
    let mut controller = Command::new(binary::machinist_binary().unwrap());
    controller.args(["controller", "--metrics-listen-address", "127.0.0.1:0"]);
    controller.arg("--kubeconfig").arg(api_server.kubeconfig());
    controller.args(["--server-url", "https://api-int.example.com:22623"]);
    controller.arg("--server-ca-file").arg(authority).arg("--server-token-file").arg(token);
    lab.spawn("controller", &controller).unwrap()
}

#[test]
fn managed_user_data_on_kube_apiserver() {
    let api_server = ApiServer::openshift().unwrap();
    let lab = api_server.cluster().unwrap().lab().clone();
    let file = lab.dir().join("ca.crt");
    fs::write(&file, "first\n").unwrap();
    let token = lab.dir().join("token");
    fs::write(&token, "one.token\n").unwrap();
    // An upgrade: a Secret of an old installer exists, in Ignition spec 2.
    let old = br#"{"ignition":{"config":{"append":[{"source":"https://x:22623/config/worker"}]},"version":"2.2.0"}}"#;
    let old = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "worker-user-data"},
        "data": {"userData": BASE64_STANDARD.encode(old), "disableTemplating": "dHJ1ZQo="},
    });
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "openshift-machine-api"}});
    assert_eq!(api_server.post("/api/v1/namespaces", &namespace).code, 201);
    assert_eq!(api_server.post(SECRETS, &old).code, 201);
    assert_eq!(api_server.post(POOLS, &pool("worker")).code, 201);
    let _controller = controller(&lab, &api_server, &file, &token);
    let url = "https://api-int.example.com:22623/config/worker";
    wait_for("the secret of worker", || {
        Ok(pointer_config(&api_server, "worker").is_ok_and(|config| source(&config) == url))
    })
    .unwrap();
    let config = pointer_config(&api_server, "worker").unwrap();
    assert_eq!(
        (config["ignition"]["version"].as_str(), authority(&config).as_str()),
        (Some("3.5.0"), "first\n")
    );
    assert_eq!(header(&config), "Bearer one.token");
    let unmanaged = api_server.get(&format!("{SECRETS}/worker-user-data")).body;
    assert_eq!(unmanaged["data"], old["data"], "the unmanaged one is left alone");

    // A custom pool has its own Secret, owned by the pool.
    let made = api_server.post(POOLS, &pool("infra")).body;
    wait_for("the secret of infra", || Ok(pointer_config(&api_server, "infra").is_ok())).unwrap();
    let path = format!("{SECRETS}/infra-user-data-managed");
    let secret = api_server.get(&path).body;
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], made["metadata"]["uid"]);
    assert_eq!(secret["data"]["disableTemplating"], "dHJ1ZQo=");

    // A deleted Secret is created again. A changed one is restored, and the fields of others stay.
    assert_eq!(api_server.delete(&path, &json!({})).code, 200);
    wait_for("the secret again", || Ok(pointer_config(&api_server, "infra").is_ok())).unwrap();
    let patch = json!({"data": {"userData": "e30=", "disableTemplating": null, "mine": "eA=="},
        "metadata": {"labels": null, "ownerReferences": null}});
    assert_eq!(api_server.patch(&path, "merge-patch+json", &patch).code, 200);
    wait_for("the secret to be put right", || {
        let now = api_server.get(&path).body;
        let [labels, owners] = ["labels", "ownerReferences"].map(|field| &now["metadata"][field]);
        let [was_labels, was] =
            ["labels", "ownerReferences"].map(|field| &secret["metadata"][field]);
        let right = now["data"]["userData"] == secret["data"]["userData"];
        Ok(right && now["data"]["mine"] == "eA==" && labels == was_labels && owners == was)
    })
    .unwrap();

    // A new CA reaches every pool.
    fs::write(&file, "first\nsecond\n").unwrap();
    wait_for("the new CA", || {
        let is_new = |pool| {
            pointer_config(&api_server, pool)
                .is_ok_and(|config| authority(&config) == "first\nsecond\n")
        };
        Ok(is_new("worker") && is_new("infra"))
    })
    .unwrap();

    // And so does a new token.
    fs::write(&token, "two.token\n").unwrap();
    wait_for("the new token", || {
        let is_new = |pool| {
            pointer_config(&api_server, pool)
                .is_ok_and(|config| header(&config) == "Bearer two.token")
        };
        Ok(is_new("worker") && is_new("infra"))
    })
    .unwrap();

    // Nothing is written when nothing changes.
    let version = |path: &str| api_server.get(path).body["metadata"]["resourceVersion"].clone();
    let before = version(&path);
    assert_eq!(
        api_server
            .patch(
                &format!("{POOLS}/infra"),
                "merge-patch+json",
                &json!({"metadata": {"labels": {"a": "b"}}})
            )
            .code,
        200
    );
    // No garbage collector runs here, so the controller deletes the pool's Secret.
    assert_eq!(api_server.delete(&format!("{POOLS}/worker"), &json!({})).code, 200);
    let gone = || Ok(api_server.get(&format!("{SECRETS}/worker-user-data-managed")).code == 404);
    wait_for("the secret of a pool that is gone", gone).unwrap();
    assert_eq!(version(&path), before);
    assert_eq!(api_server.get(&format!("{SECRETS}/worker-user-data")).body["data"], old["data"]);
}

#[test]
fn the_hub_points_machines_at_its_own_server() {
    let lab = Lab::new().unwrap();
    let token = lab.dir().join("token");
    fs::write(&token, "a.token\n").unwrap();
    let token = token.to_str().unwrap();
    let api_server =
        ApiServer::hub_with(&["--server-listen", "127.0.0.1:0", "--server-token-file", token]);
    let api_server = api_server.unwrap();
    wait_for("the secret of worker", || Ok(pointer_config(&api_server, "worker").is_ok())).unwrap();
    let config = pointer_config(&api_server, "worker").unwrap();
    assert!(source(&config).starts_with("https://127.0.0.1:"), "{config}");
    assert!(authority(&config).contains("BEGIN CERTIFICATE"), "{config}");
    let header = &config["ignition"]["config"]["merge"][0]["httpHeaders"][0];
    assert_eq!(header, &json!({"name": "Authorization", "value": "Bearer a.token"}));
    // The same by hand.
    let server = source(&config).trim_end_matches("/config/worker");
    let ca = api_server.kubeconfig().with_file_name("pki").join("ca.crt");
    let ca = ca.to_str().unwrap();
    let common = ["pointer", "--pool", "worker", "--server-url", server, "--server-ca-file", ca];
    let by_hand = |form: &[&str]| {
        let arguments = [&common[..], &["--server-token-file", token], form].concat();
        let output = api_server.machinist(&arguments).unwrap();
        assert!(output.succeeded(), "{output:?}");
        output.stdout
    };
    assert_eq!(serde_json::from_str::<Value>(&by_hand(&[])).unwrap(), config);
    assert!(by_hand(&["--as", "script"]).contains("machinist once --root /"));
    let kernel = by_hand(&["--as", "kernel-arguments"]);
    assert!(kernel.contains("ignition.config.url=https://127.0.0.1:"), "{kernel}");
}
