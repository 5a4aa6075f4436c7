//! Helpers for the tests of an installation.

use anyhow::{Context as _, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use kube::config::{KubeConfigOptions, Kubeconfig};
use machinist_e2e::{Cluster, block_on, cache, wait_for};
use serde_json::{Value, json};
use std::path::PathBuf;

/// The namespace of the components.
pub(crate) const NAMESPACE: &str = "openshift-machine-config-operator";
/// The components, by the names of their service accounts.
pub(crate) const OPERATOR: &str = "machine-config-operator";
pub(crate) const CONTROLLER: &str = "machine-config-controller";
pub(crate) const SERVER: &str = "machine-config-server";
pub(crate) const DAEMON: &str = "machine-config-daemon";

/// A directory of `deploy/`.
pub(crate) fn deploy(below: &str) -> PathBuf {
    cache::source_root().join("deploy").join(below)
}

/// Installs everything, as the documentation describes.
pub(crate) fn install(cluster: &Cluster) -> Result<()> {
    cluster.kubectl(&["apply", "-k", &deploy("").display().to_string()]).context("install")?;
    let kinds = ["wait", "crd", "--all", "--for=condition=Established", "--timeout=60s"];
    cluster.kubectl(&kinds).map(drop)
}

/// The token of a component, as `kubectl create token` returns it; with a pod's name, bound to that pod.
pub(crate) fn token(cluster: &Cluster, account: &str, pod: Option<&str>) -> Result<String> {
    let mut args = vec!["-n", NAMESPACE, "create", "token", account];
    if let Some(pod) = pod {
        args.extend(["--bound-object-kind=Pod", "--bound-object-name", pod]);
    }
    Ok(cluster.kubectl(&args)?.trim().to_owned())
}

/// A kubeconfig with only a token.
fn kubeconfig(url: &str, authority: &str, token: &str) -> Value {
    let authority = BASE64_STANDARD.encode(authority);
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {
            "server": url, "certificate-authority-data": authority,
        }}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    })
}

/// The same as a file.
pub(crate) fn kubeconfig_file(cluster: &Cluster, account: &str) -> Result<PathBuf> {
    let path = cluster.lab().dir().join(format!("{account}.kubeconfig"));
    let token = token(cluster, account, None)?;
    let text = kubeconfig(cluster.url(), cluster.authority().certificate(), &token).to_string();
    std::fs::write(&path, text)?;
    Ok(path)
}

/// A client with only a token.
pub(crate) fn client(cluster: &Cluster, token: &str) -> Result<kube::Client> {
    client_at(cluster.url(), cluster.authority().certificate(), token)
}

/// The same for any server.
pub(crate) fn client_at(url: &str, authority: &str, token: &str) -> Result<kube::Client> {
    let config: Kubeconfig = serde_json::from_value(kubeconfig(url, authority, token))?;
    block_on(async {
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(config, &options).await?;
        kube::Client::try_from(config).context("make a client")
    })
}

/// Any object as JSON, or null if it does not exist.
pub(crate) fn get(cluster: &Cluster, path: &str) -> Result<Value> {
    let request = http::Request::get(path).body(Vec::new())?;
    match block_on(cluster.client().request::<Value>(request)) {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Value::Null),
        output => Ok(output?),
    }
}

/// Merges a patch into any object.
pub(crate) fn merge(cluster: &Cluster, path: &str, patch: &Value) -> Result<()> {
    let request = http::Request::patch(path)
        .header("content-type", "application/merge-patch+json")
        .body(serde_json::to_vec(patch)?)?;
    block_on(cluster.client().request::<Value>(request)).map(drop).context(path.to_owned())
}

/// One condition of the operator, as `status reason: message`.
pub(crate) fn condition(cluster: &Cluster, type_: &str) -> Result<String> {
    let own = get(cluster, "/apis/operator.openshift.io/v1/machineconfigurations/cluster")?;
    let conditions = own["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let shown = |it: &Value| {
        format!("{} {}: {}", text(&it["status"]), text(&it["reason"]), text(&it["message"]))
    };
    let found = conditions.iter().find(|it| it["type"] == type_);
    Ok(found.map(shown).unwrap_or_default())
}

/// Waits until a condition starts with this text.
pub(crate) fn wait_condition(cluster: &Cluster, type_: &str, prefix: &str) -> Result<()> {
    wait_for(&format!("{type_} to be {prefix}"), || {
        let found = condition(cluster, type_)?;
        ensure!(found.starts_with(prefix), "{type_} is {found}");
        Ok(true)
    })
}
