//! The sealed split without an API: the open response holds no secret, and a token and a key of one's own open the rest.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::server::fixture::{
    ConfigServerProcess, IGNITION, MASTER, ServerFixture, TlsClient, paths, request_tls,
};

const SECRET: &str = "swordfish";

fn sealed_site() -> ServerFixture {
    let site = ServerFixture::new();
    let file = |path: &str, mode: u32, text: &str| json!({"path": path, "mode": mode, "contents": {"source": format!("data:,{text}")}});
    let text = format!("[Service]\nExecStart=/bin/x --password={SECRET}\n");
    site.config_with(
        "rendered-master-1",
        &json!({
            "storage": {"files": [
                file("/etc/open", 0o644, "open"),
                file("/etc/closed", 0o600, SECRET),
                file("/etc/named", 0o644, SECRET),
                file("/var/lib/kubelet/config.json", 0o644, SECRET),
                file("/etc/plain", 0o644, SECRET),
                file("/etc/db.yaml", 0o644, &format!("DB_PASSWORD:%20{SECRET}")),
                file("/etc/default/app", 0o644, &format!("API_KEY={SECRET}")),
                file("/etc/app.json", 0o644, &format!("%7B%22password%22:%20%22{SECRET}%22%7D")),
                file("/etc/NetworkManager/system-connections/wifi", 0o644, &format!("psk={SECRET}")),
                file("/etc/hostname", 0o644, "m1"),
            ]},
            "systemd": {"units": [
                {"name": "x.service", "contents": text},
                {"name": "y.service", "contents": format!("[Service]\nEnvironment=GITHUB_TOKEN={SECRET}\n")},
                {"name": "z.service", "dropins": [{"name": "a.conf",
                    "contents": format!("[Service]\nExecStart=/bin/z {SECRET}\n")}]},
                {"name": "masked.service", "mask": true},
            ]},
        }),
    );
    site.object(
        "machine-pools/master",
        "MachineConfigPool",
        &json!({
            "metadata": {"annotations": {
                "machinist.dev/public-paths": "/etc/open,/etc/named",
                "machinist.dev/sealed-paths": "/etc/named",
            }},
            "spec": {}, "status": {"configuration": {"name": "rendered-master-1"}},
        }),
    );
    site.write("kubeconfig", &format!("clusters:\n- name: {SECRET}\n"));
    site
}

/// A server with sealed configs.
fn serve(site: &ServerFixture) -> ConfigServerProcess {
    site.write("ca.crt", site.ca.certificate());
    let ca = site.path("ca.crt");
    // The port is known only when the server listens, so the test writes it to the machine.
    site.serve(&["--sealed-url=https://127.0.0.1:1", "--sealed-ca-file", ca.to_str().unwrap()])
}

/// Writes files as Ignition does.
fn ignite(root: &Path, response: &Value, server: &ConfigServerProcess) {
    for file in response["storage"]["files"].as_array().unwrap() {
        let path = root.join(file["path"].as_str().unwrap().trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let source = file["contents"]["source"].as_str().unwrap();
        fs::write(path, machinist_core::ignition::data_url::decode(source).unwrap()).unwrap();
    }
    let path = root.join("etc/machinist/enrol.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(path, text.replace("127.0.0.1:1\"", &format!("{}\"", server.secure))).unwrap();
}

fn enrol(root: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
    command.args(["enrol", "--node-name=m1", "--timeout=30s", "--root"]).arg(root).output().unwrap()
}

#[test]
fn a_machine_gets_its_secrets_with_its_key() {
    let site = sealed_site();
    let server = serve(&site);
    for version in ["2.2.0", "3.1.0", "3.5.0"] {
        let open = server.get(MASTER, &format!("{IGNITION};version={version}"));
        assert_eq!(open.status, 200, "{version}");
        assert!(!String::from_utf8_lossy(&open.body).contains(SECRET), "{version}");
    }
    let open = server.get(MASTER, &format!("{IGNITION};version=3.5.0")).json();
    assert!(open.to_string().contains("machinist-enrol.service"), "{open}");
    // What a machine needs to get there, what an administrator allows, and nothing else.
    let files =
        ["/etc/open", "/etc/hostname", "/etc/machinist/enrol.json", "/etc/machinist/enrol-ca.crt"];
    assert_eq!(paths(&open), files);
    let units = open["systemd"]["units"].as_array().unwrap();
    let units: Vec<_> = units.iter().map(|unit| unit["name"].as_str().unwrap()).collect();
    assert_eq!(units, ["masked.service", "machinist-enrol.service"]);
    let root = site.path("root");
    ignite(&root, &open, &server);
    assert!(root.join("etc/open").exists() && !root.join("etc/closed").exists());
    // Without an API server nobody can approve, so a token is required.
    let refused = enrol(&root);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    let file = site.path("base/provisioning-tokens.yaml");
    let file = format!("--tokens-file={}", file.display());
    let token = site.machinist(&["token", "create", &file, "--pool=master", "--uses=1"]);
    fs::write(root.join("etc/machinist/enrol-token"), &token).unwrap();
    let done = enrol(&root);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(fs::read_to_string(root.join("etc/closed")).unwrap(), SECRET);
    let mode = fs::metadata(root.join("etc/closed")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for path in [
        "etc/named",
        "etc/kubernetes/kubeconfig",
        "var/lib/kubelet/config.json",
        "etc/systemd/system/x.service",
        "etc/systemd/system/y.service",
        "etc/systemd/system/z.service.d/a.conf",
        "etc/plain",
        "etc/db.yaml",
        "etc/default/app",
        "etc/app.json",
        "etc/NetworkManager/system-connections/wifi",
    ] {
        assert!(fs::read_to_string(root.join(path)).unwrap().contains(SECRET), "{path}");
    }
    for path in
        ["etc/mcs-machine-config-content.json", "etc/ignition-machine-config-encapsulated.json"]
    {
        assert!(root.join(path).exists(), "{path}");
    }
    // The token is used up and removed; a second run does nothing.
    assert!(!root.join("etc/machinist/enrol-token").exists());
    let again = enrol(&root);
    assert!(again.status.success());
    assert!(String::from_utf8(again.stdout).unwrap().contains("already"));
    // An interrupted machine may repeat its request with the token that it used up.
    fs::remove_file(root.join("etc/machinist/enrolled")).unwrap();
    fs::write(root.join("etc/machinist/enrol-token"), &token).unwrap();
    assert!(enrol(&root).status.success());
    // The token is not valid for another key.
    fs::remove_file(root.join("etc/machinist/enrolled")).unwrap();
    fs::remove_file(root.join("etc/machinist/enrol.key")).unwrap();
    fs::write(root.join("etc/machinist/enrol-token"), &token).unwrap();
    assert_eq!(enrol(&root).status.code(), Some(3));
    // Neither log nor output contains a secret.
    let line = server.wait_for("part=\"sealed\"");
    let secret = token.trim().split_once('.').unwrap().1;
    for text in [line, format!("{done:?}")] {
        assert!(!text.contains(SECRET) && !text.contains(secret), "{text}");
    }
}

#[test]
fn nobody_else_gets_the_sealed_part() {
    let site = sealed_site();
    let server = serve(&site);
    let ask = |tls: &TlsClient<'_>| {
        request_tls(&site, &server, tls, "/sealed/master").map(|it| it.1.status)
    };
    assert_eq!(ask(&TlsClient::default()).unwrap(), 401);
    // On the port without TLS, too.
    assert_eq!(server.get("/sealed/master", "*/*").status, 401);
    assert_eq!(server.request("POST", "/enrol/master", &[("Content-Length", "0")]).status, 403);
    assert_eq!(server.request("DELETE", "/sealed/master", &[]).status, 405);
    // The right names from the wrong CA.
    let pair = site.ca.issue_client("machinist:enrolled:abc", "machinist:pool:master").unwrap();
    let identity = Some((pair.certificate.as_str(), pair.key.as_str()));
    assert!(!matches!(ask(&TlsClient { identity, ..TlsClient::default() }), Ok(200)));
}

#[test]
fn a_secret_that_cannot_be_sealed_is_not_served_at_all() {
    let site = sealed_site();
    let luks = json!([{"name": "a", "device": "/dev/a", "keyFile": {"source": "data:,swordfish"}}]);
    site.config_with("rendered-master-1", &json!({"storage": {"luks": luks}}));
    let server = serve(&site);
    let response = server.get(MASTER, &format!("{IGNITION};version=3.5.0"));
    assert_eq!((response.status, response.body.len()), (500, 0));
    let line = server.wait_for("cannot be sealed");
    assert!(line.contains("storage.luks") && !line.contains(SECRET), "{line}");
}

/// Patterns protect nothing, but they warn people who serve configs to everyone.
#[test]
fn a_server_without_sealing_warns_about_secrets() {
    let site = sealed_site();
    let server = site.serve(&[]);
    assert_eq!(server.get(MASTER, &format!("{IGNITION};version=3.5.0")).status, 200);
    let line = server.wait_for("looks like secrets");
    for path in ["/etc/closed", "/etc/db.yaml", "/etc/default/app", "/etc/app.json", "y.service"] {
        assert!(line.contains(path), "{path}: {line}");
    }
    assert!(!line.contains(SECRET) && !line.contains("/etc/open"), "{line}");
}
