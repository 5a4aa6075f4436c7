//! Mirrors and registry lists with the results of the Machine Config Operator: equivalent files,
//! and an error where MCO fails.

use kube::ResourceExt as _;
use machinist_core::api::config::{Image, ImageDigestMirrorSet, ImageTagMirrorSet};
use machinist_core::api::{ImageContentSourcePolicy, MachineConfigPool};
use machinist_core::container_runtime::BaseFiles;
use machinist_core::container_runtime::registries::{
    POLICY_JSON, REGISTRIES_CONF, RegistryInputs, generate,
};
use machinist_core::container_runtime::registries_conf::{
    RegistriesConf, RegistryEntry, RegistryMirror,
};
use machinist_core::generated_config::{GeneratedConfig, decoded_files};
use serde_json::{Value, json};

fn objects<K: serde::de::DeserializeOwned>(values: &Value, kind: &str, group: &str) -> Vec<K> {
    let typed = |value: &Value| {
        let mut value = value.clone();
        value["kind"] = kind.into();
        value["apiVersion"] = group.into();
        serde_json::from_value(value).unwrap()
    };
    values.as_array().unwrap().iter().map(typed).collect()
}

fn cases(name: &str) -> Vec<Value> {
    let path = format!("{}/../../tests/cases/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The two files of a case, or the error.
fn answer(case: &Value) -> Result<(String, Value), String> {
    let config = "config.openshift.io/v1";
    let old: Vec<ImageContentSourcePolicy> =
        objects(&case["icsp"], "ImageContentSourcePolicy", "operator.openshift.io/v1alpha1");
    let digest: Vec<ImageDigestMirrorSet> = objects(&case["idms"], "ImageDigestMirrorSet", config);
    let tag: Vec<ImageTagMirrorSet> = objects(&case["itms"], "ImageTagMirrorSet", config);
    let image = match &case["image"] {
        Value::Null => json!([]),
        spec => json!([{"metadata": {"name": "cluster"}, "spec": spec}]),
    };
    let image: Vec<Image> = objects(&image, "Image", config);
    let inputs = RegistryInputs {
        image: image.first(),
        content_source_policies: old.iter().collect(),
        digest_mirror_sets: digest.iter().collect(),
        tag_mirror_sets: tag.iter().collect(),
        release_image: case["releaseImage"].as_str(),
        ..RegistryInputs::default()
    };
    let mut pool = MachineConfigPool::default();
    pool.metadata.name = Some("worker".to_owned());
    let base = BaseFiles {
        registries_conf: case["base"].as_str().unwrap().to_owned(),
        ..BaseFiles::default()
    };
    let found = generate(&inputs, &[(&pool, base.clone())]).map_err(|error| error.to_string())?;
    if let Some(error) = found.release_not_blocked {
        return Err(error.to_string());
    }
    let mut files = Vec::new();
    for GeneratedConfig { machine_config, .. } in &found.generated {
        assert_eq!(machine_config.name_any(), "99-worker-generated-registries");
        files.extend(decoded_files(machine_config).unwrap());
    }
    let text = |path: &str, otherwise: &str| {
        let file = files.iter().find(|file| file.path == path);
        file.map_or(otherwise.to_owned(), |file| String::from_utf8(file.contents.clone()).unwrap())
    };
    let policy = text(POLICY_JSON, &base.policy_json);
    let conf = text(REGISTRIES_CONF, &base.registries_conf);
    Ok((conf, serde_json::from_str(&policy).unwrap()))
}

#[test]
fn registries_and_policies_mean_the_same() {
    let cases = cases("registries");
    let mut failures = Vec::new();
    for case in &cases {
        let (id, expect) = (&case["id"], &case["expect"]);
        let problem = match (answer(case), expect["error"].as_str()) {
            (Ok((conf, policy)), None) => {
                let expected = expect["registriesConf"].as_str().unwrap();
                let same = RegistriesConf::parse(&conf) == RegistriesConf::parse(expected);
                if !same {
                    Some(format!("{conf}\nexpected\n{expected}"))
                } else if policy != expect["policyJson"] {
                    Some(format!("{policy}\nexpected\n{}", expect["policyJson"]))
                } else {
                    None
                }
            }
            // Which of several mistakes is reported first does not matter.
            (Err(_), Some(_)) => None,
            (Ok(_), Some(expected)) => Some(format!("expected {expected}")),
            (Err(error), None) => Some(format!("unexpected: {error}")),
        };
        failures.extend(problem.map(|problem| format!("{id}: {problem}")));
    }
    let count = failures.len();
    assert!(failures.is_empty(), "{count} of {} differ:\n{}", cases.len(), failures.join("\n"));
}

/// Random mirrors and lists, with the results of the library that MCO uses.
#[test]
fn mirrors_insecure_and_blocked_registries_combine_as_in_mco() {
    let cases = cases("mirrors");
    let mut failures = Vec::new();
    for case in &cases {
        let (id, expect) = (&case["id"], &case["expect"]);
        let mut case = case.clone();
        case["image"] = json!({"registrySources": {
            "insecureRegistries": case["insecure"], "blockedRegistries": case["blocked"],
        }});
        case["base"] = json!("");
        let found = answer(&case).map(|(conf, _)| RegistriesConf::parse(&conf).unwrap());
        let same = match (&found, expect["error"].as_str()) {
            (Ok(conf), None) => shown(conf) == expect["registries"],
            // MCO reports an internal error for mirrors of a wildcard that cannot be converted.
            (Err(error), Some(text)) => error.contains(text) || text.contains("internal error"),
            _ => false,
        };
        if !same {
            failures.push(format!("{id}: {found:?}\nexpected {expect}"));
        }
    }
    let count = failures.len();
    assert!(failures.is_empty(), "{count} of {} differ:\n{}", cases.len(), failures.join("\n"));
}

/// The order of the objects does not affect the result.
#[test]
fn the_order_of_objects_does_not_matter() {
    for mut case in cases("mirrors") {
        case["image"] = json!({"registrySources": {
            "insecureRegistries": case["insecure"], "blockedRegistries": case["blocked"],
        }});
        case["base"] = json!("");
        let forwards = answer(&case);
        for kind in ["icsp", "idms", "itms"] {
            case[kind].as_array_mut().unwrap().reverse();
        }
        let backwards = answer(&case);
        assert_eq!(forwards.is_ok(), backwards.is_ok(), "{}", case["id"]);
        if forwards.is_ok() {
            assert_eq!(forwards, backwards, "{}", case["id"]);
        }
    }
}

/// The entries of a file in the notation of the cases: only what is set.
fn shown(conf: &RegistriesConf) -> Value {
    let set = |fields: &[(&str, Value)]| {
        let nothing = [json!(""), json!(false), json!([])];
        let set = fields.iter().filter(|(_, value)| !nothing.contains(value));
        Value::Object(set.map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
    };
    let entry = |registry: &RegistryEntry| {
        let mirror = |mirror: &RegistryMirror| {
            set(&[
                ("location", json!(mirror.location)),
                ("by", json!(mirror.pull_from_mirror)),
                ("insecure", json!(mirror.insecure)),
            ])
        };
        let mirrors: Vec<Value> = registry.mirrors.iter().map(mirror).collect();
        set(&[
            ("prefix", json!(registry.prefix)),
            ("location", json!(registry.location)),
            ("insecure", json!(registry.insecure)),
            ("blocked", json!(registry.blocked)),
            ("mirrors", json!(mirrors)),
        ])
    };
    conf.registries.iter().map(entry).collect()
}
