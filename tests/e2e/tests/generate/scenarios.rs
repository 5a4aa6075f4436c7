//! Each kind is created, changed and deleted with the real kubectl; the pool rolls out exactly the right content, and
//! rolls back.

use crate::controller::fixture::{ControllerFixture, file, machine_config};
use anyhow::{Context as _, ensure};
use base64::Engine as _;
use serde_json::{Value, json};
use std::fs;

const REGISTRIES: &str = "/etc/containers/registries.conf";
const POLICY: &str = "/etc/containers/policy.json";
const PIDS: &str = "/etc/crio/crio.conf.d/01-ctrcfg-pidsLimit";
/// A public key whose private key nobody has.
const KEY: &str = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEvi3I5g0kQKrEOvQYkqCUPSMCSHeO\nyFn0kXrUmSgLFIvTUcDqyWlTxtjC8ov5cFFz1Wr1cE1yPjTLyvI2Fi5Ekw==\n-----END PUBLIC KEY-----\n";

#[test]
fn generated_configs_on_the_hub() {
    run_scenarios(ControllerFixture::hub());
}

#[test]
fn generated_configs_on_kube_apiserver_with_openshift_crds() {
    run_scenarios(ControllerFixture::openshift());
}

fn run_scenarios(mut fixture: ControllerFixture) {
    for label in [
        "machineconfiguration.openshift.io/mco-built-in",
        "pools.operator.machineconfiguration.openshift.io/worker",
    ] {
        fixture.kubectl(&["label", "--overwrite", "mcp", "worker", &format!("{label}=")]);
    }
    fixture.apply(&file("00-worker", "worker", "/etc/base", "base"));
    let base = fixture.populate_quick();
    mirrors(&fixture, &base);
    settings(&fixture, &base);
    legacy_names(&fixture, &base);
    policies(&fixture, &base);
    user_provided_registries_conf(&fixture, &base);
    fixture.assert_no_violations();
}

/// Mirrors and allow lists: the machines get what `machinist generate` shows.
fn mirrors(fixture: &ControllerFixture, base: &str) {
    fixture.apply_example("mirrors.yaml");
    let dir = fixture.api_server.dir().join("generated");
    let arguments = ["generate", "--pool", "worker", "-f", "examples/mirrors.yaml", "-o"];
    let shown = [&arguments[..], &[dir.to_str().unwrap()]].concat();
    let output = fixture.api_server.machinist(&shown).unwrap();
    assert!(output.succeeded(), "{output:?}");
    let files = dir.join("99-worker-generated-registries/files");
    for path in
        [REGISTRIES, POLICY, "/etc/containers/registries.conf.d/01-image-searchRegistries.conf"]
    {
        let shown = fs::read_to_string(files.join(&path[1..])).unwrap();
        fixture.wait_until(&format!("{path} to be rendered"), || {
            let found = fixture.rendered_file(path)?;
            ensure!(found == shown, "{found}\nis not\n{shown}");
            Ok(())
        });
    }
    fixture.wait_updated("worker");
    let owner =
        &fixture.get("mc", "99-worker-generated-registries")["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("Image"), &json!("cluster")));

    // A change of each kind reaches them; one that changes no content is not even written.
    let version = || {
        fixture.get("mc", "99-worker-generated-registries")["metadata"]["resourceVersion"].clone()
    };
    let mirrors = |field: &str| json!({"spec": {field: [{"source": "a.example.com", "mirrors": ["b.example.com/a"]}]}});
    let tags = json!({"spec": {"imageTagMirrors": [{"source": "c.example.com", "mirrors": ["d.example.com/c"]}]}});
    let lists = json!({"spec": {"registrySources": {"blockedRegistries": ["worse.example.org"]}}});
    for (object, change) in [
        ("imagedigestmirrorset/mirror", mirrors("imageDigestMirrors")),
        ("imagetagmirrorset/mirror", tags),
        ("image.config.openshift.io/cluster", lists),
    ] {
        fixture.kubectl(&["patch", object, "--type=merge", "-p", &change.to_string()]);
    }
    fixture.wait_until("the changes to be rendered", || {
        let found = fixture.rendered_file(REGISTRIES)?;
        let has = |text: &str| found.contains(text);
        ensure!(has("location = \"b.example.com/a\"") && !has("/team\""), "{found}");
        ensure!(has("location = \"d.example.com/c\"") && !has("docker.io/library"), "{found}");
        ensure!(has("worse.example.org") && !has("untrusted.example.org"), "{found}");
        Ok(())
    });
    let before = version();
    fixture.kubectl(&["annotate", "imagedigestmirrorset", "mirror", "note=x"]);

    // An error is reported with its location, and everything stays unchanged.
    let bad = json!({"spec": {"repositoryDigestMirrors": [{"source": "https://x.io", "mirrors": ["y.io"]}]}});
    fixture.kubectl(&[
        "patch",
        "imagecontentsourcepolicy",
        "mirror-the-old-way",
        "--type=merge",
        "-p",
        &bad.to_string(),
    ]);
    let expected = "ImageContentSourcePolicy mirror-the-old-way: spec.repositoryDigestMirrors[0].source: invalid format for source \"https://x.io\" (write host";
    fixture.wait_until("the pool to say what is wrong", || {
        let (status, message) = fixture.condition("worker", "GenerateDegraded");
        ensure!(status == "True" && message.contains(expected), "{status} {message}");
        Ok(())
    });
    let events = fixture.kubectl(&["get", "events", "-o", "json"]);
    assert!(events.contains("InvalidSource"), "no event on {}", fixture.api_server.name);
    assert_eq!(version(), before, "on {}", fixture.api_server.name);
    if fixture.api_server.cluster().is_none() {
        let policy = fixture.get("imagecontentsourcepolicy", "mirror-the-old-way");
        let last = policy["status"]["conditions"].as_array().and_then(|all| all.last()).cloned();
        let last = last.unwrap_or_default();
        assert!(
            last["type"] == "Failure"
                && last["message"].to_string().contains("spec.repositoryDigestMirrors[0].source"),
            "{policy}"
        );
    }

    for kind in [
        "imagecontentsourcepolicy/mirror-the-old-way",
        "imagedigestmirrorset/mirror",
        "imagetagmirrorset/mirror",
        "image.config.openshift.io/cluster",
    ] {
        fixture.kubectl(&["delete", kind]);
    }
    fixture.wait_restored(base, "-generated-");
    let (status, _) = fixture.condition("worker", "GenerateDegraded");
    assert_eq!(status, "False", "on {}", fixture.api_server.name);
}

/// Container runtime settings, from the first to a rejected one.
fn settings(fixture: &ControllerFixture, base: &str) {
    fixture.apply_example("container-runtime.yaml");
    fixture.wait_until("the limit to be rendered", || {
        let found = fixture.rendered_file(PIDS)?;
        ensure!(found == "[crio]\n  [crio.runtime]\n    pids_limit = 4096\n", "{found}");
        Ok(())
    });
    fixture.wait_updated("worker");
    let object = fixture.get("ctrcfg", "more-processes");
    assert_eq!(object["metadata"]["finalizers"], json!(["99-worker-generated-containerruntime"]));
    let suffix = "machineconfiguration.openshift.io/mc-name-suffix";
    assert_eq!(object["metadata"]["annotations"][suffix], "");
    assert_condition(fixture, "more-processes", "Success", "Success");

    // The newer one wins.
    fixture.apply(&runtime("second", 8192));
    fixture.wait_until("the younger one to count", || {
        let found = fixture.rendered_file(PIDS)?;
        ensure!(found.contains("pids_limit = 8192"), "{found}");
        Ok(())
    });
    assert_eq!(
        fixture.get("ctrcfg", "second")["metadata"]["finalizers"],
        json!(["99-worker-generated-containerruntime-1"])
    );

    // An error is reported on the object, and the pool keeps its config.
    let good = fixture.wait_for_new_config("worker", "");
    fixture.apply(&runtime("second", 5));
    assert_condition(
        fixture,
        "second",
        "Failure",
        "spec.containerRuntimeConfig.pidsLimit: invalid PidsLimit 5 (use 20 or more",
    );
    fixture.wait_until("the pool to know", || {
        let (status, message) = fixture.condition("worker", "GenerateDegraded");
        ensure!(status == "True" && message.contains("invalid PidsLimit 5"), "{status} {message}");
        Ok(())
    });
    assert_eq!(fixture.wait_for_new_config("worker", ""), good);
    fixture.apply(&runtime("second", 8193));
    assert_condition(fixture, "second", "Success", "Success");
    fixture.wait_until("the mended limit to be rendered", || {
        let found = fixture.rendered_file(PIDS)?;
        ensure!(found.contains("pids_limit = 8193"), "{found}");
        Ok(())
    });
    let mut nowhere = runtime("nowhere", 100);
    nowhere["spec"]["machineConfigPoolSelector"] = json!({"matchLabels": {"no": "pool"}});
    fixture.apply(&nowhere);
    assert_condition(
        fixture,
        "nowhere",
        "Failure",
        "spec.machineConfigPoolSelector: could not find any MachineConfigPool",
    );
    fixture.kubectl(&["delete", "ctrcfg", "more-processes", "second", "nowhere", "--timeout=60s"]);
    fixture.wait_restored(base, "-generated-");
}

/// A config generated under an old name is renamed without touching a machine.
fn legacy_names(fixture: &ControllerFixture, base: &str) {
    fixture.apply(&runtime("old", 5000));
    fixture.wait_until("the limit to be rendered", || fixture.rendered_file(PIDS).map(drop));
    let rendered = fixture.wait_for_new_config("worker", "");
    let new = "99-worker-generated-containerruntime";
    let spec = fixture.get("mc", new)["spec"].clone();
    fixture.kubectl(&["delete", "ctrcfg", "old", "--timeout=60s"]);
    fixture.wait_restored(base, "-generated-");

    let uid = fixture.get("mcp", "worker")["metadata"]["uid"].as_str().unwrap().to_owned();
    let old = format!("99-worker-{uid}-containerruntime");
    fixture.apply(&machine_config(&old, "worker", &spec));
    fixture.wait_until("the old one to be rendered", || {
        ensure!(fixture.wait_for_new_config("worker", "") == rendered, "it is not");
        Ok(())
    });
    fixture.wait_updated("worker");
    let mut object = runtime("old", 5000);
    object["metadata"]["finalizers"] = json!([old]);
    fixture.apply(&object);
    fixture.wait_until("the old name to go", || {
        let names = fixture.kubectl(&["get", "mc", "-o", "name"]);
        ensure!(names.contains(new) && !names.contains(&old), "{names}");
        ensure!(fixture.get("ctrcfg", "old")["metadata"]["finalizers"] == json!([new]));
        Ok(())
    });
    fixture.wait_updated("worker");
    assert_eq!(
        fixture.wait_for_new_config("worker", ""),
        rendered,
        "on {}",
        fixture.api_server.name
    );
    fixture.kubectl(&["delete", "ctrcfg", "old", "--timeout=60s"]);
    fixture.wait_restored(base, "-generated-");
}

/// Image signature policies.
fn policies(fixture: &ControllerFixture, base: &str) {
    fixture.apply(&policy("ClusterImagePolicy", "signed", None, "signed.example.com/team"));
    fixture.wait_until("the policy to be rendered", || {
        let found: Value = serde_json::from_str(&fixture.rendered_file(POLICY)?)?;
        let rule = &found["transports"]["docker"]["signed.example.com/team"][0];
        ensure!(rule["type"] == "sigstoreSigned" && rule["keyData"] == key(), "{found}");
        Ok(())
    });
    fixture.apply(&policy("ClusterImagePolicy", "signed", None, "signed.example.com"));
    fixture.wait_until("the wider policy to be rendered", || {
        let found: Value = serde_json::from_str(&fixture.rendered_file(POLICY)?)?;
        let docker = &found["transports"]["docker"];
        ensure!(docker["signed.example.com"][0]["keyData"] == key(), "{found}");
        ensure!(docker.get("signed.example.com/team").is_none(), "{found}");
        Ok(())
    });
    fixture.apply(&policy("ClusterImagePolicy", "signed", None, "signed.example.com/team"));
    fixture.apply(&policy("ImagePolicy", "ours", Some("default"), "other.example.com"));
    fixture.wait_until("the policy of the namespace to be rendered", || {
        let found: Value =
            serde_json::from_str(&fixture.rendered_file("/etc/crio/policies/default.json")?)?;
        let docker = &found["transports"]["docker"];
        ensure!(docker["other.example.com"][0]["keyData"] == key(), "{found}");
        ensure!(docker["signed.example.com/team"][0]["keyData"] == key(), "{found}");
        Ok(())
    });
    let attached =
        fixture.rendered_file("/etc/containers/registries.d/sigstore-registries.yaml").unwrap();
    assert!(
        attached.contains("other.example.com")
            && attached.contains("use-sigstore-attachments: true")
    );
    fixture.apply(&policy("ImagePolicy", "ours", Some("default"), "signed.example.com/team/app"));
    fixture.wait_until("the policy to say that another one decides", || {
        let found = fixture.get("imagepolicy", "ours");
        let condition = &found["status"]["conditions"][0];
        ensure!(
            condition["reason"] == "ConflictScopes" && condition["type"] == "Pending",
            "{found}"
        );
        Ok(())
    });
    fixture.kubectl(&["delete", "imagepolicy/ours", "clusterimagepolicy/signed"]);
    fixture.wait_restored(base, "-generated-");
}

/// A user's own `registries.conf` together with mirrors.
fn user_provided_registries_conf(fixture: &ControllerFixture, base: &str) {
    fixture.apply(&file("99-worker-zz-mine", "worker", REGISTRIES, "mine"));
    fixture.apply(&json!({
        "apiVersion": "operator.openshift.io/v1alpha1", "kind": "ImageContentSourcePolicy",
        "metadata": {"name": "seed"},
        "spec": {"repositoryDigestMirrors": [
            {"source": "quay.io/xiaoyun/test", "mirrors": ["hub.iefcu.cn/xiaoyun/test"]},
        ]},
    }));
    let (winner, loser) = ("99-worker-zz-mine", "99-worker-generated-registries");
    fixture.wait_until("the pool to say who wins", || {
        let (status, message) = fixture.condition("worker", "GeneratedOverridden");
        let says = message.contains(&format!("{winner} wins over the generated {loser}"));
        ensure!(status == "True" && says, "{status} {message}");
        Ok(())
    });
    fixture.wait_until("the other's file to count", || {
        let found = fixture.rendered_file(REGISTRIES)?;
        ensure!(found == "mine", "{found}");
        Ok(())
    });
    fixture.kubectl(&["delete", "mc", winner]);
    fixture.wait_until("the mirrors to count", || {
        let found = fixture.rendered_file(REGISTRIES)?;
        ensure!(found.contains("hub.iefcu.cn/xiaoyun/test"), "{found}");
        ensure!(fixture.condition("worker", "GeneratedOverridden").0 == "False");
        Ok(())
    });
    fixture.kubectl(&["delete", "imagecontentsourcepolicy", "seed"]);
    fixture.wait_restored(base, "-generated-");
}

/// The last condition of a ContainerRuntimeConfig.
fn assert_condition(fixture: &ControllerFixture, name: &str, type_: &str, message: &str) {
    fixture.wait_until(&format!("{name} to say {type_}"), || {
        let object = fixture.get("ctrcfg", name);
        let conditions = object["status"]["conditions"].as_array().context("no conditions")?;
        let last = conditions.last().context("no conditions")?;
        let text = last["message"].as_str().unwrap_or_default();
        ensure!(
            last["type"] == type_ && last["status"] == "True" && text.contains(message),
            "{object}"
        );
        ensure!(
            object["status"]["observedGeneration"] == object["metadata"]["generation"],
            "{object}"
        );
        Ok(())
    });
}

fn runtime(name: &str, pids: i64) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ContainerRuntimeConfig",
        "metadata": {"name": name},
        "spec": {
            "machineConfigPoolSelector": {"matchLabels": {
                "pools.operator.machineconfiguration.openshift.io/worker": "",
            }},
            "containerRuntimeConfig": {"pidsLimit": pids},
        },
    })
}

fn policy(kind: &str, name: &str, namespace: Option<&str>, scope: &str) -> Value {
    json!({
        "apiVersion": "config.openshift.io/v1", "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "scopes": [scope],
            "policy": {"rootOfTrust": {"policyType": "PublicKey", "publicKey": {"keyData": key()}}},
        },
    })
}

fn key() -> String {
    base64::engine::general_purpose::STANDARD.encode(KEY)
}
