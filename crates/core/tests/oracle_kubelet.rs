//! Differential test: kubelet configurations, parsed and written by Kubernetes' types and by ours;
//! and strict parsing of what we write by Kubernetes' types.
use crate::support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use machinist_core::go::json::{decode, encode};
use machinist_core::go::types::{GoField, GoType, KUBELET};
use machinist_core::go::yaml::to_go_yaml;
use machinist_core::kubelet::{KubeletSources, base_configuration, features};
use machinist_core::profile::TemplateProfile;
use machinist_core::template::{TemplateInputs, builtin_templates, decoded_file};
use serde_json::{Map, Value, json};
use support::{Oracle, Rng, seed};

const CONFIGURATION: &str = "KubeletConfiguration";
const PATH: &str = "/etc/kubernetes/kubelet.conf";

#[test]
fn the_kubernetes_types_strictly_parse_what_we_write() {
    let facts = json!({"metadata": {"name": "machine-config-controller"}, "spec": {
        "clusterDNSIP": "10.96.0.10",
        "infra": {"status": {"platformStatus": {"type": "None"}}}}});
    let controller_config = serde_json::from_value(facts).unwrap();
    let inputs = TemplateInputs {
        controller_config: &controller_config,
        pull_secret: None,
        api_server: None,
    };
    let gates = BTreeMap::from([("Example".to_owned(), true), ("Off".to_owned(), false)]);
    let templates = builtin_templates(TemplateProfile::Kubernetes);
    let sources = KubeletSources { templates: &templates, inputs, gates: &gates, node: None };
    let mut texts: Vec<String> = ["worker", "master", "infra"]
        .into_iter()
        .map(|pool| {
            assert!(base_configuration(&sources, pool).is_ok());
            let made = features(&sources, pool).unwrap();
            String::from_utf8(decoded_file(&made.machine_config, PATH).unwrap()).unwrap()
        })
        .collect();
    texts.extend(recorded());
    let mut oracle = Oracle::start();
    let ask = |text: &String| json!({"op": "kubelet-strict", "text": text});
    let answers = oracle.request_all(&texts.iter().map(ask).collect::<Vec<_>>());
    for (text, answer) in texts.iter().zip(&answers) {
        assert_eq!(answer["yaml"].as_str(), Some(text.as_str()), "{answer}");
    }
    assert!(texts.len() > 80);
}

/// The files of the recorded cases, which equal ours.
fn recorded() -> Vec<String> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases/kubelet.jsonl");
    let text = std::fs::read_to_string(file).unwrap();
    let cases = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    cases
        .flat_map(|case| case["machineConfigs"].as_array().cloned().unwrap_or_default())
        .filter_map(|config| config["files"][PATH]["text"].as_str().map(str::to_owned))
        .collect()
}

#[test]
fn random_configurations_are_parsed_and_written_as_in_kubernetes() {
    let seed = seed();
    eprintln!("MACHINIST_SEED={seed:#x}");
    let mut rng = Rng::new(seed);
    let mut oracle = Oracle::start();
    let start = Instant::now();
    let (mut compared, mut good) = (0, 0);
    while compared < 3_000 && start.elapsed() < Duration::from_secs(10) {
        let values: Vec<Value> = (0..100).map(|_| configuration(&mut rng)).collect();
        let ask = |value: &Value| json!({"op": "kubelet", "value": value});
        let answers = oracle.request_all(&values.iter().map(ask).collect::<Vec<_>>());
        for (value, answer) in values.iter().zip(&answers) {
            let ours = decode(&KUBELET, CONFIGURATION, value).map(|kept| {
                let mut written = encode(&KUBELET, CONFIGURATION, &kept);
                written["apiVersion"] = "kubelet.config.k8s.io/v1beta1".into();
                written["kind"] = CONFIGURATION.into();
                to_go_yaml(&written)
            });
            match answer["yaml"].as_str() {
                Some(theirs) => {
                    good += 1;
                    let only = |a: &str, b: &str| {
                        let b: Vec<&str> = b.lines().collect();
                        let lines: Vec<&str> = a.lines().filter(|line| !b.contains(line)).collect();
                        lines.join(" / ")
                    };
                    let ours = ours.unwrap_or_else(|error| panic!("{value}\n{error}"));
                    assert!(
                        ours == theirs,
                        "MACHINIST_SEED={seed:#x}\n{value}\nonly ours   {}\nonly theirs {}",
                        only(&ours, theirs),
                        only(theirs, &ours)
                    );
                }
                None => assert!(ours.is_err(), "MACHINIST_SEED={seed:#x}\n{value}\n{answer}"),
            }
            compared += 1;
        }
    }
    eprintln!("{compared} configurations, {good} of them good, in {:?}", start.elapsed());
    assert!(good * 3 > compared);
}

/// A few fields with mostly valid values.
fn configuration(rng: &mut Rng) -> Value {
    object(rng, CONFIGURATION, 6)
}

fn object(rng: &mut Rng, name: &'static str, most: usize) -> Value {
    let fields: Vec<&GoField> = KUBELET
        .fields(name)
        .iter()
        // What Go prints for these depends on more than their value.
        .filter(|field| !matches!(field.kind, GoType::Quantity) && field.json != "timeAdded")
        .collect();
    let mut object = Map::new();
    if !fields.is_empty() {
        for _ in 0..rng.below(most + 1) {
            let field = rng.pick(&fields);
            let value = value(rng, &field.kind);
            object.insert(field.json.to_owned(), value);
        }
    }
    Value::Object(object)
}

fn value(rng: &mut Rng, kind: &GoType) -> Value {
    if rng.chance(1, 60) {
        return rng
            .pick(&[json!(null), json!("x"), json!(1), json!(true), json!([]), json!({})])
            .clone();
    }
    match kind {
        GoType::Bool => json!(rng.chance(1, 2)),
        GoType::Int { .. } => json!(rng.below(300)),
        GoType::Float => json!(1.5),
        GoType::String | GoType::Quantity => {
            json!(*rng.pick(&["", "a", "yes", "10", "1Gi", "a: b", "0-3", "/x/y"]))
        }
        GoType::Bytes => json!("YQ=="),
        GoType::Duration | GoType::TimeOrDuration => {
            json!(*rng.pick(&["0s", "1s", "90s", "5m", "1h30m", "1.5s", "250ms", "24h"]))
        }
        GoType::Any | GoType::Amount => {
            json!(*rng.pick(&["1Gi", "1024Mi", "500m", "0.5", "1e3", "100k", "1.5Gi"]))
        }
        GoType::List(inner) => (0..rng.below(3)).map(|_| value(rng, inner)).collect(),
        GoType::Map(inner) => {
            let keys = ["a", "memory.available", "cpu", "Off"];
            let entries = (0..rng.below(3)).map(|_| {
                let key = (*rng.pick(&keys)).to_owned();
                (key, value(rng, inner))
            });
            Value::Object(entries.collect())
        }
        GoType::Pointer(inner) => value(rng, inner),
        GoType::Struct(name) => object(rng, name, 3),
    }
}
