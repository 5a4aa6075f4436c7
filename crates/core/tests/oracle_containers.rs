//! The libraries of podman, skopeo and CRI-O read the files that Machinist writes, with the
//! intended meaning.
//!
//! `containers/image` and `containers/storage` run in the oracle. CRI-O is not available as a Go
//! module, so the names and types of its settings come from its source and are recorded in
//! `tests/cases/crio-settings.json`.
use crate::support;

use std::collections::BTreeMap;

use machinist_core::api::MachineConfigPool;
use machinist_core::container_runtime::registries::RegistryInputs;
use machinist_core::container_runtime::registries_conf::RegistriesConf;
use machinist_core::generate::{GenerateOutput, GenerateSources, generate};
use machinist_core::generated_config::decoded_files;
use machinist_core::kubelet;
use machinist_core::profile::TemplateProfile;
use machinist_core::template::{self, builtin_templates};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use support::Oracle;

const LABEL: &str = "pools.operator.machineconfiguration.openshift.io/worker";
const REGISTRIES_CONF: &str = "/etc/containers/registries.conf";
const STORAGE_CONF: &str = "/etc/containers/storage.conf";
const BLOB: &str = "dGVzdC1rZXktZGF0YQ==";

/// Files by their paths.
type FilesByPath = BTreeMap<String, String>;

/// What is generated for workers from objects and, if requested, from the shipped templates.
fn made(objects: &[Value], with_templates: bool) -> GenerateOutput {
    fn typed<K: DeserializeOwned>(objects: &[Value], kind: &str) -> Vec<K> {
        let of_kind = objects.iter().filter(|object| object["kind"] == kind);
        of_kind.map(|object| serde_json::from_value(object.clone()).unwrap()).collect()
    }
    let image = typed(objects, "Image");
    let (icsp, idms) =
        (typed(objects, "ImageContentSourcePolicy"), typed(objects, "ImageDigestMirrorSet"));
    let (itms, policies) =
        (typed(objects, "ImageTagMirrorSet"), typed(objects, "ClusterImagePolicy"));
    let (of_namespaces, runtime) =
        (typed(objects, "ImagePolicy"), typed(objects, "ContainerRuntimeConfig"));
    let pool: MachineConfigPool = serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "worker", "labels": {
            LABEL: "", "machineconfiguration.openshift.io/mco-built-in": ""}},
        "spec": {"machineConfigSelector": {"matchLabels": {
            "machineconfiguration.openshift.io/role": "worker"}}},
    }))
    .unwrap();
    let facts = json!({"metadata": {"name": "machine-config-controller"}, "spec": {
        "clusterDNSIP": "10.96.0.10", "images": {"infraImageKey": "pause.example.com/pause:1"},
        "infra": {"status": {"platformStatus": {"type": "None"}}}}});
    let controller_config = serde_json::from_value(facts).unwrap();
    let (templates, gates) = (builtin_templates(TemplateProfile::Kubernetes), BTreeMap::new());
    let inputs = template::TemplateInputs {
        controller_config: &controller_config,
        pull_secret: Some(b"{}"),
        api_server: None,
    };
    let base = kubelet::KubeletSources { templates: &templates, inputs, gates: &gates, node: None };
    generate(&GenerateSources {
        pools: vec![&pool],
        images: RegistryInputs {
            image: image.first(),
            content_source_policies: icsp.iter().collect(),
            digest_mirror_sets: idms.iter().collect(),
            tag_mirror_sets: itms.iter().collect(),
            cluster_image_policies: policies.iter().collect(),
            image_policies: of_namespaces.iter().collect(),
            ..RegistryInputs::default()
        },
        container_runtime_configs: runtime.iter().collect(),
        templates: with_templates.then_some(base),
        ..GenerateSources::default()
    })
}

fn files(made: &GenerateOutput) -> FilesByPath {
    let configs = made.generated.iter().map(|generated| &generated.machine_config);
    let files = configs.flat_map(|config| decoded_files(config).unwrap());
    files.map(|file| (file.path, String::from_utf8(file.contents).unwrap())).collect()
}

/// The files of valid objects.
#[track_caller]
fn good(objects: &[Value], with_templates: bool) -> FilesByPath {
    let made = made(objects, with_templates);
    assert_eq!(made.errors, []);
    files(&made)
}

fn object(kind: &str, spec: &Value) -> Value {
    json!({"apiVersion": "x/v1", "kind": kind, "metadata": {"name": "cluster"}, "spec": spec})
}

fn policy(scope: &str, policy: &Value) -> Value {
    object("ClusterImagePolicy", &json!({"scopes": [scope], "policy": policy}))
}

fn runtime(settings: &Value) -> Value {
    let selector = json!({"matchLabels": {LABEL: ""}});
    let spec = json!({"machineConfigPoolSelector": selector, "containerRuntimeConfig": settings});
    object("ContainerRuntimeConfig", &spec)
}

fn text_of(path: &str) -> String {
    let path = format!("{}/../../tests/cases/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

/// Sends many texts to the oracle at once.
fn ask(op: &str, texts: &[&String]) -> Vec<Value> {
    let questions: Vec<Value> = texts.iter().map(|text| json!({"op": op, "text": text})).collect();
    Oracle::start().request_all(&questions)
}

#[test]
fn every_policy_is_read_completely() {
    let key = json!({"policyType": "PublicKey", "publicKey": {"keyData": BLOB}});
    let with_rekor = json!({"policyType": "PublicKey",
        "publicKey": {"keyData": BLOB, "rekorKeyData": BLOB}});
    let fulcio = json!({"policyType": "FulcioCAWithRekor", "fulcioCAWithRekor": {
        "fulcioCAData": BLOB, "rekorKeyData": BLOB,
        "fulcioSubject": {"oidcIssuer": "https://oidc.example.com", "signedEmail": "a@example.com"}}});
    let pki = |intermediates: bool, subject: Value| {
        let mut pki = json!({"caRootsData": BLOB, "pkiCertificateSubject": subject});
        if intermediates {
            pki["caIntermediatesData"] = json!(BLOB);
        }
        json!({"policyType": "PKI", "pki": pki})
    };
    let (email, host) = (json!({"email": "a@example.com"}), json!({"hostname": "h.example.com"}));
    let both = json!({"email": "a@example.com", "hostname": "h.example.com"});
    let roots = [
        key,
        with_rekor,
        fulcio,
        pki(false, email.clone()),
        pki(true, email),
        pki(true, host),
        pki(true, both),
    ];
    let identities = [
        Value::Null,
        json!({"matchPolicy": "MatchRepoDigestOrExact"}),
        json!({"matchPolicy": "MatchRepository"}),
        json!({"matchPolicy": "ExactRepository",
            "exactRepository": {"repository": "vendor.example.com/app"}}),
        json!({"matchPolicy": "RemapIdentity", "remapIdentity": {
            "prefix": "mirror.example.com/a", "signedPrefix": "vendor.example.com"}}),
    ];
    let mut objects = vec![object(
        "Image",
        &json!({"registrySources": {"allowedRegistries": ["example.com", "*.example.com", "example.com/a/b/c/d"]}}),
    )];
    for (at, root) in roots.iter().enumerate() {
        for (nth, identity) in identities.iter().enumerate() {
            let mut rule = json!({"rootOfTrust": root});
            if !identity.is_null() {
                rule["signedIdentity"] = identity.clone();
            }
            objects.push(policy(&format!("example.com/{at}/{nth}"), &rule));
            let mut of_namespace = policy(&format!("n.example.com/{at}/{nth}"), &rule);
            of_namespace["kind"] = json!("ImagePolicy");
            of_namespace["metadata"]["namespace"] = json!(format!("n{at}"));
            objects.push(of_namespace);
        }
    }
    let files = good(&objects, true);
    let ours =
        |path: &str| path.ends_with("/policy.json") || path.starts_with("/etc/crio/policies/");
    let texts: Vec<&String> =
        files.iter().filter(|(path, _)| ours(path)).map(|(_, text)| text).collect();
    assert_eq!(texts.len(), 1 + roots.len(), "{:?}", files.keys());
    for (text, answer) in texts.iter().zip(ask("policy", &texts)) {
        let ours: Value = serde_json::from_str(text).unwrap();
        assert_eq!(answer["policy"], ours, "{answer}");
    }
    let cluster: Value = serde_json::from_str(&files["/etc/containers/policy.json"]).unwrap();
    let rules = cluster["transports"]["docker"].as_object().unwrap();
    assert_eq!(rules.len(), 3 + roots.len() * identities.len());
}

#[test]
fn every_mirror_list_is_read_as_intended() {
    let mut compared = 0;
    let texts: Vec<String> = ["registries", "mirrors"]
        .iter()
        .flat_map(|name| {
            text_of(&format!("{name}.jsonl")).lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .filter_map(|line| files(&made(&objects_of(&line), false)).remove(REGISTRIES_CONF))
        .collect();
    let all: Vec<&String> = texts.iter().collect();
    for (text, answer) in texts.iter().zip(ask("registries-conf", &all)) {
        assert_eq!(answer["unknown"], json!([]), "{answer}\n{text}");
        assert_eq!(answer["encoded"], *text, "the bytes that Go's library writes");
        let ours = RegistriesConf::parse(text).unwrap();
        let theirs = answer["registries"].as_array().unwrap();
        assert_eq!(theirs.len(), ours.registries.len(), "{text}");
        for registry in &ours.registries {
            let prefix =
                if registry.prefix.is_empty() { &registry.location } else { &registry.prefix };
            let found = theirs.iter().find(|it| it["Prefix"] == *prefix);
            let found = found.unwrap_or_else(|| panic!("{prefix} was not found in\n{text}"));
            assert_eq!(found["Blocked"], registry.blocked, "{text}");
            assert_eq!(found["Insecure"], registry.insecure, "{text}");
            let mirrors: Vec<Value> = registry
                .mirrors
                .iter()
                .map(|it| {
                    json!({"Location": it.location, "Insecure": it.insecure,
                        "PullFromMirror": it.pull_from_mirror})
                })
                .collect();
            let found = found["Mirrors"].as_array().cloned().unwrap_or_default();
            assert_eq!(found, mirrors, "{text}");
            compared += 1;
        }
    }
    assert!(texts.len() > 100 && compared > 300, "{} files, {compared} entries", texts.len());
}

/// The objects of a recorded case.
fn objects_of(line: &str) -> Vec<Value> {
    let case: Value = serde_json::from_str(line).unwrap();
    let mut objects = Vec::new();
    for (field, kind) in [
        ("icsp", "ImageContentSourcePolicy"),
        ("idms", "ImageDigestMirrorSet"),
        ("itms", "ImageTagMirrorSet"),
    ] {
        for object in case[field].as_array().into_iter().flatten() {
            let mut object = object.clone();
            object["kind"] = json!(kind);
            object["apiVersion"] = json!("x/v1");
            objects.push(object);
        }
    }
    let image = match &case["image"] {
        Value::Null => json!({"registrySources": {
            "insecureRegistries": case["insecure"], "blockedRegistries": case["blocked"]}}),
        spec => spec.clone(),
    };
    objects.push(object("Image", &image));
    objects
}

#[test]
fn storage_settings_are_applied() {
    for (settings, expected) in [
        (json!({"overlaySize": "8G"}), vec!["overlay.size=8G"]),
        (json!({"overlaySize": "8192Mi"}), vec!["overlay.size=8Gi"]),
        (
            json!({"additionalLayerStores": [{"path": "/l"}], "additionalImageStores": [{"path": "/i"}]}),
            vec!["overlay.imagestore=/i", "overlay.additionallayerstore=/l:ref"],
        ),
    ] {
        for with_templates in [false, true] {
            let files = good(&[runtime(&settings)], with_templates);
            let answer = ask("storage-conf", &[&files[STORAGE_CONF]]).remove(0);
            assert_eq!(answer["unknown"], json!([]), "{answer}");
            assert_eq!(answer["driver"], "overlay", "{answer}");
            let mut found: Vec<&str> =
                answer["options"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            // The library reports the size twice.
            found.dedup();
            assert_eq!(found, expected);
        }
    }
}

#[test]
fn cri_o_knows_the_name_and_type_of_every_setting() {
    let known: Value = serde_json::from_str(&text_of("crio-settings.json")).unwrap();
    let all = runtime(&json!({
        "logLevel": "debug", "pidsLimit": 2048, "logSizeMax": "50Mi", "defaultRuntime": "crun",
        "additionalArtifactStores": [{"path": "/a/b"}],
    }));
    let files = good(&[all], true);
    let mut settings = 0;
    for (path, text) in files.iter().filter(|(path, _)| path.starts_with("/etc/crio/crio.conf.d/"))
    {
        let document: toml_edit::DocumentMut = text.parse().unwrap();
        let crio = document["crio"].as_table().unwrap();
        for (section, table) in crio.iter() {
            let types = &known["settings"][format!("crio.{section}")];
            for (name, value) in table.as_table().unwrap().iter() {
                let is_good = match types[name].as_str() {
                    Some("string") => value.is_str(),
                    Some("bool") => value.is_bool(),
                    Some("int64" | "int") => value.is_integer(),
                    Some("[]string") => value
                        .as_array()
                        .is_some_and(|list| list.iter().all(toml_edit::Value::is_str)),
                    _ => false,
                };
                assert!(is_good, "{path}: {section}.{name} is {} in CRI-O", types[name]);
                settings += 1;
            }
        }
    }
    assert_eq!(settings, 5 + 6, "five drop-ins, and what our templates set");
}
