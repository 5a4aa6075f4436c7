//! A tag in a registry with TLS and passwords: the cluster's pull secret gives access.

use super::{PINNED, apply_config, kubectl, rendered, wait_for_config_with, wait_for_event};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use machinist_e2e::image_registry::{PASSWORD, USER};
use machinist_e2e::pki::TestCa;
use machinist_e2e::{ApiServer, ContainerImage, ImageRegistry, Lab, binary, wait_for};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// A hub that trusts another CA in addition to those of its host.
fn hub(lab: &Lab, authority: &TestCa) -> ApiServer {
    let data = lab.create_dir("state/machinist").unwrap();
    let trusted = lab.dir().join("trusted.crt");
    fs::write(&trusted, authority.certificate()).unwrap();
    let mut up = Command::new(binary::machinist_binary().unwrap());
    up.arg("up").arg("--data").arg(&data).env("SSL_CERT_FILE", trusted);
    up.arg("--api-listen").arg(format!("{}:6443", lab.loopback()));
    ApiServer::start_hub(lab, &up, &data.join("kubeconfig")).unwrap()
}

/// Writes the cluster's pull secret.
fn put_secret(api_server: &ApiServer, contents: &Value) {
    let file = api_server.dir().join("pull-secret.json");
    fs::write(&file, contents.to_string()).unwrap();
    let from = format!("--from-file=.dockerconfigjson={}", file.display());
    let secret = ["pull-secret", "--namespace=openshift-config"];
    let gone = [&["delete", "--ignore-not-found", "secret"], &secret[..]].concat();
    kubectl(api_server, &gone);
    let kind = ["--type=kubernetes.io/dockerconfigjson", &from];
    kubectl(api_server, &[&["create", "secret", "generic"], &secret[..], &kind].concat());
}

#[test]
fn the_cluster_pull_secret_is_used_for_the_registry() {
    let (lab, authority) = (Lab::new().unwrap(), TestCa::new("registries").unwrap());
    let registry = ImageRegistry::start_with_auth(&lab, &authority).unwrap();
    let image = ContainerImage::new().file("etc/version", 0o644, "1");
    let first = registry.push("os/test:one", &image).unwrap();
    registry.push("os/test:two", &image).unwrap();
    let api_server = hub(&lab, &authority);
    let tag = |tag: &str| format!("{}/os/test:{tag}", registry.host());
    if !api_server.kubectl(&["get", "namespace", "openshift-config"]).unwrap().succeeded() {
        kubectl(&api_server, &["create", "namespace", "openshift-config"]);
    }

    // Rendering does not wait for the registry, but the remedy is reported.
    apply_config(&api_server, &tag("one"), "one");
    assert_eq!(
        wait_for_config_with(&api_server, "one")["metadata"]["annotations"][PINNED],
        Value::Null
    );
    wait_for_event(
        &api_server,
        &["OSImageNotPinned", "the pull secret has none for it: add an entry"],
    );
    let wrong = "not-the-password";
    put_secret(&api_server, &registry.pull_secret(wrong));
    apply_config(&api_server, &tag("two"), "two");
    let two = wait_for_config_with(&api_server, "two");
    assert_eq!(two["metadata"]["annotations"][PINNED], Value::Null);
    let expected = format!(
        "does not accept the credentials of the pull secret: correct its entry for {}",
        registry.host()
    );
    wait_for_event(&api_server, &["OSImageNotPinned", &expected]);

    // Afterwards the existing config is pinned, and machines may get it.
    put_secret(&api_server, &registry.pull_secret(PASSWORD));
    let name = two["metadata"]["name"].as_str().unwrap();
    let path = format!("{}/machineconfigs/{name}", super::API);
    wait_for("the config to be pinned", || {
        Ok(api_server.get(&path).body["metadata"]["annotations"][PINNED] == *first)
    })
    .unwrap();
    apply_config(&api_server, &tag("one"), "three");
    let three =
        rendered(&api_server, "worker", "the third", |it| it.to_string().contains("data:,three"));
    assert_eq!(three["metadata"]["annotations"][PINNED], *first);

    let events = api_server.get("/api/v1/namespaces/default/events").body.to_string();
    let output = fs::read_to_string(lab.dir().join("machinist-up.log")).unwrap() + &events;
    for password in [PASSWORD, wrong] {
        let encoded = BASE64_STANDARD.encode(format!("{USER}:{password}"));
        assert!(!output.contains(password) && !output.contains(&encoded), "{output}");
    }
}
