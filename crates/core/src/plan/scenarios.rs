//! Plans for small clusters.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::api::names::annotation::{CURRENT_CONFIG, DESIRED_CONFIG, STATE, machinist};
use crate::api::{MachineConfig, MachineConfigPool};
use crate::disruption::system_policy;
use crate::render::render;

use super::*;

const ROLE: &str = "machineconfiguration.openshift.io/role";

fn now() -> Time {
    serde_json::from_value(json!("2026-11-15T12:00:00Z")).unwrap()
}

fn pool(name: &str) -> MachineConfigPool {
    let roles: Vec<&str> = if name == "worker" { vec![name] } else { vec!["worker", name] };
    serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": name},
        "spec": {
            "machineConfigSelector": {"matchExpressions": [{"key": ROLE, "operator": "In", "values": roles}]},
            "nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{name}"): ""}},
        }
    }))
    .unwrap()
}

fn machine_config(name: &str, role: &str, spec: &Value) -> MachineConfig {
    serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {ROLE: role}}, "spec": spec
    }))
    .unwrap()
}

fn file(path: &str, text: &str) -> Value {
    let file = json!({"path": path, "mode": 420, "contents": {"source": format!("data:,{text}")}});
    json!({"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [file]}}})
}

fn node(name: &str, config: &str, roles: &[&str]) -> Node {
    let labels: BTreeMap<String, &str> =
        roles.iter().map(|role| (format!("node-role.kubernetes.io/{role}"), "")).collect();
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "labels": labels,
            "annotations": {CURRENT_CONFIG: config, DESIRED_CONFIG: config, STATE: "Done"},
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}
    }))
    .unwrap()
}

/// Three workers that have the rendered config of their pool.
fn plan_snapshot() -> PlanSnapshot {
    let mut snapshot = PlanSnapshot {
        pools: vec![pool("worker")],
        machine_configs: vec![machine_config("00-worker", "worker", &file("/etc/base", "base"))],
        policy: system_policy(),
        ..PlanSnapshot::default()
    };
    let rendered = roll_out(&mut snapshot, "worker");
    snapshot.nodes = ["a", "b", "c"].map(|name| node(name, &rendered, &["worker"])).to_vec();
    snapshot
}

/// Renders a pool and points it to the result, as the controller would.
fn roll_out(snapshot: &mut PlanSnapshot, name: &str) -> String {
    let pool =
        snapshot.pools.iter().find(|pool| pool.metadata.name.as_deref() == Some(name)).unwrap();
    let rendered = render(pool, &snapshot.machine_configs, None).unwrap();
    let rendered_name = rendered.name.clone();
    let sources: Vec<Value> = rendered
        .sources
        .iter()
        .map(|source| {
            json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
                "name": source.machine_config.metadata.name})
        })
        .collect();
    let object = rendered.into_object(pool, None, "").unwrap();
    let point = json!({"name": rendered_name, "source": sources});
    let pool = snapshot.pools.iter_mut().find(|pool| pool.metadata.name.as_deref() == Some(name));
    pool.unwrap().spec.configuration = serde_json::from_value(point).unwrap();
    snapshot.machine_configs.push(object);
    rendered_name
}

fn change(config: MachineConfig) -> PlannedChanges {
    PlannedChanges { machine_configs: vec![config], ..PlannedChanges::default() }
}

#[test]
fn a_pool_that_does_not_select_the_config_does_not_change() {
    let snapshot = plan_snapshot();
    let other = change(machine_config("50-other", "master", &file("/etc/x", "x")));
    assert_eq!(plan_changes(&snapshot, &other, &now()).pools, []);
    // Nor does one that already has it.
    let same = change(snapshot.machine_configs[0].clone());
    assert_eq!(plan_changes(&snapshot, &same, &now()).pools, []);
}

#[test]
fn each_change_has_its_cost_and_order() {
    let snapshot = plan_snapshot();
    for (spec, cost) in [
        (file("/etc/x", "x"), DisruptionCost::Reboot),
        (file("/var/lib/kubelet/config.json", "x"), DisruptionCost::Nothing),
        (file("/etc/containers/policy.json", "x"), DisruptionCost::Reload),
        (file("/etc/kubernetes/credential-providers/x", "x"), DisruptionCost::Restart),
        (file("/etc/containers/registries.conf", "x"), DisruptionCost::Drain),
        (json!({"kernelArguments": ["a=1"]}), DisruptionCost::Reboot),
    ] {
        let found =
            plan_changes(&snapshot, &change(machine_config("50-x", "worker", &spec)), &now());
        let [pool] = found.pools.as_slice() else { panic!("{found:?}") };
        assert!(!found.refused && pool.trouble.is_none(), "{pool:?}");
        assert_eq!(pool.before.as_deref(), Some(snapshot.pools[0].target_config()));
        assert!(pool.after.is_some() && pool.after != pool.before);
        let costs: Vec<(&str, DisruptionCost)> =
            pool.machines.iter().map(|one| (one.machine.as_str(), one.cost)).collect();
        assert_eq!(costs, [("a", cost), ("b", cost), ("c", cost)], "{spec}");
        assert_eq!((pool.next.as_slice(), pool.waiting.len()), (["a".to_owned()].as_slice(), 2));
        assert!(pool.diff.as_ref().is_some_and(|diff| !diff.is_empty()));
    }
}

#[test]
fn a_first_config_costs_what_the_daemon_would_do() {
    let reload = json!({"files": [{"path": "/etc/base", "actions": [{"type": "Reload", "reload": {"serviceName": "base"}}]}]});
    let lenient = serde_json::from_value(reload).unwrap();
    let kernel = json!({"kernelArguments": ["quiet"]});
    for (from, policy, more, cost, unknown) in [
        ("mco-empty-mc", system_policy(), None, DisruptionCost::Reboot, ""),
        ("mco-empty-mc", lenient, None, DisruptionCost::Reload, ""),
        ("mco-empty-mc", system_policy(), Some(kernel), DisruptionCost::Reboot, ""),
        (
            "",
            system_policy(),
            None,
            DisruptionCost::Unknown,
            "its daemon has not reported its config yet",
        ),
    ] {
        // A pool without a config, and a machine that has joined it.
        let mut snapshot = PlanSnapshot {
            nodes: vec![node("a", from, &["worker"])],
            policy,
            ..PlanSnapshot::default()
        };
        snapshot.pools.push(pool("worker"));
        let mut configs = vec![machine_config("00-worker", "worker", &file("/etc/base", "base"))];
        configs.extend(more.map(|spec| machine_config("50-x", "worker", &spec)));
        let changes = PlannedChanges { machine_configs: configs, ..PlannedChanges::default() };
        let found = plan_changes(&snapshot, &changes, &now());
        let one = &found.pools[0].machines[0];
        assert_eq!(
            (one.cost, one.unknown.as_deref().unwrap_or_default()),
            (cost, unknown),
            "{from}"
        );
        assert_eq!(one.actions.is_empty(), cost == DisruptionCost::Unknown, "{one:?}");
    }
}

#[test]
fn each_machine_is_planned_from_its_own_config() {
    let mut snapshot = plan_snapshot();
    let old = snapshot.pools[0].target_config().to_owned();
    snapshot.machine_configs.push(machine_config("50-x", "worker", &file("/etc/x", "x")));
    let new = roll_out(&mut snapshot, "worker");
    snapshot.nodes[2] = node("c", &new, &["worker"]);
    snapshot.nodes[1] = node("b", "rendered-worker-gone", &["worker"]);
    // Back to the first config: one machine has it already, one has an unknown config, one reboots.
    let changes = PlannedChanges {
        deleted_machine_configs: vec!["50-x".to_owned()],
        ..PlannedChanges::default()
    };
    let found = plan_changes(&snapshot, &changes, &now());
    let pool = &found.pools[0];
    assert_eq!((pool.before.as_deref(), pool.after.as_deref()), (Some(&*new), Some(&*old)));
    let costs: Vec<(&str, DisruptionCost)> =
        pool.machines.iter().map(|one| (one.machine.as_str(), one.cost)).collect();
    assert_eq!(costs, [("b", DisruptionCost::Unknown), ("c", DisruptionCost::Reboot)]);
    // A machine that is updating may have applied half of it.
    let annotations = snapshot.nodes[0].metadata.annotations.get_or_insert_default();
    annotations.insert(DESIRED_CONFIG.to_owned(), new.clone());
    let found = plan_changes(&snapshot, &changes, &now());
    let first = &found.pools[0].machines[0];
    let shown = (first.machine.as_str(), first.towards.as_deref(), first.cost);
    assert_eq!(shown, ("a", Some(&*new), DisruptionCost::Reboot));
}

#[test]
fn a_refused_change_names_the_machine_config_that_causes_it() {
    let snapshot = plan_snapshot();
    let bad = json!({"config": {
        "ignition": {"version": "3.5.0"}, "storage": {"directories": [{"path": "/srv/x"}]},
    }});
    let found = plan_changes(&snapshot, &change(machine_config("60-bad", "worker", &bad)), &now());
    assert!(found.refused);
    let pool = &found.pools[0];
    let Some(PoolBlocked::Refused { culprit, reason }) = &pool.trouble else { panic!("{pool:?}") };
    assert_eq!(culprit.as_deref(), Some("60-bad"));
    assert!(reason.contains("directories"), "{reason}");
    assert!(pool.next.is_empty() && pool.after != pool.before);
    assert!(
        pool.machines
            .iter()
            .all(|one| one.cost == DisruptionCost::Refused && one.refused.is_some())
    );
    // MachineConfigs that cannot be rendered are refused, too.
    let broken = json!({"config": {"ignition": {"version": "99.0.0"}}});
    let found =
        plan_changes(&snapshot, &change(machine_config("60-bad", "worker", &broken)), &now());
    assert!(found.refused);
    assert!(
        matches!(&found.pools[0].trouble, Some(PoolBlocked::Unrenderable { reason }) if reason.contains("60-bad"))
    );
}

#[test]
fn machines_move_when_a_pool_is_added_or_removed() {
    let mut snapshot = plan_snapshot();
    let rendered = snapshot.pools[0].target_config().to_owned();
    snapshot.nodes[0] = node("a", &rendered, &["worker", "infra"]);
    let motd = machine_config("50-infra", "infra", &file("/etc/motd", "infra"));
    let made = PlannedChanges {
        pools: vec![pool("infra")],
        machine_configs: vec![motd.clone()],
        ..PlannedChanges::default()
    };
    let found = plan_changes(&snapshot, &made, &now());
    let moved = |from: &str, to: &str| PoolMove {
        machine: "a".to_owned(),
        from: Some(from.to_owned()),
        to: Some(to.to_owned()),
    };
    assert_eq!(found.moves, [moved("worker", "infra")]);
    let names: Vec<&str> = found.pools.iter().map(|pool| pool.pool.as_str()).collect();
    assert_eq!(names, ["infra", "worker"]);
    assert_eq!(
        (&found.pools[0].before, found.pools[0].next.as_slice()),
        (&None, ["a".to_owned()].as_slice())
    );
    assert!(found.pools[1].machines.is_empty(), "{:?}", found.pools[1]);

    snapshot.pools.push(pool("infra"));
    snapshot.machine_configs.push(motd);
    roll_out(&mut snapshot, "infra");
    let gone =
        PlannedChanges { deleted_pools: vec!["infra".to_owned()], ..PlannedChanges::default() };
    assert_eq!(plan_changes(&snapshot, &gone, &now()).moves, [moved("infra", "worker")]);
}

#[test]
fn risky_pool_settings_give_warnings() {
    let snapshot = plan_snapshot();
    let hurts = |snapshot: &PlanSnapshot, changes: &PlannedChanges| -> Vec<PlanWarningKind> {
        let found = plan_changes(snapshot, changes, &now());
        found.pools.iter().flat_map(|pool| pool.warnings.iter().map(|one| one.warning)).collect()
    };
    let with = |edit: &dyn Fn(&mut MachineConfigPool)| {
        let mut pool = snapshot.pools[0].clone();
        edit(&mut pool);
        PlannedChanges { pools: vec![pool], ..PlannedChanges::default() }
    };
    let paused = with(&|pool| pool.spec.paused = Some(true));
    assert_eq!(hurts(&snapshot, &paused), [PlanWarningKind::Paused]);
    let most = with(&|pool| {
        pool.spec.max_unavailable = serde_json::from_value(json!(2)).unwrap();
    });
    assert_eq!(hurts(&snapshot, &most), [PlanWarningKind::MaxUnavailable]);
    let nonsense = with(&|pool| {
        let canary = (machinist::CANARY.to_owned(), "few".to_owned());
        pool.metadata.annotations = Some([canary].into());
    });
    assert_eq!(hurts(&snapshot, &nonsense), [PlanWarningKind::BadSettings]);
    // One machine ran without SELinux; the others did not.
    let mut without = snapshot.clone();
    without.machine_configs.push(machine_config(
        "50-s",
        "worker",
        &json!({"kernelArguments": ["selinux=0"]}),
    ));
    let off = roll_out(&mut without, "worker");
    without.nodes[1] = node("b", &off, &["worker"]);
    let changes = PlannedChanges {
        deleted_machine_configs: vec!["50-s".to_owned()],
        ..PlannedChanges::default()
    };
    let found = plan_changes(&without, &changes, &now());
    let warning = &found.pools[0].warnings[0];
    assert_eq!(
        (warning.warning, warning.machines.as_slice()),
        (PlanWarningKind::SelinuxBack, ["b".to_owned()].as_slice())
    );
}

#[test]
fn a_change_on_top_of_one_that_is_not_rendered_yet_says_so() {
    let mut snapshot = plan_snapshot();
    snapshot.machine_configs.push(machine_config("50-x", "worker", &file("/etc/x", "x")));
    let changes = change(machine_config("50-y", "worker", &file("/etc/y", "y")));
    let found = plan_changes(&snapshot, &changes, &now());
    let hurts: Vec<PlanWarningKind> =
        found.pools[0].warnings.iter().map(|one| one.warning).collect();
    assert_eq!(hurts, [PlanWarningKind::NotCaughtUp]);
}
