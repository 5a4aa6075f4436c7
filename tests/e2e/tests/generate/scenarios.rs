//! Each kind is created, changed and deleted with real kubectl; the pool rolls to exactly the right content, and back.

use super::site::{ControllerFixture, file, machine_config};
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use machinist_e2e::fleet::MachineBehaviour;
use serde_json::{Value, json};
use std::fs;

const REGISTRIES: &str = "/etc/containers/registries.conf";
const POLICY: &str = "/etc/containers/policy.json";
const PIDS: &str = "/etc/crio/crio.conf.d/01-ctrcfg-pidsLimit";
/// A key that nobody has the other half of.
const KEY: &str = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEvi3I5g0kQKrEOvQYkqCUPSMCSHeO\nyFn0kXrUmSgLFIvTUcDqyWlTxtjC8ov5cFFz1Wr1cE1yPjTLyvI2Fi5Ekw==\n-----END PUBLIC KEY-----\n";

#[test]
fn generated_configs_on_the_hub() {
    run_scenarios(ControllerFixture::hub());
}

#[test]
fn generated_configs_on_a_real_api_server_with_the_crds_of_openshift() {
    run_scenarios(ControllerFixture::openshift());
}

fn run_scenarios(mut site: ControllerFixture) {
    for label in [
        "machineconfiguration.openshift.io/mco-built-in",
        "pools.operator.machineconfiguration.openshift.io/worker",
    ] {
        site.kubectl(&["label", "--overwrite", "mcp", "worker", &format!("{label}=")]);
    }
    site.apply(&file("00-worker", "worker", "/etc/base", "base"));
    let quick =
        MachineBehaviour { apply: 0..=10, reboot: Some(0..=10), ..MachineBehaviour::default() };
    site.populate(2, quick);
    let base = site.wait_for_new_config("worker", "");
    mirrors(&site, &base);
    settings(&site, &base);
    legacy_names(&site, &base);
    policies(&site, &base);
    user_provided_registries_conf(&site, &base);
    site.assert_no_violations();
}

/// Mirrors and lists: what the machines get is what `machinist generate` shows.
fn mirrors(site: &ControllerFixture, base: &str) {
    site.apply_example("mirrors.yaml");
    let folder = site.api_server.dir().join("generated");
    let arguments = ["generate", "--pool", "worker", "-f", "examples/mirrors.yaml", "-o"];
    let shown = [&arguments[..], &[folder.to_str().unwrap()]].concat();
    let answer = site.api_server.machinist(&shown).unwrap();
    assert!(answer.succeeded(), "{answer:?}");
    let files = folder.join("99-worker-generated-registries/files");
    for path in
        [REGISTRIES, POLICY, "/etc/containers/registries.conf.d/01-image-searchRegistries.conf"]
    {
        let shown = fs::read_to_string(files.join(&path[1..])).unwrap();
        site.wait_until(&format!("{path} to be rendered"), || {
            let found = contents(site, path)?;
            ensure!(found == shown, "{found}\nis not\n{shown}");
            Ok(())
        });
    }
    site.wait_updated("worker");
    let owner = &site.get("mc", "99-worker-generated-registries")["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("Image"), &json!("cluster")));

    // A change of each reaches them; one that changes nothing for machines is not even written.
    let version =
        || site.get("mc", "99-worker-generated-registries")["metadata"]["resourceVersion"].clone();
    let mirrors = |field: &str| json!({"spec": {field: [{"source": "a.example.com", "mirrors": ["b.example.com/a"]}]}});
    let tags = json!({"spec": {"imageTagMirrors": [{"source": "c.example.com", "mirrors": ["d.example.com/c"]}]}});
    let lists = json!({"spec": {"registrySources": {"blockedRegistries": ["worse.example.org"]}}});
    for (object, change) in [
        ("imagedigestmirrorset/mirror", mirrors("imageDigestMirrors")),
        ("imagetagmirrorset/mirror", tags),
        ("image.config.openshift.io/cluster", lists),
    ] {
        site.kubectl(&["patch", object, "--type=merge", "-p", &change.to_string()]);
    }
    site.wait_until("the changes to be rendered", || {
        let found = contents(site, REGISTRIES)?;
        let has = |text: &str| found.contains(text);
        ensure!(has("location = \"b.example.com/a\"") && !has("/team\""), "{found}");
        ensure!(has("location = \"d.example.com/c\"") && !has("docker.io/library"), "{found}");
        ensure!(has("worse.example.org") && !has("untrusted.example.org"), "{found}");
        Ok(())
    });
    let before = version();
    site.kubectl(&["annotate", "imagedigestmirrorset", "mirror", "note=x"]);

    // A mistake is told where it is, and everything stays as it was.
    let bad = json!({"spec": {"repositoryDigestMirrors": [{"source": "https://x.io", "mirrors": ["y.io"]}]}});
    site.kubectl(&[
        "patch",
        "imagecontentsourcepolicy",
        "mirror-the-old-way",
        "--type=merge",
        "-p",
        &bad.to_string(),
    ]);
    let told = "ImageContentSourcePolicy mirror-the-old-way: spec.repositoryDigestMirrors[0].source: invalid format for source \"https://x.io\" (write host";
    site.wait_until("the pool to say what is wrong", || {
        let (status, message) = site.condition("worker", "GenerateDegraded");
        ensure!(status == "True" && message.contains(told), "{status} {message}");
        Ok(())
    });
    let events = site.kubectl(&["get", "events", "-o", "json"]);
    assert!(events.contains("InvalidSource"), "no event on {}", site.api_server.name);
    assert_eq!(version(), before, "on {}", site.api_server.name);
    if site.api_server.cluster().is_none() {
        let policy = site.get("imagecontentsourcepolicy", "mirror-the-old-way");
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
        site.kubectl(&["delete", kind]);
    }
    assert_config_restored(site, base);
    let (status, _) = site.condition("worker", "GenerateDegraded");
    assert_eq!(status, "False", "on {}", site.api_server.name);
}

/// Settings of the container runtime, from the first to the one that is refused.
fn settings(site: &ControllerFixture, base: &str) {
    site.apply_example("container-runtime.yaml");
    site.wait_until("the limit to be rendered", || {
        let found = contents(site, PIDS)?;
        ensure!(found == "[crio]\n  [crio.runtime]\n    pids_limit = 4096\n", "{found}");
        Ok(())
    });
    site.wait_updated("worker");
    let object = site.get("ctrcfg", "more-processes");
    assert_eq!(object["metadata"]["finalizers"], json!(["99-worker-generated-containerruntime"]));
    let suffix = "machineconfiguration.openshift.io/mc-name-suffix";
    assert_eq!(object["metadata"]["annotations"][suffix], "");
    assert_condition(site, "more-processes", "Success", "Success");

    // The younger one counts.
    site.apply(&runtime("second", 8192));
    site.wait_until("the younger one to count", || {
        let found = contents(site, PIDS)?;
        ensure!(found.contains("pids_limit = 8192"), "{found}");
        Ok(())
    });
    assert_eq!(
        site.get("ctrcfg", "second")["metadata"]["finalizers"],
        json!(["99-worker-generated-containerruntime-1"])
    );

    // A mistake is told on the object, and the pool keeps what it has.
    let good = site.wait_for_new_config("worker", "");
    site.apply(&runtime("second", 5));
    assert_condition(
        site,
        "second",
        "Failure",
        "spec.containerRuntimeConfig.pidsLimit: invalid PidsLimit 5 (use 20 or more",
    );
    site.wait_until("the pool to know", || {
        let (status, message) = site.condition("worker", "GenerateDegraded");
        ensure!(status == "True" && message.contains("invalid PidsLimit 5"), "{status} {message}");
        Ok(())
    });
    assert_eq!(site.wait_for_new_config("worker", ""), good);
    site.apply(&runtime("second", 8193));
    assert_condition(site, "second", "Success", "Success");
    site.wait_until("the mended limit to be rendered", || {
        let found = contents(site, PIDS)?;
        ensure!(found.contains("pids_limit = 8193"), "{found}");
        Ok(())
    });
    let mut nowhere = runtime("nowhere", 100);
    nowhere["spec"]["machineConfigPoolSelector"] = json!({"matchLabels": {"no": "pool"}});
    site.apply(&nowhere);
    assert_condition(
        site,
        "nowhere",
        "Failure",
        "spec.machineConfigPoolSelector: could not find any MachineConfigPool",
    );
    site.kubectl(&["delete", "ctrcfg", "more-processes", "second", "nowhere", "--timeout=60s"]);
    assert_config_restored(site, base);
}

/// What was made under a name of old comes under its new one, and no machine is touched for it.
fn legacy_names(site: &ControllerFixture, base: &str) {
    site.apply(&runtime("old", 5000));
    site.wait_until("the limit to be rendered", || contents(site, PIDS).map(drop));
    let rendered = site.wait_for_new_config("worker", "");
    let new = "99-worker-generated-containerruntime";
    let spec = site.get("mc", new)["spec"].clone();
    site.kubectl(&["delete", "ctrcfg", "old", "--timeout=60s"]);
    assert_config_restored(site, base);

    let uid = site.get("mcp", "worker")["metadata"]["uid"].as_str().unwrap().to_owned();
    let old = format!("99-worker-{uid}-containerruntime");
    site.apply(&machine_config(&old, "worker", &spec));
    site.wait_until("the old one to be rendered", || {
        ensure!(site.wait_for_new_config("worker", "") == rendered, "it is not");
        Ok(())
    });
    site.wait_updated("worker");
    let mut object = runtime("old", 5000);
    object["metadata"]["finalizers"] = json!([old]);
    site.apply(&object);
    site.wait_until("the old name to go", || {
        let names = site.kubectl(&["get", "mc", "-o", "name"]);
        ensure!(names.contains(new) && !names.contains(&old), "{names}");
        ensure!(site.get("ctrcfg", "old")["metadata"]["finalizers"] == json!([new]));
        Ok(())
    });
    site.wait_updated("worker");
    assert_eq!(site.wait_for_new_config("worker", ""), rendered, "on {}", site.api_server.name);
    site.kubectl(&["delete", "ctrcfg", "old", "--timeout=60s"]);
    assert_config_restored(site, base);
}

/// Whose signatures images must carry.
fn policies(site: &ControllerFixture, base: &str) {
    site.apply(&policy("ClusterImagePolicy", "signed", None, "signed.example.com/team"));
    site.wait_until("the policy to be rendered", || {
        let found: Value = serde_json::from_str(&contents(site, POLICY)?)?;
        let rule = &found["transports"]["docker"]["signed.example.com/team"][0];
        ensure!(rule["type"] == "sigstoreSigned" && rule["keyData"] == key(), "{found}");
        Ok(())
    });
    site.apply(&policy("ClusterImagePolicy", "signed", None, "signed.example.com"));
    site.wait_until("the wider policy to be rendered", || {
        let found: Value = serde_json::from_str(&contents(site, POLICY)?)?;
        let docker = &found["transports"]["docker"];
        ensure!(docker["signed.example.com"][0]["keyData"] == key(), "{found}");
        ensure!(docker.get("signed.example.com/team").is_none(), "{found}");
        Ok(())
    });
    site.apply(&policy("ClusterImagePolicy", "signed", None, "signed.example.com/team"));
    site.apply(&policy("ImagePolicy", "ours", Some("default"), "other.example.com"));
    site.wait_until("the policy of the namespace to be rendered", || {
        let found: Value =
            serde_json::from_str(&contents(site, "/etc/crio/policies/default.json")?)?;
        let docker = &found["transports"]["docker"];
        ensure!(docker["other.example.com"][0]["keyData"] == key(), "{found}");
        ensure!(docker["signed.example.com/team"][0]["keyData"] == key(), "{found}");
        Ok(())
    });
    let attached = contents(site, "/etc/containers/registries.d/sigstore-registries.yaml").unwrap();
    assert!(
        attached.contains("other.example.com")
            && attached.contains("use-sigstore-attachments: true")
    );
    site.apply(&policy("ImagePolicy", "ours", Some("default"), "signed.example.com/team/app"));
    site.wait_until("the policy to say that another one decides", || {
        let found = site.get("imagepolicy", "ours");
        let condition = &found["status"]["conditions"][0];
        ensure!(
            condition["reason"] == "ConflictScopes" && condition["type"] == "Pending",
            "{found}"
        );
        Ok(())
    });
    site.kubectl(&["delete", "imagepolicy/ours", "clusterimagepolicy/signed"]);
    assert_config_restored(site, base);
}

/// Seed 003's open question: a person's own `registries.conf` beside mirrors.
fn user_provided_registries_conf(site: &ControllerFixture, base: &str) {
    site.apply(&file("99-worker-zz-mine", "worker", REGISTRIES, "mine"));
    site.apply(&json!({
        "apiVersion": "operator.openshift.io/v1alpha1", "kind": "ImageContentSourcePolicy",
        "metadata": {"name": "seed"},
        "spec": {"repositoryDigestMirrors": [
            {"source": "quay.io/xiaoyun/test", "mirrors": ["hub.iefcu.cn/xiaoyun/test"]},
        ]},
    }));
    let (winner, loser) = ("99-worker-zz-mine", "99-worker-generated-registries");
    site.wait_until("the pool to say who wins", || {
        let (status, message) = site.condition("worker", "GeneratedOverridden");
        let says = message.contains(&format!("{winner} wins over the generated {loser}"));
        ensure!(status == "True" && says, "{status} {message}");
        Ok(())
    });
    site.wait_until("the other's file to count", || {
        let found = contents(site, REGISTRIES)?;
        ensure!(found == "mine", "{found}");
        Ok(())
    });
    site.kubectl(&["delete", "mc", winner]);
    site.wait_until("the mirrors to count", || {
        let found = contents(site, REGISTRIES)?;
        ensure!(found.contains("hub.iefcu.cn/xiaoyun/test"), "{found}");
        ensure!(site.condition("worker", "GeneratedOverridden").0 == "False");
        Ok(())
    });
    site.kubectl(&["delete", "imagecontentsourcepolicy", "seed"]);
    assert_config_restored(site, base);
}

/// The pool is on the very config that it had before.
fn assert_config_restored(site: &ControllerFixture, base: &str) {
    site.wait_until("the first config to be back", || {
        let rendered = site.wait_for_new_config("worker", "");
        ensure!(rendered == base, "{rendered} is not {base}");
        Ok(())
    });
    let left = site.kubectl(&["get", "mc", "-o", "name"]);
    assert!(!left.contains("-generated-"), "{left}");
    site.wait_updated("worker");
}

/// What the last condition of a ContainerRuntimeConfig says.
fn assert_condition(site: &ControllerFixture, name: &str, type_: &str, message: &str) {
    site.wait_until(&format!("{name} to say {type_}"), || {
        let object = site.get("ctrcfg", name);
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

/// A file of the config that the pool points at.
fn contents(site: &ControllerFixture, path: &str) -> Result<String> {
    machinist_e2e::machine_config_files::contents(
        &site.get("mc", &site.wait_for_new_config("worker", "")),
        path,
    )
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
