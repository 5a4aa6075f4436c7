//! Recorded cases: KubeletConfigs, Node settings and feature gates with what the Machine Config
//! Operator generates from them.
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinist_core::api::config::{APIServer, NodeConfig};
use machinist_core::api::{ControllerConfig, KubeletConfig, MachineConfigPool};
use machinist_core::generated_config::GeneratedConfig;
use machinist_core::kubelet::{KubeletSnapshot, KubeletSources, features, node_config, reconcile};
use machinist_core::template::{TemplateInputs, TemplateTree};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn read<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

struct KubeletSetting {
    templates: TemplateTree,
    controller_config: ControllerConfig,
}

fn cases() -> (KubeletSetting, Vec<Value>) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases/kubelet.jsonl");
    let text = std::fs::read_to_string(file).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let first = lines.next().unwrap();
    let mut templates = TemplateTree::new();
    for (path, text) in first["templates"].as_object().unwrap() {
        templates.add_file(path, text.as_str().unwrap());
    }
    (
        KubeletSetting { templates, controller_config: read(&first["controllerConfig"]) },
        lines.collect(),
    )
}

fn pools() -> Value {
    let pool = |name: &str| {
        json!({"metadata": {"name": name, "labels":
            {format!("pools.operator.machineconfiguration.openshift.io/{name}"): "", "all": "yes"}},
            "spec": {"nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{name}"): ""}}}})
    };
    json!([pool("master"), pool("worker"), pool("infra")])
}

fn made(setting: &KubeletSetting, case: &Value) -> Result<Vec<GeneratedConfig>, String> {
    let api_server: Option<APIServer> = read(&case["apiServer"]);
    let node: Option<NodeConfig> = read(&case["node"]);
    let named = |field: &str, is_on: bool| {
        let names: Option<Vec<String>> = read(&case[field]);
        names.unwrap_or_default().into_iter().map(move |name| (name, is_on))
    };
    let gates: BTreeMap<String, bool> =
        named("disabled", false).chain(named("enabled", true)).collect();
    let sources = KubeletSources {
        templates: &setting.templates,
        inputs: TemplateInputs {
            controller_config: &setting.controller_config,
            pull_secret: None,
            api_server: api_server.as_ref(),
        },
        gates: &gates,
        node: node.as_ref(),
    };
    let pools: Vec<MachineConfigPool> = read(case.get("pools").unwrap_or(&pools()));
    let names: Vec<&str> =
        pools.iter().map(|pool| pool.metadata.name.as_deref().unwrap()).collect();
    match case["op"].as_str().unwrap() {
        "node" => names
            .iter()
            .map(|pool| node_config(&sources, pool, &[]).map_err(|error| error.to_string()))
            .collect(),
        "features" => names
            .iter()
            .map(|pool| features(&sources, pool).map_err(|error| error.to_string()))
            .collect(),
        _ => {
            let configs: Vec<KubeletConfig> = read(&case["kubeletConfigs"]);
            let snapshot = KubeletSnapshot {
                configs: &configs.iter().collect::<Vec<_>>(),
                pools: &pools.iter().collect::<Vec<_>>(),
                machine_configs: &[],
                sources,
                has_feature_gate: false,
                version: "v",
            };
            let mut all = Vec::new();
            for plan in reconcile(&snapshot) {
                all.extend(plan.map_err(|error| error.message)?.generated);
            }
            Ok(all)
        }
    }
}

#[test]
fn kubelet_configs_are_the_same_as_in_mco() {
    let (setting, cases) = cases();
    assert!(cases.len() > 100);
    let mut wrong = Vec::new();
    for case in &cases {
        let name = case["name"].as_str().unwrap();
        // The bootstrap allows only one, while the controller numbers them. Only the controller
        // fails if there is no pool.
        if name == "two for a pool" || name == "no pool" {
            continue;
        }
        match (case["error"].as_str(), made(&setting, case)) {
            (Some(theirs), Err(ours)) => {
                if !ours.starts_with(theirs) {
                    wrong.push(format!("{name}:\n  ours   {ours}\n  theirs {theirs}"));
                }
            }
            (Some(error), Ok(_)) => wrong.push(format!("{name}: no error, but {error}")),
            (None, Err(error)) => wrong.push(format!("{name}: {error}")),
            (None, Ok(made)) => compare(name, case, &made, &mut wrong),
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

fn compare(name: &str, case: &Value, made: &[GeneratedConfig], wrong: &mut Vec<String>) {
    let mut theirs = case["machineConfigs"].as_array().unwrap().clone();
    // At bootstrap every pool gets the kernel arguments; in a running cluster only the built-in
    // ones.
    for config in theirs.iter_mut().filter(|config| config["role"] == "infra") {
        config["kernelArguments"] = Value::Null;
    }
    let ours: Vec<Value> = made.iter().map(shown).collect();
    if ours.len() != theirs.len() {
        wrong.push(format!("{name}: {} and not {}", ours.len(), theirs.len()));
    }
    for (ours, theirs) in ours.iter().zip(&theirs) {
        if ours == theirs {
            continue;
        }
        let text = |config: &Value| {
            let text = config["files"]["/etc/kubernetes/kubelet.conf"]["text"].as_str();
            text.unwrap_or_default().to_owned()
        };
        let (our_lines, their_lines) = (text(ours), text(theirs));
        let only = |these: &str, those: &str| {
            let those: Vec<&str> = those.lines().collect();
            these.lines().filter(|line| !those.contains(line)).collect::<Vec<_>>().join(" / ")
        };
        wrong.push(format!(
            "{name}: only ours: {}\n  only theirs: {}\n  {}\n  {}",
            only(&our_lines, &their_lines),
            only(&their_lines, &our_lines),
            without_text(ours),
            without_text(theirs),
        ));
    }
}

fn without_text(config: &Value) -> Value {
    let mut config = config.clone();
    for file in config["files"].as_object_mut().unwrap().values_mut() {
        file["text"] = Value::Null;
    }
    config
}

fn shown(made: &GeneratedConfig) -> Value {
    let config = &made.machine_config;
    let ignition = config.spec.config.as_ref().unwrap();
    let files = ignition["storage"]["files"].as_array().unwrap();
    let file = |file: &Value| {
        let source = file["contents"]["source"].as_str().unwrap();
        let (media, data) = source.split_once(',').unwrap();
        let mut head = file.as_object().unwrap().clone();
        head.retain(|name, _| name != "path" && name != "contents");
        let text = String::from_utf8(STANDARD.decode(data).unwrap()).unwrap();
        (
            file["path"].as_str().unwrap().to_owned(),
            json!({"head": head, "text": text, "media": media}),
        )
    };
    json!({
        "name": config.metadata.name,
        "role": config.metadata.labels.as_ref().unwrap()["machineconfiguration.openshift.io/role"],
        "kernelArguments": config.spec.kernel_arguments,
        "files": files.iter().map(file).collect::<BTreeMap<String, Value>>(),
        "order": files.iter().map(|file| &file["path"]).collect::<Vec<_>>(),
    })
}
