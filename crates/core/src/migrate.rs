//! Moving house: what is taken from one home of the API to another, so that no machine notices.
//!
//! Objects are looked at as they are stored, so that what this version does not know moves too.

use serde_json::{Map, Value, json};

use crate::api::names::annotation;

/// What a home fills in itself.
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

/// What begins the labels and annotations of machines that are ours to move.
const OWNED_NODE_PREFIXES: [&str; 4] = [
    "machineconfiguration.openshift.io/",
    "machine.openshift.io/",
    "machinist.dev/",
    "node-role.kubernetes.io/",
];

/// The annotation that says what a machine has.
const CURRENT_CONFIG: &str = "machineconfiguration.openshift.io/currentConfig";

/// There on pools that are being moved.
pub const MIGRATING: &str = "machinist.dev/moving";

/// A pool as it is written first: paused, because while its MachineConfigs arrive one after the other, a controller of the new
/// home renders what there is.
#[must_use]
pub fn paused_for_migration(pool: &Value) -> Value {
    let mut pool = pool.clone();
    pool["spec"]["paused"] = true.into();
    pool["metadata"]["annotations"][MIGRATING] = "true".into();
    pool
}

/// The merge patch that lets a pool go again, as it was in the old home.
#[must_use]
pub fn resume_patch(old: &Value) -> Value {
    let paused = old["spec"]["paused"].as_bool().unwrap_or_default();
    json!({"metadata": {"annotations": {MIGRATING: null}}, "spec": {"paused": paused}})
}

/// What has to be done with one object.
#[derive(Debug, Clone, PartialEq)]
pub enum MigrationStep {
    /// It is not there: it is made.
    Create(Value),
    /// It is there and has never been used: it is replaced.
    Replace(Value),
    /// It is there: these parts are added (a merge patch).
    Merge(Value),
    /// It is there as it should be.
    Unchanged,
    /// It is there and different: a person has to decide.
    Conflict(String),
}

/// What to do with an object of ours.
#[must_use]
pub fn migration_step(object: &Value, there: Option<&Value>) -> MigrationStep {
    let wanted = portable(object);
    let Some(there) = there else { return MigrationStep::Create(wanted) };
    // What a controller makes of a machine, one of the new home makes there.
    let is_of_a_machine = there["kind"] == "MachineConfigNode";
    if is_of_a_machine || comparable_contents(&wanted) == comparable_contents(&portable(there)) {
        return MigrationStep::Unchanged;
    }
    // A new home begins with pools that nobody has used yet; and a move may have been interrupted.
    let is_unused = there["spec"]["configuration"]["name"].as_str().unwrap_or_default().is_empty();
    let is_moving = there["metadata"]["annotations"].get(MIGRATING).is_some();
    if there["kind"] == "MachineConfigPool" && (is_unused || is_moving) {
        let mut wanted = wanted;
        wanted["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"].clone();
        return MigrationStep::Replace(wanted);
    }
    MigrationStep::Conflict(
        "is there already, and is different; delete one of the two, or make them equal".to_owned(),
    )
}

/// Whether a controller of the new home has made an object and keeps it: it comes to the same as the old one when everything that
/// it is made of has arrived, which is looked at before the pools are let go.
#[must_use]
pub fn is_controller_managed(there: &Value) -> bool {
    let annotations = &there["metadata"]["annotations"];
    there["kind"] == "MachineConfigNode"
        || annotations.get(annotation::GENERATED_BY_CONTROLLER_VERSION).is_some()
}

/// What to do with a machine.
#[must_use]
pub fn node_migration_step(node: &Value, there: Option<&Value>) -> MigrationStep {
    let Some(there) = there else {
        let mut wanted = portable(node);
        // What its kubelet says is said by it in the new home.
        wanted["status"] = node["status"].clone();
        return MigrationStep::Create(wanted);
    };
    let has =
        |node: &Value| node["metadata"]["annotations"][CURRENT_CONFIG].as_str().map(str::to_owned);
    if let (Some(moved), Some(known)) = (has(node), has(there))
        && moved != known
    {
        return MigrationStep::Conflict(format!(
            "has {known} there and {moved} here; find out which is true and remove the annotation {CURRENT_CONFIG} from the other"
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

/// What is ours in one map and not so in the other.
fn missing_owned_entries(wanted: &Value, there: &Value) -> Map<String, Value> {
    let is_ours = |key: &str| OWNED_NODE_PREFIXES.iter().any(|prefix| key.starts_with(prefix));
    let wanted = wanted.as_object().into_iter().flatten();
    let new = wanted.filter(|(key, value)| is_ours(key) && there.get(key.as_str()) != Some(value));
    new.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// An object without what belongs to its home: made anew it is the same for everyone but the home. Owners are told by
/// [`owners`], because they have other identities there.
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

/// What two objects are compared by.
fn comparable_contents(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    // Absent and empty are the same to everyone.
    for field in ["labels", "annotations"] {
        let map = &mut object["metadata"][field];
        if map.is_null() {
            *map = json!({});
        }
    }
    // A home fills in what its schema says, and its controller who the config is made of.
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

/// The owners of an object, with the identities that they have in the new home; `None` if it has none there.
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

/// Why a pool cannot be moved now: its machines are on their way.
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
    fn an_object_is_made_kept_or_in_the_way() {
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
    fn a_pool_that_nobody_has_used_gives_way() {
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
    fn a_node_keeps_what_the_new_api_server_knows_of_it() {
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
    fn owners_get_the_uids_of_the_new_api_server() {
        let identity = |kind: &str, name: &str| {
            (kind == "MachineConfigPool" && name == "worker").then(|| "new".to_owned())
        };
        assert_eq!(remapped_owners(&config("a"), identity).unwrap()[0]["uid"], "new");
        assert_eq!(remapped_owners(&config("a"), |_, _| None), None);
        assert_eq!(remapped_owners(&json!({}), identity), None);
    }

    #[test]
    fn a_pool_on_its_way_is_not_moved() {
        let pool = |updated: i64, paused: bool| json!({"spec": {"paused": paused}, "status": {"machineCount": 3, "updatedMachineCount": updated}});
        assert_eq!(migration_blocker(&pool(3, false)), None);
        assert_eq!(migration_blocker(&pool(2, true)), None);
        assert!(migration_blocker(&pool(2, false)).unwrap().contains("2 of 3"));
    }
}
