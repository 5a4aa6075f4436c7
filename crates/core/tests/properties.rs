//! Properties of any configs, tested with random ones from a printed seed.
use crate::support;

use std::collections::BTreeSet;

use machinist_core::api::{MachineConfig, MachineConfigPool};
use machinist_core::diff::diff;
use machinist_core::ignition::schema::Config;
use machinist_core::ignition::{merge, parse_and_upgrade};
use machinist_core::reconcile_check::{ValidationOverrides, check_reconcilable};
use machinist_core::render::provenance::{ProvenanceKind, provenance};
use machinist_core::render::render;
use serde_json::{Value, json};
use support::configs::{any_config, config_v3};
use support::{Rng, seed};

const RUNS: usize = 3_000;

fn rng() -> Rng {
    let seed = seed();
    eprintln!("MACHINIST_SEED={seed:#x}");
    Rng::new(seed)
}

/// Random configs that are valid.
fn valid(rng: &mut Rng, count: usize) -> Vec<Config> {
    let mut configs = Vec::new();
    while configs.len() < count {
        if let Ok((config, _)) = parse_and_upgrade(&config_v3(rng)) {
            configs.push(config);
        }
    }
    configs
}

fn json_of(config: &Config) -> Value {
    serde_json::to_value(config).unwrap()
}

fn machine_config(name: &str, config: &Value) -> MachineConfig {
    serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"config": config}
    }))
    .unwrap()
}

fn pool() -> MachineConfigPool {
    let selector = json!({"matchLabels": {"machineconfiguration.openshift.io/role": "worker"}});
    serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "worker"}, "spec": {"machineConfigSelector": selector}
    }))
    .unwrap()
}

#[test]
fn merging_all_at_once_equals_merging_one_after_the_other() {
    let mut rng = rng();
    for _ in 0..RUNS {
        let configs = valid(&mut rng, 3);
        let one_by_one = configs.iter().cloned().reduce(|a, b| merge(vec![a, b])).unwrap();
        assert_eq!(json_of(&merge(configs)), json_of(&one_by_one));
    }
}

#[test]
fn the_empty_config_changes_nothing() {
    let mut rng = rng();
    for config in valid(&mut rng, RUNS) {
        let empty = machinist_core::ignition::empty_config();
        assert_eq!(json_of(&merge(vec![empty.clone(), config.clone()])), json_of(&config));
        assert_eq!(json_of(&merge(vec![config.clone(), empty])), json_of(&config));
    }
}

#[test]
fn the_order_of_the_inputs_does_not_matter() {
    let mut rng = rng();
    for _ in 0..RUNS / 4 {
        let mut configs: Vec<MachineConfig> = (0..4)
            .map(|index| machine_config(&format!("{index}0-x"), &json_of(&valid(&mut rng, 1)[0])))
            .collect();
        let Ok(name) = render(&pool(), &configs, None).map(|rendered| rendered.name) else {
            continue;
        };
        configs.rotate_left(1 + rng.below(3));
        assert_eq!(render(&pool(), &configs, None).unwrap().name, name);
    }
}

#[test]
fn a_config_can_follow_itself_and_does_not_differ_from_itself() {
    let mut rng = rng();
    let mut accepted = 0;
    for _ in 0..RUNS {
        let config = machine_config("a", &any_config(&mut rng));
        let Ok(change) = check_reconcilable(&config, &config, ValidationOverrides::default())
        else {
            continue;
        };
        accepted += 1;
        let diff = diff(&config, &config, &change);
        assert!(diff.is_empty(), "{diff:?}");
    }
    assert!(accepted > RUNS / 20, "hardly anything was valid");
}

#[test]
fn a_diff_is_empty_only_if_nothing_changed() {
    let mut rng = rng();
    for _ in 0..RUNS {
        let pair = valid(&mut rng, 2);
        let (old, new) =
            (machine_config("a", &json_of(&pair[0])), machine_config("b", &json_of(&pair[1])));
        let Some(change) = machinist_core::diff::parse_both(&old, &new) else { continue };
        let same = json_of(&change.old) == json_of(&change.new);
        let diff = diff(&old, &new, &change);
        assert!(same || !diff.is_empty(), "{}\n{}", json_of(&change.old), json_of(&change.new));
    }
}

/// Everything in a rendered config has an origin, and every origin is in the config.
#[test]
fn provenance_is_complete() {
    let mut rng = rng();
    let mut rendered_any = 0;
    for _ in 0..RUNS / 4 {
        let configs: Vec<MachineConfig> = (0..3)
            .map(|index| machine_config(&format!("{index}0-x"), &json_of(&valid(&mut rng, 1)[0])))
            .collect();
        let Ok(rendered) = render(&pool(), &configs, None) else { continue };
        rendered_any += 1;
        let config = &rendered.spec.config;
        let mut expected: BTreeSet<(ProvenanceKind, String)> = BTreeSet::new();
        expected
            .extend(config.storage.files.iter().map(|f| (ProvenanceKind::File, f.path.clone())));
        expected.extend(
            config.storage.directories.iter().map(|d| (ProvenanceKind::Directory, d.path.clone())),
        );
        expected
            .extend(config.storage.links.iter().map(|l| (ProvenanceKind::Link, l.path.clone())));
        for unit in &config.systemd.units {
            expected.insert((ProvenanceKind::Unit, unit.name.clone()));
            let dropins = unit.dropins.iter();
            expected.extend(
                dropins.map(|d| (ProvenanceKind::Dropin, format!("{}/{}", unit.name, d.name))),
            );
        }
        let items = provenance(&rendered, None);
        let found: BTreeSet<(ProvenanceKind, String)> = items
            .iter()
            .filter(|item| {
                matches!(
                    item.kind,
                    ProvenanceKind::File
                        | ProvenanceKind::Directory
                        | ProvenanceKind::Link
                        | ProvenanceKind::Unit
                        | ProvenanceKind::Dropin
                )
            })
            .map(|item| (item.kind, item.name.clone()))
            .collect();
        assert_eq!(found, expected);
        assert!(items.iter().all(|item| !item.contributions.is_empty()));
    }
    assert!(rendered_any > 50, "hardly anything was rendered");
}
