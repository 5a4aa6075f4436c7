//! What the controller writes about a pool.
use machinist_core::api::names::annotation::machinist as ours;
use machinist_core::api::{ControllerConfig, MachineConfig, MachineConfigPool};
use machinist_core::reconcile_check::ValidationOverrides;
use machinist_core::render::reconcile::{ReconcileError, RenderInputs, RenderPlan, reconcile};
use serde_json::{Value, json};

fn pool(spec: &Value) -> MachineConfigPool {
    let mut spec = spec.clone();
    if spec["machineConfigSelector"].is_null() {
        spec["machineConfigSelector"] = json!({"matchLabels": {"role": "worker"}});
    }
    serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool",
        "metadata": {"name": "worker", "uid": "u"},
        "spec": spec,
    }))
    .unwrap()
}

fn config(name: &str, spec: &Value) -> MachineConfig {
    serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {"role": "worker"}},
        "spec": spec,
    }))
    .unwrap()
}

fn arguments(name: &str, argument: &str) -> MachineConfig {
    config(name, &json!({"kernelArguments": [argument]}))
}

fn ask(pool: &MachineConfigPool, configs: &[MachineConfig]) -> Result<RenderPlan, ReconcileError> {
    ask_with(pool, configs, None)
}

fn ask_with(
    pool: &MachineConfigPool,
    configs: &[MachineConfig],
    controller_config: Option<&ControllerConfig>,
) -> Result<RenderPlan, ReconcileError> {
    let configs: Vec<&MachineConfig> = configs.iter().collect();
    reconcile(&RenderInputs {
        pool,
        machine_configs: &configs,
        system: controller_config.into(),
        version: "v",
        overrides: ValidationOverrides::default(),
    })
}

/// The pool after the writes.
fn settled(pool: &MachineConfigPool, done: &RenderPlan) -> MachineConfigPool {
    let mut pool = pool.clone();
    if let Some(configuration) = &done.set_configuration {
        pool.spec.configuration = Some(configuration.clone());
    }
    pool
}

#[test]
fn a_new_pool_gets_a_config_and_then_nothing_changes() {
    let mut configs = vec![arguments("00-a", "a"), arguments("50-b", "b")];
    let pool = pool(&json!({}));
    let first = ask(&pool, &configs).unwrap();
    let made = first.create.clone().unwrap();
    assert_eq!(made.metadata.name.as_deref(), Some(first.rendered.as_str()));
    assert_eq!(made.metadata.owner_references.as_ref().unwrap()[0].uid, "u");
    assert_eq!(made.metadata.labels, None);
    let pointed = first.set_configuration.clone().unwrap();
    let sources: Vec<_> = pointed.source.unwrap().into_iter().filter_map(|s| s.name).collect();
    assert_eq!(sources, ["00-a", "50-b"]);
    configs.push(made);
    let second = ask(&settled(&pool, &first), &configs).unwrap();
    assert_eq!(
        second,
        RenderPlan {
            rendered: first.rendered,
            os_image_overridden: false,
            ..RenderPlan::default()
        }
    );
}

#[test]
fn another_source_with_the_same_content_only_changes_the_list() {
    let pool = pool(&json!({}));
    let mut configs = vec![arguments("00-a", "a")];
    let first = ask(&pool, &configs).unwrap();
    let pool = settled(&pool, &first);
    configs[0].metadata.name = Some("01-a".to_owned());
    configs.push(first.create.unwrap());
    let second = ask(&pool, &configs).unwrap();
    assert_eq!((second.rendered, second.create), (first.rendered, None));
    assert_eq!(second.set_configuration.unwrap().source.unwrap()[0].name.as_deref(), Some("01-a"));
}

#[test]
fn a_deleted_config_is_recreated_and_an_edited_one_repaired() {
    let pool = pool(&json!({}));
    let mut configs = vec![arguments("00-a", "a")];
    let first = ask(&pool, &configs).unwrap();
    let pool = settled(&pool, &first);
    let again = ask(&pool, &configs).unwrap();
    assert_eq!(again.create, first.create);
    let mut edited = first.create.clone().unwrap();
    edited.spec.kernel_arguments = Some(vec!["evil".to_owned()]);
    edited.metadata.resource_version = Some("7".to_owned());
    configs.push(edited);
    let repair = ask(&pool, &configs).unwrap().repair.unwrap();
    assert_eq!(repair.spec, first.create.unwrap().spec);
    assert_eq!(repair.metadata.resource_version.as_deref(), Some("7"));
}

#[test]
fn a_pool_that_selects_nothing_is_degraded_only_if_it_ever_had_something() {
    let new = ask(&pool(&json!({})), &[]).unwrap_err();
    assert!(matches!(new, ReconcileError::NothingToRender(_)), "{new}");
    let old =
        ask(&pool(&json!({"configuration": {"name": "rendered-worker-1"}})), &[]).unwrap_err();
    assert_eq!(old.to_string(), "no MachineConfigs found matching selector role=worker");
    let all = ask(&pool(&json!({"machineConfigSelector": {"matchLabels": {}}})), &[]).unwrap_err();
    assert!(matches!(all, ReconcileError::EmptySelector), "{all}");
}

#[test]
fn the_last_config_of_a_pool_can_be_taken_back() {
    let pool = pool(&json!({}));
    let mut configs = vec![arguments("00-a", "a")];
    let first = ask(&pool, &configs).unwrap();
    let pool = settled(&pool, &first);
    // Another label is more likely a mistake than a wish to take everything away.
    configs[0].metadata.labels = Some([("role".to_owned(), "other".to_owned())].into());
    let mislabelled = ask(&pool, &configs).unwrap_err();
    assert_eq!(mislabelled.to_string(), "no MachineConfigs found matching selector role=worker");
    configs.clear();
    let emptied = ask(&pool, &configs).unwrap();
    let created = emptied.create.clone().unwrap();
    assert_ne!(emptied.rendered, first.rendered);
    assert_eq!(created.spec.kernel_arguments, Some(Vec::new()));
    // It stays empty, and a new MachineConfig ends that.
    let pool = settled(&pool, &emptied);
    configs.push(created);
    let again = ask(&pool, &configs).unwrap();
    assert_eq!((again.create, again.set_configuration), (None, None));
    configs.push(arguments("00-b", "b"));
    assert_ne!(ask(&pool, &configs).unwrap().rendered, emptied.rendered);
}

#[test]
fn a_cluster_without_templates_may_have_pools_without_configs() {
    for (profile, is_degraded) in
        [(json!({}), true), (json!({"machinist.dev/profile": "none"}), false)]
    {
        let config: ControllerConfig = serde_json::from_value(json!({
            "metadata": {"generation": 1, "annotations": profile}, "spec": {},
            "status": {"observedGeneration": 1, "conditions": [
                {"type": "TemplateControllerCompleted", "status": "True"},
            ]},
        }))
        .unwrap();
        let found = ask_with(&pool(&json!({})), &[], Some(&config)).unwrap_err();
        assert_eq!(matches!(found, ReconcileError::Render(_)), is_degraded, "{found}");
    }
}

#[test]
fn the_invalid_config_is_named() {
    let pool = pool(&json!({}));
    let mut configs = vec![arguments("00-a", "a")];
    let first = ask(&pool, &configs).unwrap();
    let pool = settled(&pool, &first);
    configs.push(first.create.unwrap());
    let disks = json!({"config": {
        "ignition": {"version": "3.2.0"},
        "storage": {"disks": [{"device": "/dev/sda", "wipeTable": true}]},
    }});
    configs.push(config("50-disks", &disks));
    configs.push(arguments("60-b", "b"));
    let error = ask(&pool, &configs).unwrap_err().to_string();
    let expected = format!(
        "reconciliation failed between current config {:?} and base config \"50-disks\": ignition disks section contains changes",
        first.rendered
    );
    assert_eq!(error, expected);
    configs.push(config("70-bad", &json!({"kernelType": "fast"})));
    let error = ask(&pool, &configs).unwrap_err().to_string();
    assert!(
        error.starts_with("could not generate rendered MachineConfig: MachineConfig 70-bad"),
        "{error}"
    );
}

#[test]
fn a_rollback_lasts_until_the_sources_change() {
    let mut pool = pool(&json!({}));
    let mut configs = vec![arguments("00-a", "a")];
    let first = ask(&pool, &configs).unwrap();
    configs.push(first.create.clone().unwrap());
    configs[0] = arguments("00-a", "b");
    let second = ask(&settled(&pool, &first), &configs).unwrap();
    configs.push(second.create.clone().unwrap());
    pool = settled(&pool, &second);
    pool.metadata.annotations = Some(
        [
            (ours::ROLLED_BACK_FROM.to_owned(), second.rendered.clone()),
            (ours::ROLLED_BACK_TO.to_owned(), first.rendered.clone()),
        ]
        .into(),
    );
    let back = ask(&pool, &configs).unwrap();
    assert_eq!(back.set_configuration.as_ref().unwrap().name.as_ref(), Some(&first.rendered));
    pool = settled(&pool, &back);
    let still = ask(&pool, &configs).unwrap();
    assert_eq!((still.set_configuration, still.end_rollback), (None, false));
    configs[0] = arguments("00-a", "c");
    let on = ask(&pool, &configs).unwrap();
    assert!(on.end_rollback && on.create.is_some());
    assert_eq!(on.set_configuration.unwrap().name.as_ref(), Some(&on.rendered));
    configs.retain(|config| config.metadata.name.as_ref() != Some(&first.rendered));
    configs[0] = arguments("00-a", "b");
    let lost = ask(&pool, &configs).unwrap_err();
    assert!(matches!(lost, ReconcileError::NoRollbackTarget(_)), "{lost}");
}

#[test]
fn rendering_waits_for_an_unfinished_controller_config() {
    let controller_config = |status: Value| -> ControllerConfig {
        serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "ControllerConfig",
            "metadata": {"name": "machine-config-controller", "generation": 2},
            "spec": {},
            "status": status,
        }))
        .unwrap()
    };
    let configs = [arguments("00-a", "a")];
    let text = |status| {
        let cc = controller_config(status);
        ask_with(&pool(&json!({})), &configs, Some(&cc)).unwrap_err().to_string()
    };
    assert_eq!(
        text(json!({"observedGeneration": 1})),
        "status for ControllerConfig machine-config-controller is being reported for 1, expecting it for 2"
    );
    assert_eq!(
        text(json!({"observedGeneration": 2, "conditions": [
            {"type": "TemplateControllerRunning", "status": "True"},
        ]})),
        "ControllerConfig has not completed: completed(false) running(true) failing(false)"
    );
    let good = controller_config(json!({"observedGeneration": 2, "conditions": [
        {"type": "TemplateControllerCompleted", "status": "True"},
    ]}));
    assert!(ask_with(&pool(&json!({})), &configs, Some(&good)).is_ok());
}
