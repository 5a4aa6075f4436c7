//! `metadata.managedFields`: who owns which fields, in memory and as JSON.
//!
//! Pure; called by [`super::FieldManagement`].

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::field_set::FieldSet;
use super::fields_v1;

/// The operation by which a manager owns fields. Appliers and updaters of one name are two managers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// What identifies a manager.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ManagerId {
    pub(super) manager: String,
    pub(super) operation: Operation,
    /// The API version of an updater; empty for an applier, which is the same in every version.
    pub(super) api_version: String,
    pub(super) subresource: String,
}

/// What a manager owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ownership {
    pub(super) fields: FieldSet,
    /// The API version of the paths.
    pub(super) api_version: String,
    /// When the manager last changed something.
    pub(super) time: Option<Timestamp>,
}

/// The managers of one object.
pub(super) type Managers = BTreeMap<ManagerId, Ownership>;

impl ManagerId {
    pub(super) fn applier(manager: &str, subresource: &str) -> Self {
        Self {
            manager: manager.to_owned(),
            operation: Operation::Apply,
            api_version: String::new(),
            subresource: subresource.to_owned(),
        }
    }

    pub(super) fn updater(manager: &str, api_version: &str, subresource: &str) -> Self {
        let manager = if manager.is_empty() { "unknown" } else { manager };
        Self {
            manager: manager.to_owned(),
            operation: Operation::Update,
            api_version: api_version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }

    /// The text by which conflicts are sorted.
    pub(super) fn sort_key(&self) -> String {
        let mut fields = Vec::new();
        for (name, value) in [
            ("manager", self.manager.as_str()),
            ("operation", self.operation.name()),
            ("apiVersion", &self.api_version),
            ("subresource", &self.subresource),
        ] {
            if !value.is_empty() {
                fields.push(format!("\"{name}\":{}", Value::from(value)));
            }
        }
        format!("{{{}}}", fields.join(","))
    }
}

/// How many managers of updates an object has at most; the oldest are merged.
const MAX_UPDATERS: usize = 10;
/// The manager that the oldest ones are merged into.
const MERGED_UPDATERS: &str = "ancient-changes";

/// Merges the oldest updaters if there are too many. Appliers are not counted.
pub(super) fn cap_updaters(managers: &mut Managers) {
    let mut updaters: Vec<(i64, String, ManagerId)> = managers
        .iter()
        .filter(|(id, _)| id.operation == Operation::Update)
        .map(|(id, owned)| (seconds(owned.time), id.sort_key(), id.clone()))
        .collect();
    let mut left = updaters.len();
    updaters.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    let mut first_of_version: BTreeMap<String, ManagerId> = BTreeMap::new();
    for (_, _, id) in updaters {
        if left <= MAX_UPDATERS {
            return;
        }
        let Some(version) = managers.get(&id).map(|owned| owned.api_version.clone()) else {
            continue;
        };
        let Some(first) = first_of_version.get(&version) else {
            first_of_version.insert(version, id);
            continue;
        };
        let bucket = ManagerId::updater(MERGED_UPDATERS, &version, "");
        if !managers.contains_key(&bucket)
            && let Some(owned) = managers.remove(first)
        {
            managers.insert(bucket.clone(), owned);
        }
        if id != bucket
            && let Some(owned) = managers.remove(&id)
            && let Some(merged) = managers.get_mut(&bucket)
        {
            merged.fields = owned.fields.union(&merged.fields);
            merged.time = owned.time;
        }
        left -= 1;
    }
}

fn seconds(time: Option<Timestamp>) -> i64 {
    time.map_or(0, Timestamp::as_second)
}

/// Decodes the managers of an object; `None` if the entries are malformed.
pub(super) fn decode(object: &Value) -> Option<Managers> {
    let Some(entries) = object["metadata"].get("managedFields") else {
        return Some(Managers::new());
    };
    let mut managers = Managers::new();
    for entry in entries.as_array()? {
        let text = |name: &str| entry[name].as_str().unwrap_or_default();
        let operation = match text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        if text("apiVersion").is_empty() || text("fieldsType") != "FieldsV1" {
            return None;
        }
        let api_version = match operation {
            Operation::Apply => "",
            Operation::Update => text("apiVersion"),
        };
        let id = ManagerId {
            manager: text("manager").to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: text("subresource").to_owned(),
        };
        let fields = fields_v1::decode(&entry["fieldsV1"]).ok()?;
        let time = text("time").parse().ok();
        let api_version = text("apiVersion").to_owned();
        managers.insert(id, Ownership { fields, api_version, time });
    }
    Some(managers)
}

/// Whether the entries ask to forget all managers: an empty list, or one empty entry.
pub(super) fn is_reset(object: &Value) -> bool {
    let entries = object["metadata"].get("managedFields").and_then(Value::as_array);
    entries.is_some_and(|entries| match entries.as_slice() {
        [] => true,
        [Value::Object(entry)] => entry.values().all(Value::is_null),
        _ => false,
    })
}

/// Writes the managers into an object.
pub(super) fn encode(managers: &Managers, object: &mut Value) {
    let mut sorted: Vec<(&ManagerId, &Ownership)> = managers.iter().collect();
    sorted.sort_by(|(a, a_owned), (b, b_owned)| {
        (a.operation, seconds(a_owned.time), &a.manager, &a_owned.api_version, &a.subresource).cmp(
            &(b.operation, seconds(b_owned.time), &b.manager, &b_owned.api_version, &b.subresource),
        )
    });
    let entries: Vec<Value> = sorted.into_iter().map(|(id, owned)| entry(id, owned)).collect();
    let entries = (!entries.is_empty()).then_some(Value::Array(entries));
    crate::object::set_metadata_field(object, "managedFields", entries);
}

fn entry(id: &ManagerId, owned: &Ownership) -> Value {
    let mut entry = Map::new();
    let mut set = |name: &str, value: Value| entry.insert(name.to_owned(), value);
    if !id.manager.is_empty() {
        set("manager", id.manager.as_str().into());
    }
    set("operation", id.operation.name().into());
    set("apiVersion", owned.api_version.as_str().into());
    if let Some(time) = owned.time {
        set("time", time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into());
    }
    set("fieldsType", json!("FieldsV1"));
    set("fieldsV1", fields_v1::encode(&owned.fields));
    if !id.subresource.is_empty() {
        set("subresource", id.subresource.as_str().into());
    }
    Value::Object(entry)
}

/// Undoes a change of nothing but the times of the managers, so that it is not written.
pub(crate) fn keep_times_if_unchanged(old: &Value, new: &mut Value) {
    let entries = |object: &Value| object["metadata"]["managedFields"].as_array().cloned();
    let (Some(before), Some(after)) = (entries(old), entries(new)) else { return };
    let same = |(a, b): (&Value, &Value)| {
        let without_time = |entry: &Value| {
            let mut entry = entry.clone();
            entry.as_object_mut().map(|fields| fields.remove("time"));
            entry
        };
        without_time(a) == without_time(b)
    };
    if before.len() == after.len() && before != after && before.iter().zip(&after).all(same) {
        let changed = std::mem::take(&mut new["metadata"]["managedFields"]);
        new["metadata"]["managedFields"] = before.into();
        // If anything else changed too, the new times stay.
        if !crate::object::is_unchanged(old, new) {
            new["metadata"]["managedFields"] = changed;
        }
    }
}
