//! A kind whose CRD is installed after the controller has started takes effect from then on.

use crate::controller::fixture::openshift_pool;
use anyhow::ensure;
use machinist_e2e::{Cluster, binary, cluster, wait_with_timeout};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use std::time::Duration;

const RECONCILE_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn a_crd_installed_later_is_picked_up() {
    let cluster = Cluster::start().unwrap();
    let late = "imagetagmirrorsets.config.openshift.io.yaml";
    let all = cluster::crds::crd_files(&cluster::crds::our_crds()).unwrap();
    let (late, early): (Vec<_>, Vec<_>) = all.into_iter().partition(|path| path.ends_with(late));
    assert_eq!(late.len(), 1);
    cluster.install_crds(&early).unwrap();
    let dir = cluster.lab().create_dir("manifests").unwrap();
    let apply = |object: &Value| {
        let path = dir.join("object.json");
        fs::write(&path, object.to_string()).unwrap();
        cluster.kubectl(&["apply", "-f", path.to_str().unwrap()]).unwrap();
    };
    let mut pool = openshift_pool("worker");
    pool["metadata"]["labels"] = json!({"machineconfiguration.openshift.io/mco-built-in": ""});
    apply(&pool);
    apply(&mirrors("ImageDigestMirrorSet", "imageDigestMirrors", "early.example.com"));
    let mut controller = Command::new(binary::machinist_binary().unwrap());
    controller.args(["controller", "--kubeconfig"]).arg(cluster.kubeconfig());
    let _controller = cluster.lab().spawn("controller", &controller).unwrap();
    let mirrored = |source: &str| {
        wait_with_timeout(RECONCILE_TIMEOUT, &format!("{source} to be mirrored"), || {
            let name = "99-worker-generated-registries";
            let Ok(found) = cluster.kubectl(&["get", "mc", name, "-o", "json"]) else {
                return Ok(false);
            };
            let found: Value = serde_json::from_str(&found)?;
            let text = machinist_e2e::machine_config_files::contents(
                &found,
                "/etc/containers/registries.conf",
            )?;
            ensure!(text.contains("early.example.com"), "{text}");
            Ok(text.contains(source))
        })
        .unwrap();
    };
    mirrored("early.example.com");

    cluster.install_crds(&late).unwrap();
    apply(&mirrors("ImageTagMirrorSet", "imageTagMirrors", "late.example.com"));
    mirrored("late.example.com");
}

fn mirrors(kind: &str, field: &str, source: &str) -> Value {
    json!({
        "apiVersion": "config.openshift.io/v1", "kind": kind, "metadata": {"name": "mirror"},
        "spec": {field: [{"source": source, "mirrors": ["mirror.example.com/x"]}]},
    })
}
