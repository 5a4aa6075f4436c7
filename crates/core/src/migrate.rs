//! Plans the migration of objects from one API server to another, without any effect on the
//! machines.
//!
//! Works on JSON values as they are stored, so that fields which this version does not know are
//! migrated, too. Called by `machinist migrate`.

use serde_json::{Map, Value, json};

use crate::api::names::annotation;

/// Metadata that an API server sets itself.
const SERVER_FIELDS: [&str; 8] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "selfLink",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// The prefixes of a Node's labels and annotations that are migrated.
const OWNED_NODE_PREFIXES: [&str; 4] = [
    "machineconfiguration.openshift.io/",
    "machine.openshift.io/",
    "machinist.dev/",
    "node-role.kubernetes.io/",
];

/// The annotation with a machine's current config.
const CURRENT_CONFIG: &str = "machineconfiguration.openshift.io/currentConfig";

/// Set on pools that are being migrated.
pub const MIGRATING: &str = "machinist.dev/moving";

/// The first version of a migrated pool. It is paused, because the target's controller renders the
/// pool from however many of its MachineConfigs have arrived.
#[must_use]
pub fn paused_for_migration(pool: &Value) -> Value {
    let mut pool = pool.clone();
    pool["spec"]["paused"] = true.into();
    pool["metadata"]["annotations"][MIGRATING] = "true".into();
    pool
}

/// The merge patch that ends the migration of a pool: it is paused only if it was paused on the
/// source.
#[must_use]
pub fn resume_patch(old: &Value) -> Value {
    let paused = old["spec"]["paused"].as_bool().unwrap_or_default();
    json!({"metadata": {"annotations": {MIGRATING: null}}, "spec": {"paused": paused}})
}

/// What to do with one object.
#[derive(Debug, Clone, PartialEq)]
pub enum MigrationStep {
    /// Create it: the target does not have it.
    Create(Value),
    /// Replace it: the target's has never been used.
    Replace(Value),
    /// Add these parts with a merge patch.
    Merge(Value),
    /// The target already has the same.
    Unchanged,
    /// The target has a different one: an administrator must decide.
    Conflict(String),
}

/// What to do with one of Machinist's objects.
#[must_use]
pub fn migration_step(object: &Value, there: Option<&Value>) -> MigrationStep {
    let wanted = portable(object);
    let Some(there) = there else { return MigrationStep::Create(wanted) };
    // The target's controller creates its own.
    let is_of_a_machine = there["kind"] == "MachineConfigNode";
    if is_of_a_machine || comparable_contents(&wanted) == comparable_contents(&portable(there)) {
        return MigrationStep::Unchanged;
    }
    // A new API server starts with pools that nobody has used yet; and a migration may have been
    // interrupted.
    let is_unused = there["spec"]["configuration"]["name"].as_str().unwrap_or_default().is_empty();
    let is_moving = there["metadata"]["annotations"].get(MIGRATING).is_some();
    let is_unused_pool = there["kind"] == "MachineConfigPool" && (is_unused || is_moving);
    if is_unused_pool || is_unset_machine_configuration(there) {
        let mut wanted = wanted;
        wanted["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"].clone();
        return MigrationStep::Replace(wanted);
    }
    MigrationStep::Conflict(
        "already exists on the target and differs; delete one of the two, or make them equal"
            .to_owned(),
    )
}

/// Whether nobody has configured anything in the MachineConfiguration that a hub or an operator creates.
fn is_unset_machine_configuration(there: &Value) -> bool {
    let made = ["managementState", "logLevel", "operatorLogLevel"];
    let spec = there["spec"].as_object();
    there["kind"] == "MachineConfiguration"
        && spec.is_none_or(|spec| spec.keys().all(|field| made.contains(&field.as_str())))
}

/// Whether the target's controller creates and maintains this object. It becomes equal to the
/// source's once all its inputs have arrived, which is checked before the pools are resumed.
#[must_use]
pub fn is_controller_managed(there: &Value) -> bool {
    let annotations = &there["metadata"]["annotations"];
    there["kind"] == "MachineConfigNode"
        || annotations.get(annotation::GENERATED_BY_CONTROLLER_VERSION).is_some()
}

/// What to do with a Node.
#[must_use]
pub fn node_migration_step(node: &Value, there: Option<&Value>) -> MigrationStep {
    let Some(there) = there else {
        let mut wanted = portable(node);
        // The kubelet keeps updating this status on the target.
        wanted["status"] = node["status"].clone();
        return MigrationStep::Create(wanted);
    };
    let has =
        |node: &Value| node["metadata"]["annotations"][CURRENT_CONFIG].as_str().map(str::to_owned);
    if let (Some(moved), Some(known)) = (has(node), has(there))
        && moved != known
    {
        return MigrationStep::Conflict(format!(
            "has the config {known} on the target and {moved} on the source; find out which is right and remove the annotation {CURRENT_CONFIG} from the other"
        ));
    }
    let mut metadata = Map::new();
    for field in ["labels", "annotations"] {
        let added = missing_owned_entries(&node["metadata"][field], &there["metadata"][field]);
        if !added.is_empty() {
            metadata.insert(field.to_owned(), Value::Object(added));
        }
    }
    if metadata.is_empty() {
        MigrationStep::Unchanged
    } else {
        MigrationStep::Merge(json!({ "metadata": metadata }))
    }
}

/// The migrated entries of one map that are missing or different in the other.
fn missing_owned_entries(wanted: &Value, there: &Value) -> Map<String, Value> {
    let is_ours = |key: &str| OWNED_NODE_PREFIXES.iter().any(|prefix| key.starts_with(prefix));
    let wanted = wanted.as_object().into_iter().flatten();
    let new = wanted.filter(|(key, value)| is_ours(key) && there.get(key.as_str()) != Some(value));
    new.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// An object without everything that its API server added. [`remapped_owners`] handles owners,
/// because they have other UIDs on the target.
#[must_use]
pub fn portable(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in SERVER_FIELDS.iter().chain(&["ownerReferences"]) {
            metadata.remove(*field);
        }
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    object
}

/// The parts of an object that are compared.
fn comparable_contents(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    // Absent and empty are equivalent.
    for field in ["labels", "annotations"] {
        let map = &mut object["metadata"][field];
        if map.is_null() {
            *map = json!({});
        }
    }
    // The API server fills in defaults, and the controller the list of sources.
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        if spec.get("paused") == Some(&Value::Bool(false)) {
            spec.remove("paused");
        }
        if let Some(configuration) = spec.get("configuration") {
            let name = configuration["name"].as_str().filter(|name| !name.is_empty());
            let name = name.map(str::to_owned);
            spec.insert("configuration".to_owned(), name.into());
        }
        spec.retain(|_, value| !value.is_null());
    }
    object
}

/// The owners of an object, with their UIDs on the target; `None` if none of them exists there.
#[must_use]
pub fn remapped_owners(
    object: &Value,
    identity: impl Fn(&str, &str) -> Option<String>,
) -> Option<Value> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let moved: Vec<Value> = owners
        .iter()
        .filter_map(|owner| {
            let uid = identity(owner["kind"].as_str()?, owner["name"].as_str()?)?;
            let mut owner = owner.clone();
            owner["uid"] = uid.into();
            Some(owner)
        })
        .collect();
    (!moved.is_empty()).then_some(Value::Array(moved))
}

/// Why a pool cannot be migrated now: its machines are updating.
#[must_use]
pub fn migration_blocker(pool: &Value) -> Option<String> {
    let count = |field: &str| pool["status"][field].as_i64().unwrap_or_default();
    let (machines, updated) = (count("machineCount"), count("updatedMachineCount"));
    let paused = pool["spec"]["paused"].as_bool().unwrap_or_default();
    (machines != updated && !paused).then(|| {
        format!(
            "{updated} of {machines} machines are updated; wait for the rollout, or pause the pool"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(contents: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "MachineConfig", "spec": {"a": contents}, "metadata": {
            "name": "x", "uid": "1", "resourceVersion": "7", "creationTimestamp": "t",
            "ownerReferences": [{"kind": "MachineConfigPool", "name": "worker", "uid": "old"}]}})
    }

    #[test]
    fn an_object_is_created_kept_or_in_conflict() {
        let MigrationStep::Create(made) = migration_step(&config("a"), None) else { panic!() };
        assert_eq!(made["metadata"], json!({"name": "x"}));
        let mut there = config("a");
        there["metadata"]["uid"] = "2".into();
        there["metadata"]["labels"] = json!({});
        assert_eq!(migration_step(&config("a"), Some(&there)), MigrationStep::Unchanged);
        assert!(matches!(
            migration_step(&config("a"), Some(&config("b"))),
            MigrationStep::Conflict(_)
        ));
        let made = |config: &str| json!({"kind": "MachineConfigNode", "metadata": {"name": "n"}, "spec": {"c": config}});
        assert_eq!(migration_step(&made("a"), Some(&made("b"))), MigrationStep::Unchanged);
        let mut generated = config("a");
        assert!(is_controller_managed(&made("a")) && !is_controller_managed(&generated));
        generated["metadata"]["annotations"] =
            json!({annotation::GENERATED_BY_CONTROLLER_VERSION: "v1"});
        assert!(is_controller_managed(&generated));
    }

    #[test]
    fn settings_that_nobody_configured_are_replaced() {
        let settings = |spec: Value| json!({"kind": "MachineConfiguration", "metadata": {"name": "cluster"}, "spec": spec});
        let moved = settings(json!({"nodeDisruptionPolicy": {"files": []}}));
        let made = settings(json!({"managementState": "Managed", "logLevel": "Normal"}));
        assert!(matches!(migration_step(&moved, Some(&made)), MigrationStep::Replace(_)));
        let other = settings(json!({"nodeDisruptionPolicy": {"units": []}}));
        assert!(matches!(migration_step(&moved, Some(&other)), MigrationStep::Conflict(_)));
    }

    #[test]
    fn an_unused_pool_is_replaced() {
        let pool = |name: &str, label: &str| {
            json!({"kind": "MachineConfigPool", "spec": {"configuration": {"name": name}},
                "metadata": {"name": "worker", "resourceVersion": "9", "labels": {"a": label}}})
        };
        let MigrationStep::Replace(new) =
            migration_step(&pool("rendered", "x"), Some(&pool("", "y")))
        else {
            panic!()
        };
        assert_eq!(new["metadata"]["resourceVersion"], "9");
        assert_eq!(new["spec"]["configuration"]["name"], "rendered");
        let used = migration_step(&pool("rendered", "x"), Some(&pool("other", "y")));
        assert!(matches!(used, MigrationStep::Conflict(_)));
        let interrupted = paused_for_migration(&pool("other", "y"));
        assert_eq!(interrupted["spec"]["paused"], true);
        assert!(matches!(
            migration_step(&pool("rendered", "x"), Some(&interrupted)),
            MigrationStep::Replace(_)
        ));
        assert_eq!(resume_patch(&pool("rendered", "x"))["spec"]["paused"], false);
    }

    #[test]
    fn a_node_keeps_what_the_target_knows_about_it() {
        let node = |current: &str, label: &str| {
            json!({"metadata": {"name": "a", "annotations": {CURRENT_CONFIG: current, "other/x": "1"},
                "labels": {"node-role.kubernetes.io/worker": label, "zone": "z"}}, "status": {"s": 1}})
        };
        let MigrationStep::Create(made) = node_migration_step(&node("c", ""), None) else {
            panic!()
        };
        assert_eq!(made["status"], json!({"s": 1}));
        let there = json!({"metadata": {"name": "a", "labels": {"zone": "other"}}});
        let MigrationStep::Merge(patch) = node_migration_step(&node("c", ""), Some(&there)) else {
            panic!()
        };
        let expected = json!({"metadata": {"annotations": {CURRENT_CONFIG: "c"},
            "labels": {"node-role.kubernetes.io/worker": ""}}});
        assert_eq!(patch, expected);
        assert_eq!(
            node_migration_step(&node("c", ""), Some(&node("c", ""))),
            MigrationStep::Unchanged
        );
        assert!(matches!(
            node_migration_step(&node("c", ""), Some(&node("d", ""))),
            MigrationStep::Conflict(_)
        ));
    }

    #[test]
    fn owners_get_the_uids_of_the_target() {
        let identity = |kind: &str, name: &str| {
            (kind == "MachineConfigPool" && name == "worker").then(|| "new".to_owned())
        };
        assert_eq!(remapped_owners(&config("a"), identity).unwrap()[0]["uid"], "new");
        assert_eq!(remapped_owners(&config("a"), |_, _| None), None);
        assert_eq!(remapped_owners(&json!({}), identity), None);
    }

    #[test]
    fn an_updating_pool_is_not_migrated() {
        let pool = |updated: i64, paused: bool| json!({"spec": {"paused": paused}, "status": {"machineCount": 3, "updatedMachineCount": updated}});
        assert_eq!(migration_blocker(&pool(3, false)), None);
        assert_eq!(migration_blocker(&pool(2, true)), None);
        assert!(migration_blocker(&pool(2, false)).unwrap().contains("2 of 3"));
    }
}
