//! Recorded cases: template directories with what the Machine Config Operator renders from them.
use machinist_core::api::ControllerConfig;
use machinist_core::api::config::APIServer;
use machinist_core::generated_config::GeneratedConfig;
use machinist_core::template::{TemplateError, TemplateInputs, TemplateTree, generate};
use serde_json::{Value, json};

fn cases() -> Vec<Value> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases/templates.jsonl");
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn made(case: &Value) -> Result<Vec<GeneratedConfig>, TemplateError> {
    let mut templates = TemplateTree::new();
    for (path, text) in case["files"].as_object().unwrap() {
        templates.add_file(path, text.as_str().unwrap());
    }
    let controller_config: ControllerConfig =
        serde_json::from_value(case["controllerConfig"].clone()).unwrap();
    let api_server: Option<APIServer> = serde_json::from_value(case["apiServer"].clone()).unwrap();
    let inputs = TemplateInputs {
        controller_config: &controller_config,
        pull_secret: case["pullSecret"].as_str().map(str::as_bytes),
        api_server: api_server.as_ref(),
    };
    generate(&templates, &inputs, "v")
}

#[test]
fn templates_render_the_same_as_in_mco() {
    let cases = cases();
    assert!(cases.len() > 80);
    let mut wrong = Vec::new();
    for case in &cases {
        let name = case["name"].as_str().unwrap();
        match (case.get("error"), made(case)) {
            (Some(_), Err(_)) => {}
            (Some(error), Ok(_)) => wrong.push(format!("{name}: no error, but {error}")),
            (None, Err(error)) => wrong.push(format!("{name}: {error}")),
            (None, Ok(made)) => {
                let ours: Vec<Value> = made.iter().map(shown).collect();
                let theirs = case["machineConfigs"].as_array().unwrap();
                if &ours != theirs {
                    wrong.push(format!("{name}:\n  ours   {ours:?}\n  theirs {theirs:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

fn shown(made: &GeneratedConfig) -> Value {
    let config = &made.machine_config;
    let labels = config.metadata.labels.as_ref().unwrap();
    json!({
        "name": config.metadata.name,
        "role": labels["machineconfiguration.openshift.io/role"],
        "config": config.spec.config,
        "extensions": config.spec.extensions,
    })
}

/// Errors contain the file or the reason wherever MCO's do.
#[test]
fn errors_name_the_file_and_the_reason() {
    let error = |name: &str| {
        let cases = cases();
        let case = cases.iter().find(|case| case["name"] == name).unwrap();
        made(case).unwrap_err().to_string()
    };
    for (name, parts) in [
        ("unknown field", vec!["worker/00-worker/_base/files/a.yaml", "Nope"]),
        (
            "not closed",
            vec!["worker/00-worker/_base/files/a.yaml", "line 5", "{{if}} has no {{end}}"],
        ),
        ("skip of a bad key", vec!["invalid key for skipKey"]),
        ("addresses elsewhere", vec!["invalid platform for Ingress IP"]),
        (
            "load balancers not yet Azure",
            vec![
                "azure Internal API Server Load Balancer IPs unavailable when the DNSType is ClusterHosted",
            ],
        ),
        ("a file with a wrong mode", vec!["worker/00-worker/_base/files/1.yaml", "file", "mode"]),
        ("no platform", vec!["cannot generate MachineConfigs when no platformStatus.type is set"]),
        ("pull secret is no json", vec!["couldn't compact pullsecret", "line 1"]),
    ] {
        let error = error(name);
        for part in parts {
            assert!(error.contains(part), "{name}: {error}");
        }
        assert!(!error.contains("nope") || name != "pull secret is no json", "{error}");
    }
}

#[test]
fn owner_and_version_are_those_of_the_controller() {
    let cases = cases();
    let made = made(&cases[0]).unwrap();
    assert_eq!(made[0].from, ["ControllerConfig machine-config-controller"]);
    let metadata = &made[0].machine_config.metadata;
    let owner = &metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("ControllerConfig", "u-1"));
    assert_eq!((owner.controller, owner.block_owner_deletion), (Some(true), Some(true)));
    let version = "machineconfiguration.openshift.io/generated-by-controller-version";
    assert_eq!(metadata.annotations.as_ref().unwrap()[version], "v");
}
