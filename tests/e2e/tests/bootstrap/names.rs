//! The same manifests, with bootstrap and with the controller: the same names, the same bytes.

use crate::bootstrap::inputs::{DOCKER_CONFIG, bootstrap, bootstrap_inputs, write};
use crate::controller::fixture::ControllerFixture;
use anyhow::ensure;
use machinist_e2e::Lab;
use serde_json::Value;
use std::fs;

#[test]
fn bootstrap_and_the_controller_agree_on_the_hub() {
    assert_same_names(&ControllerFixture::hub());
}

#[test]
fn bootstrap_and_the_controller_agree_on_kube_apiserver_with_openshift_crds() {
    assert_same_names(&ControllerFixture::openshift());
}

fn assert_same_names(fixture: &ControllerFixture) {
    let lab = Lab::new().unwrap();
    let (manifests, out) = (lab.create_dir("manifests").unwrap(), lab.dir().join("out"));
    fixture.kubectl(&["create", "namespace", "openshift-config"]);
    let mut before = String::new();
    for (step, objects) in bootstrap_inputs() {
        // Referenced objects come first, as an installer creates them.
        for object in objects.iter().rev() {
            write(&manifests, object);
            fixture.apply(object);
        }
        let output = bootstrap(&manifests, &out, &[]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{step}: {stderr}");
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_ne!(before, summary["pools"].to_string(), "{step} changes nothing");
        before = summary["pools"].to_string();
        for made in summary["pools"].as_array().unwrap() {
            let pool = made["name"].as_str().unwrap();
            let name = made["rendered"].as_str().unwrap();
            fixture.wait_until(&format!("{step}: {pool} to have {name}"), || {
                let live = &fixture.get("mcp", pool)["spec"]["configuration"];
                ensure!(live["name"] == name, "the controller made {}", live["name"]);
                let source: Vec<&Value> =
                    live["source"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
                ensure!(
                    made["source"] == serde_json::to_value(&source)?,
                    "it was made of {source:?}"
                );
                Ok(())
            });
            // Read with the real kubectl.
            let path = out.join("machine-configs").join(format!("{name}.yaml"));
            let read = ["create", "--dry-run=client", "-o", "json", "-f", path.to_str().unwrap()];
            let written: Value = serde_json::from_str(&fixture.kubectl(&read)).unwrap();
            assert_eq!(written["spec"], fixture.get("mc", name)["spec"], "{step}: {pool}");
        }
    }
    // It makes no difference if the pull secret is in its own file.
    let secret = lab.dir().join("pull.json");
    fs::write(&secret, DOCKER_CONFIG).unwrap();
    fs::remove_file(manifests.join("Secret-pull-secret.json")).unwrap();
    let refused = bootstrap(&manifests, &out, &[]);
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && stderr.contains("--pull-secret"), "{stderr}");
    let output = bootstrap(&manifests, &out, &["--pull-secret", secret.to_str().unwrap()]);
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["pools"].to_string(), before);
}
