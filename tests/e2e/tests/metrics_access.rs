//! Metrics over HTTPS, for clients with a token: with the reviews of a real kube-apiserver, and with those of the hub.

use crate::install::support::{CONTROLLER, DAEMON, OPERATOR, SERVER, install, kubeconfig_file};
use anyhow::{Context as _, Result, ensure};
use http_body_util::BodyExt as _;
use kube::client::Body;
use machinist_e2e::lab::LabProcess;
use machinist_e2e::{ApiServer, Cluster, Lab, binary, block_on, command, wait_for};
use std::process::Command;

/// A metric that each component has from its start.
const COMPONENTS: [(&str, &str, u16); 4] = [
    (OPERATOR, "machinist_operator_build_info", 8801),
    (CONTROLLER, "machinist_leading", 8802),
    (SERVER, "machinist_server_changed_seconds", 8803),
    (DAEMON, "mcd_config_drift", 8804),
];

/// The status and the text of a page. Without a CA, any certificate is accepted.
pub(crate) fn https_get(
    address: &str,
    path: &str,
    token: Option<&str>,
    ca: Option<&str>,
) -> Result<(u16, String)> {
    let mut config = kube::Config::new(format!("https://{address}").parse()?);
    config.accept_invalid_certs = ca.is_none();
    config.root_cert = ca.map(|pem| vec![der(pem)]);
    config.auth_info.token = token.map(|token| token.to_owned().into());
    config.default_retry = false;
    block_on(async {
        let client = kube::Client::try_from(config)?;
        let response = client.send(http::Request::get(path).body(Body::empty())?).await?;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
    })
}

fn der(pem: &str) -> Vec<u8> {
    use base64::prelude::{BASE64_STANDARD, Engine as _};
    let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    BASE64_STANDARD.decode(body).unwrap()
}

fn wait_for_status(address: &str, token: &str, expected: u16) -> String {
    let mut text = String::new();
    wait_for(&format!("{expected} at {address}"), || {
        let (status, found) = https_get(address, "/metrics", Some(token), None)?;
        ensure!(status == expected, "{status}: {found:.300}");
        text = found;
        Ok(true)
    })
    .unwrap();
    text
}

/// Starts a component with only the permissions of its own account.
fn start(cluster: &Cluster, component: &str, port: u16) -> (LabProcess, String) {
    let lab = cluster.lab();
    let address = format!("{}:{port}", lab.loopback());
    let mut process = Command::new(binary::machinist_binary().unwrap());
    match component {
        OPERATOR => process.args(["operator", "--image", "localhost/machinist:1"]),
        CONTROLLER => process.arg("controller"),
        SERVER => {
            let dir = lab.create_dir("server").unwrap();
            let names = [lab.loopback()];
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let certificate = cluster.authority().issue("server", &[], &names).unwrap();
            let (cert, key) = certificate.write_files(&dir, "tls").unwrap();
            process.args(["server", "start", "--allow-missing-controller-config"]);
            process.args(["--apiserver-url", cluster.url(), "--listen-address", &lab.loopback()]);
            process.arg("--cert").arg(cert).arg("--key").arg(key);
            process.arg("--bootstrap-token-dir").arg(dir)
        }
        _ => {
            let root = lab.create_dir("root").unwrap();
            std::fs::create_dir_all(root.join("etc")).unwrap();
            process.args(["daemon", "start", "--node-name", "a", "--root"]).arg(root)
        }
    };
    process.arg("--kubeconfig").arg(kubeconfig_file(cluster, component).unwrap());
    process.args(["--metrics-secure", "--metrics-listen", &address]);
    (lab.spawn(component, &process).unwrap(), address)
}

fn create_account(cluster: &Cluster, name: &str) {
    cluster.kubectl(&["create", "serviceaccount", name]).unwrap();
}

#[test]
fn every_component_verifies_tokens_with_a_real_api_server() {
    let cluster = Cluster::start().unwrap();
    install(&cluster).unwrap();
    for account in ["prometheus", "stranger"] {
        create_account(&cluster, account);
    }
    let role = ["--clusterrole=machinist-metrics-reader", "--serviceaccount=default:prometheus"];
    let binding = ["create", "clusterrolebinding", "prometheus", role[0], role[1]];
    cluster.kubectl(&binding).unwrap();
    // A token that is valid until the object is gone that it is bound to.
    cluster.kubectl(&["create", "secret", "generic", "bound"]).unwrap();
    let bound = ["--bound-object-kind=Secret", "--bound-object-name=bound"];
    let revoked = cluster.kubectl(&["create", "token", "prometheus", bound[0], bound[1]]).unwrap();
    cluster.kubectl(&["delete", "secret", "bound"]).unwrap();
    let reader = cluster.token("default", "prometheus").unwrap();
    let stranger = cluster.token("default", "stranger").unwrap();
    for (component, metric, port) in COMPONENTS {
        let (mut process, address) = start(&cluster, component, port);
        wait_for(&format!("{component} to listen"), || {
            process.check_alive()?;
            Ok(https_get(&address, "/healthz", None, None).is_ok())
        })
        .unwrap();
        let text = wait_for_status(&address, &reader, 200);
        assert!(text.contains(metric), "{component}: {text}");
        let text = wait_for_status(&address, &stranger, 403);
        assert!(text.contains("system:serviceaccount:default:stranger may not get"), "{text}");
        for bad in [revoked.trim(), "garbage", &format!("{reader}x")] {
            wait_for_status(&address, bad, 401);
        }
        let (status, text) = https_get(&address, "/metrics", None, None).unwrap();
        assert_eq!(status, 401, "{component}: {text}");
        assert!(!process.log().contains(&reader), "{component}: the log has a token");
    }
}

#[test]
fn a_component_that_may_not_review_tokens_serves_no_metrics_and_says_why() {
    let cluster = Cluster::start().unwrap();
    install(&cluster).unwrap();
    create_account(&cluster, "prometheus");
    let reader = cluster.token("default", "prometheus").unwrap();
    let binding = "machinist-metrics-token-reviews";
    cluster.kubectl(&["delete", "clusterrolebinding", binding]).unwrap();
    let (process, address) = start(&cluster, CONTROLLER, 8801);
    wait_for(
        "the controller to listen",
        || Ok(https_get(&address, "/healthz", None, None).is_ok()),
    )
    .unwrap();
    let text = wait_for_status(&address, &reader, 503);
    assert!(text.contains("the API server could not verify the token"), "{text}");
    let log = process.log();
    assert!(log.contains("system:auth-delegator") && log.contains("TokenReview"), "{log}");
    let probe = https_get(&address, "/readyz", None, None).unwrap();
    assert!(probe.0 == 200 || probe.0 == 503, "{probe:?}");
}

#[test]
fn the_hub_and_its_machines_verify_the_tokens_of_the_hub() {
    let lab = Lab::new().unwrap();
    let at = |port: u16| format!("{}:{port}", lab.loopback());
    let (data, root) = (lab.create_dir("data").unwrap(), lab.create_dir("root").unwrap());
    let kubeconfig = data.join("kubeconfig");
    let mut up = Command::new(binary::machinist_binary().unwrap());
    up.args(["up", "--metrics-secure", "--metrics-listen", &at(8797), "--api-listen", &at(6443)]);
    up.arg("--data-dir").arg(&data);
    let hub = ApiServer::start_hub(&lab, &up, &kubeconfig).unwrap();
    let token = |role: &str, more: &[&str]| {
        let data = data.display().to_string();
        let mut args = vec!["hub", "token", "--role", role, "--data-dir", data.as_str()];
        args.extend(more);
        let made = hub.machinist(&args).unwrap();
        assert_eq!(made.code, 0, "{made:?}");
        made.stdout.trim().to_owned()
    };
    let [metrics, viewer, admin, bootstrap] =
        ["metrics", "viewer", "admin", "bootstrap"].map(|role| token(role, &[]));
    let short = token("viewer", &["--ttl", "1s"]);
    std::thread::sleep(std::time::Duration::from_secs(2));

    std::fs::create_dir(root.join("etc")).unwrap();
    let mut join = Command::new(binary::machinist_binary().unwrap());
    join.args(["join", "--node-name", "a", "--root"]).arg(&root);
    join.args(["--metrics-secure", "--metrics-listen", &at(8798)]);
    command::run(join.arg("--kubeconfig").arg(&kubeconfig)).unwrap();
    let unit = root.join("etc/systemd/system/machinist-daemon.service");
    let unit = std::fs::read_to_string(&unit).context("the unit of the daemon").unwrap();
    let flags = format!(" --metrics-listen {} --metrics-secure\n", at(8798));
    assert!(unit.contains(&flags), "{unit}");
    let mut daemon = Command::new(binary::machinist_binary().unwrap());
    daemon.args(["daemon", "start", "--node-name", "a", "--register", "--root"]).arg(&root);
    daemon.arg("--kubeconfig").arg(root.join("var/lib/machinist/kubeconfig"));
    daemon.args(["--metrics-secure", "--metrics-listen", &at(8798)]);
    let _daemon = lab.spawn("daemon", &daemon).unwrap();

    for (address, metric) in [(at(8797), "machinist_hub_watches"), (at(8798), "mcd_config_drift")] {
        wait_for(&format!("{address} to listen"), || {
            Ok(https_get(&address, "/healthz", None, None).is_ok())
        })
        .unwrap();
        for token in [&metrics, &viewer, &admin] {
            let text = wait_for_status(&address, token, 200);
            assert!(text.contains(metric), "{text}");
        }
        wait_for_status(&address, &bootstrap, 403);
        for bad in [short.as_str(), "abcdef.garbage"] {
            wait_for_status(&address, bad, 401);
        }
    }
    // The hub serves metrics with its own certificate, which its CA has signed.
    let ca = std::fs::read_to_string(data.join("pki/ca.crt")).unwrap();
    let (status, _) = https_get(&at(8797), "/metrics", Some(&viewer), Some(&ca)).unwrap();
    assert_eq!(status, 200);
    let revoked = token("viewer", &[]);
    let id = revoked.split('.').next().unwrap();
    let data = data.display().to_string();
    let done = hub.machinist(&["hub", "token", "revoke", id, "--data-dir", &data]).unwrap();
    assert_eq!(done.code, 0, "{done:?}");
    wait_for_status(&at(8798), &revoked, 401);
}
