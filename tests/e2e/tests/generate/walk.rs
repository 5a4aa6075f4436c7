//! Each kind is created, changed and deleted with real kubectl; the pool rolls to exactly the right content, and back.

use super::site::{Site, file, machine_config};
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use machinist_e2e::fleet::Behaviour;
use serde_json::{Value, json};
use std::fs;

const REGISTRIES: &str = "/etc/containers/registries.conf";
const POLICY: &str = "/etc/containers/policy.json";
const PIDS: &str = "/etc/crio/crio.conf.d/01-ctrcfg-pidsLimit";
/// A key that nobody has the other half of.
const KEY: &str = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEvi3I5g0kQKrEOvQYkqCUPSMCSHeO\nyFn0kXrUmSgLFIvTUcDqyWlTxtjC8ov5cFFz1Wr1cE1yPjTLyvI2Fi5Ekw==\n-----END PUBLIC KEY-----\n";

#[test]
fn generated_configs_on_the_hub() {
    walk(Site::hub());
}

#[test]
fn generated_configs_on_a_real_api_server_with_the_crds_of_openshift() {
    walk(Site::openshift());
}

fn walk(mut site: Site) {
    for label in [
        "machineconfiguration.openshift.io/mco-built-in",
        "pools.operator.machineconfiguration.openshift.io/worker",
    ] {
        site.kubectl(&["label", "--overwrite", "mcp", "worker", &format!("{label}=")]);
    }
    site.apply(&file("00-worker", "worker", "/etc/base", "base"));
    let quick = Behaviour { apply: 0..=10, reboot: Some(0..=10), ..Behaviour::default() };
    site.populate(2, quick);
    let base = site.rendered("worker", "");
    mirrors(&site, &base);
    settings(&site, &base);
    names_of_old(&site, &base);
    policies(&site, &base);
    a_file_of_somebody_else(&site, &base);
    site.nothing_was_broken();
}

/// Mirrors and lists: what the machines get is what `machinist generate` shows.
fn mirrors(site: &Site, base: &str) {
    site.apply_example("mirrors.yaml");
    let folder = site.home.dir().join("generated");
    let arguments = ["generate", "--pool", "worker", "-f", "examples/mirrors.yaml", "-o"];
    let shown = [&arguments[..], &[folder.to_str().unwrap()]].concat();
    let answer = site.home.machinist(&shown).unwrap();
    assert!(answer.ok(), "{answer:?}");
    let files = folder.join("99-worker-generated-registries/files");
    for path in
        [REGISTRIES, POLICY, "/etc/containers/registries.conf.d/01-image-searchRegistries.conf"]
    {
        let shown = fs::read_to_string(files.join(&path[1..])).unwrap();
        site.until(&format!("{path} to be rendered"), || {
            let found = contents(site, path)?;
            ensure!(found == shown, "{found}\nis not\n{shown}");
            Ok(())
        });
    }
    site.updated("worker");
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
    site.until("the changes to be rendered", || {
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
    site.until("the pool to say what is wrong", || {
        let (status, message) = site.condition("worker", "GenerateDegraded");
        ensure!(status == "True" && message.contains(told), "{status} {message}");
        Ok(())
    });
    let events = site.kubectl(&["get", "events", "-o", "json"]);
    assert!(events.contains("InvalidSource"), "no event on {}", site.home.name);
    assert_eq!(version(), before, "on {}", site.home.name);
    if site.home.cluster().is_none() {
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
    back(site, base);
    let (status, _) = site.condition("worker", "GenerateDegraded");
    assert_eq!(status, "False", "on {}", site.home.name);
}

/// Settings of the container runtime, from the first to the one that is refused.
fn settings(site: &Site, base: &str) {
    site.apply_example("container-runtime.yaml");
    site.until("the limit to be rendered", || {
        let found = contents(site, PIDS)?;
        ensure!(found == "[crio]\n  [crio.runtime]\n    pids_limit = 4096\n", "{found}");
        Ok(())
    });
    site.updated("worker");
    let object = site.get("ctrcfg", "more-processes");
    assert_eq!(object["metadata"]["finalizers"], json!(["99-worker-generated-containerruntime"]));
    let suffix = "machineconfiguration.openshift.io/mc-name-suffix";
    assert_eq!(object["metadata"]["annotations"][suffix], "");
    says(site, "more-processes", "Success", "Success");

    // The younger one counts.
    site.apply(&runtime("second", 8192));
    site.until("the younger one to count", || {
        let found = contents(site, PIDS)?;
        ensure!(found.contains("pids_limit = 8192"), "{found}");
        Ok(())
    });
    assert_eq!(
        site.get("ctrcfg", "second")["metadata"]["finalizers"],
        json!(["99-worker-generated-containerruntime-1"])
    );

    // A mistake is told on the object, and the pool keeps what it has.
    let good = site.rendered("worker", "");
    site.apply(&runtime("second", 5));
    says(
        site,
        "second",
        "Failure",
        "spec.containerRuntimeConfig.pidsLimit: invalid PidsLimit 5 (use 20 or more",
    );
    site.until("the pool to know", || {
        let (status, message) = site.condition("worker", "GenerateDegraded");
        ensure!(status == "True" && message.contains("invalid PidsLimit 5"), "{status} {message}");
        Ok(())
    });
    assert_eq!(site.rendered("worker", ""), good);
    site.apply(&runtime("second", 8193));
    says(site, "second", "Success", "Success");
    site.until("the mended limit to be rendered", || {
        let found = contents(site, PIDS)?;
        ensure!(found.contains("pids_limit = 8193"), "{found}");
        Ok(())
    });
    let mut nowhere = runtime("nowhere", 100);
    nowhere["spec"]["machineConfigPoolSelector"] = json!({"matchLabels": {"no": "pool"}});
    site.apply(&nowhere);
    says(
        site,
        "nowhere",
        "Failure",
        "spec.machineConfigPoolSelector: could not find any MachineConfigPool",
    );
    site.kubectl(&["delete", "ctrcfg", "more-processes", "second", "nowhere", "--timeout=60s"]);
    back(site, base);
}

/// What was made under a name of old comes under its new one, and no machine is touched for it.
fn names_of_old(site: &Site, base: &str) {
    site.apply(&runtime("old", 5000));
    site.until("the limit to be rendered", || contents(site, PIDS).map(drop));
    let rendered = site.rendered("worker", "");
    let new = "99-worker-generated-containerruntime";
    let spec = site.get("mc", new)["spec"].clone();
    site.kubectl(&["delete", "ctrcfg", "old", "--timeout=60s"]);
    back(site, base);

    let uid = site.get("mcp", "worker")["metadata"]["uid"].as_str().unwrap().to_owned();
    let old = format!("99-worker-{uid}-containerruntime");
    site.apply(&machine_config(&old, "worker", &spec));
    site.until("the old one to be rendered", || {
        ensure!(site.rendered("worker", "") == rendered, "it is not");
        Ok(())
    });
    site.updated("worker");
    let mut object = runtime("old", 5000);
    object["metadata"]["finalizers"] = json!([old]);
    site.apply(&object);
    site.until("the old name to go", || {
        let names = site.kubectl(&["get", "mc", "-o", "name"]);
        ensure!(names.contains(new) && !names.contains(&old), "{names}");
        ensure!(site.get("ctrcfg", "old")["metadata"]["finalizers"] == json!([new]));
        Ok(())
    });
    site.updated("worker");
    assert_eq!(site.rendered("worker", ""), rendered, "on {}", site.home.name);
    site.kubectl(&["delete", "ctrcfg", "old", "--timeout=60s"]);
    back(site, base);
}

/// Whose signatures images must carry.
fn policies(site: &Site, base: &str) {
    site.apply(&policy("ClusterImagePolicy", "signed", None, "signed.example.com/team"));
    site.until("the policy to be rendered", || {
        let found: Value = serde_json::from_str(&contents(site, POLICY)?)?;
        let rule = &found["transports"]["docker"]["signed.example.com/team"][0];
        ensure!(rule["type"] == "sigstoreSigned" && rule["keyData"] == key(), "{found}");
        Ok(())
    });
    site.apply(&policy("ClusterImagePolicy", "signed", None, "signed.example.com"));
    site.until("the wider policy to be rendered", || {
        let found: Value = serde_json::from_str(&contents(site, POLICY)?)?;
        let docker = &found["transports"]["docker"];
        ensure!(docker["signed.example.com"][0]["keyData"] == key(), "{found}");
        ensure!(docker.get("signed.example.com/team").is_none(), "{found}");
        Ok(())
    });
    site.apply(&policy("ClusterImagePolicy", "signed", None, "signed.example.com/team"));
    site.apply(&policy("ImagePolicy", "ours", Some("default"), "other.example.com"));
    site.until("the policy of the namespace to be rendered", || {
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
    site.until("the policy to say that another one decides", || {
        let found = site.get("imagepolicy", "ours");
        let condition = &found["status"]["conditions"][0];
        ensure!(
            condition["reason"] == "ConflictScopes" && condition["type"] == "Pending",
            "{found}"
        );
        Ok(())
    });
    site.kubectl(&["delete", "imagepolicy/ours", "clusterimagepolicy/signed"]);
    back(site, base);
}

/// Seed 003's open question: a person's own `registries.conf` beside mirrors.
fn a_file_of_somebody_else(site: &Site, base: &str) {
    site.apply(&file("99-worker-zz-mine", "worker", REGISTRIES, "mine"));
    site.apply(&json!({
        "apiVersion": "operator.openshift.io/v1alpha1", "kind": "ImageContentSourcePolicy",
        "metadata": {"name": "seed"},
        "spec": {"repositoryDigestMirrors": [
            {"source": "quay.io/xiaoyun/test", "mirrors": ["hub.iefcu.cn/xiaoyun/test"]},
        ]},
    }));
    let (winner, loser) = ("99-worker-zz-mine", "99-worker-generated-registries");
    site.until("the pool to say who wins", || {
        let (status, message) = site.condition("worker", "GeneratedOverridden");
        let says = message.contains(&format!("{winner} wins over the generated {loser}"));
        ensure!(status == "True" && says, "{status} {message}");
        Ok(())
    });
    site.until("the other's file to count", || {
        let found = contents(site, REGISTRIES)?;
        ensure!(found == "mine", "{found}");
        Ok(())
    });
    site.kubectl(&["delete", "mc", winner]);
    site.until("the mirrors to count", || {
        let found = contents(site, REGISTRIES)?;
        ensure!(found.contains("hub.iefcu.cn/xiaoyun/test"), "{found}");
        ensure!(site.condition("worker", "GeneratedOverridden").0 == "False");
        Ok(())
    });
    site.kubectl(&["delete", "imagecontentsourcepolicy", "seed"]);
    back(site, base);
}

/// The pool is on the very config that it had before.
fn back(site: &Site, base: &str) {
    site.until("the first config to be back", || {
        let rendered = site.rendered("worker", "");
        ensure!(rendered == base, "{rendered} is not {base}");
        Ok(())
    });
    let left = site.kubectl(&["get", "mc", "-o", "name"]);
    assert!(!left.contains("-generated-"), "{left}");
    site.updated("worker");
}

/// What the last condition of a ContainerRuntimeConfig says.
fn says(site: &Site, name: &str, type_: &str, message: &str) {
    site.until(&format!("{name} to say {type_}"), || {
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
fn contents(site: &Site, path: &str) -> Result<String> {
    machinist_e2e::contents(&site.get("mc", &site.rendered("worker", "")), path)
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
