//! Reports what applying an object changed, and whether it reverted somebody else's change.
//!
//! The API server records who last wrote which field (`metadata.managedFields`), so the operator
//! needs no memory of its own. A field that differs and is still ours changed because we want
//! something else now (a new setting, a new release). A field that is no longer ours was changed by
//! somebody, and often it is known by whom.

use serde_json::Value;

use super::RELEASE_ANNOTATION;
use super::events::OperatorEvent;
use crate::api::names::FIELD_MANAGER;

/// At most this many fields are listed.
const MAX_NAMED_FIELDS: usize = 5;

/// One step of a path in an object: a key, or an item of a list.
#[derive(Debug, Clone)]
enum FieldPathSegment<'a> {
    Key(&'a str),
    Item(&'a Value),
}

type FieldPath<'a> = Vec<FieldPathSegment<'a>>;

/// The event for applying `wanted` over `found`. `existed` says whether the object existed in an
/// earlier pass. `None` if nothing was written.
#[must_use]
pub fn apply_event(
    wanted: &Value,
    found: Option<&Value>,
    written: &Value,
    existed: bool,
) -> Option<OperatorEvent> {
    let about = format!("{} {}", kind_of(&wanted["kind"]), kind_of(&wanted["metadata"]["name"]));
    let Some(found) = found else {
        return Some(match existed {
            true => repaired_event(
                wanted,
                format!("{about} was deleted by somebody and has been recreated"),
            ),
            false => created_event(wanted, format!("{about} was created")),
        });
    };
    if is_same(wanted, found, written) {
        return None;
    }
    let release = |object: &Value| object["metadata"]["annotations"][RELEASE_ANNOTATION].clone();
    if release(wanted) != release(found) && !release(found).is_null() {
        let message = format!("{about} was updated to release {}", kind_of(&release(wanted)));
        return Some(updated_event(wanted, message));
    }
    let places = differences(wanted, found);
    let names = name_fields(&places);
    let writers = FieldManagers::of(found);
    let by =
        places.iter().filter_map(|place| writers.other_manager(place)).max_by_key(|it| it.time);
    let is_own_wish =
        places.is_empty() || places.iter().any(|place| writers.is_owned_by_operator(place));
    Some(match by {
        Some(by) => {
            let message = format!("{about} was repaired: {names} had been changed by {}", by.name);
            repaired_event(wanted, message)
        }
        None if is_own_wish => updated_event(wanted, format!("{about} was updated: {names}")),
        None => repaired_event(
            wanted,
            format!("{about} was repaired: {names} had been changed by somebody"),
        ),
    })
}

fn created_event(object: &Value, message: String) -> OperatorEvent {
    match kind_of(&object["kind"]) {
        "Deployment" => OperatorEvent::normal("DeploymentCreated", message),
        "DaemonSet" => OperatorEvent::normal("DaemonSetCreated", message),
        _ => OperatorEvent::normal("ControllerConfigCreated", message),
    }
}

fn updated_event(object: &Value, message: String) -> OperatorEvent {
    match kind_of(&object["kind"]) {
        "Deployment" => OperatorEvent::normal("DeploymentUpdated", message),
        "DaemonSet" => OperatorEvent::normal("DaemonSetUpdated", message),
        _ => OperatorEvent::normal("ControllerConfigUpdated", message),
    }
}

fn repaired_event(object: &Value, message: String) -> OperatorEvent {
    match kind_of(&object["kind"]) {
        "Deployment" => OperatorEvent::warning("DeploymentRepaired", message),
        "DaemonSet" => OperatorEvent::warning("DaemonSetRepaired", message),
        _ => OperatorEvent::warning("ControllerConfigRepaired", message),
    }
}

fn kind_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whether nothing of ours was written. Annotations of others change without a new generation.
fn is_same(wanted: &Value, found: &Value, written: &Value) -> bool {
    found["metadata"]["generation"] == written["metadata"]["generation"]
        && differences(&wanted["metadata"], &found["metadata"]).is_empty()
}

/// The fields in which an object differs from the desired one. Fields that are not set may have any
/// value.
fn differences<'a>(wanted: &'a Value, found: &'a Value) -> Vec<FieldPath<'a>> {
    let (mut all, mut place) = (Vec::new(), Vec::new());
    compare(wanted, found, &mut place, &mut all);
    all
}

fn compare<'a>(
    wanted: &'a Value,
    found: &'a Value,
    place: &mut FieldPath<'a>,
    all: &mut Vec<FieldPath<'a>>,
) {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            for (key, value) in wanted {
                place.push(FieldPathSegment::Key(key));
                match found.get(key) {
                    Some(found) => compare(value, found, place, all),
                    // Empty and absent are equivalent.
                    None if is_empty(value) => {}
                    None => all.push(place.clone()),
                }
                place.pop();
            }
        }
        (Value::Array(wanted), Value::Array(found)) if wanted.iter().all(is_named) => {
            for item in wanted {
                let same = found.iter().find(|it| it["name"] == item["name"]);
                place.push(FieldPathSegment::Item(same.unwrap_or(item)));
                match same {
                    Some(same) => compare(item, same, place, all),
                    None => all.push(place.clone()),
                }
                place.pop();
            }
        }
        (Value::Array(items), Value::Array(there)) => {
            let is_like =
                |(item, there): (&'a Value, &'a Value)| differences(item, there).is_empty();
            if items.len() != there.len() || !items.iter().zip(there).all(is_like) {
                all.push(place.clone());
            }
        }
        _ if wanted == found || is_empty(wanted) && found.is_null() => {}
        _ => all.push(place.clone()),
    }
}

fn is_named(item: &Value) -> bool {
    item["name"].is_string()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        _ => false,
    }
}

/// The first few field names, in readable form.
fn name_fields(places: &[FieldPath<'_>]) -> String {
    let one = |place: &FieldPath<'_>| {
        let mut text = String::new();
        for step in place {
            match step {
                FieldPathSegment::Key(key) if key.contains(['.', '/']) => {
                    text += &format!("[{key}]");
                }
                FieldPathSegment::Key(key) if text.is_empty() => text += key,
                FieldPathSegment::Key(key) => text += &format!(".{key}"),
                FieldPathSegment::Item(item) => text += &format!("[{}]", kind_of(&item["name"])),
            }
        }
        text
    };
    let names: Vec<String> = places.iter().take(MAX_NAMED_FIELDS).map(one).collect();
    match places.len() {
        0 => "unwanted fields were removed".to_owned(),
        count if count > MAX_NAMED_FIELDS => {
            format!("{} and {} more", names.join(", "), count - MAX_NAMED_FIELDS)
        }
        _ => names.join(", "),
    }
}

/// Who wrote which field of an object.
struct FieldManagers<'a>(Vec<FieldManager<'a>>);

struct FieldManager<'a> {
    name: &'a str,
    time: &'a str,
    is_apply: bool,
    fields: &'a Value,
}

impl<'a> FieldManagers<'a> {
    /// Ignores the writers of the status.
    fn of(object: &'a Value) -> Self {
        let entries = object["metadata"]["managedFields"].as_array();
        let entries =
            entries.into_iter().flatten().filter(|entry| entry["subresource"] != "status");
        let writer = |entry: &'a Value| FieldManager {
            name: kind_of(&entry["manager"]),
            time: kind_of(&entry["time"]),
            is_apply: entry["operation"] == "Apply",
            fields: &entry["fieldsV1"],
        };
        Self(entries.map(writer).collect())
    }

    fn is_owned_by_operator(&self, place: &[FieldPathSegment<'_>]) -> bool {
        self.0.iter().any(|it| it.name == FIELD_MANAGER && it.is_apply && it.owns(place))
    }

    fn other_manager(&self, place: &[FieldPathSegment<'_>]) -> Option<&FieldManager<'a>> {
        let others = self.0.iter().filter(|it| it.name != FIELD_MANAGER || !it.is_apply);
        others.filter(|it| it.owns(place)).max_by_key(|it| it.time)
    }
}

impl FieldManager<'_> {
    fn owns(&self, place: &[FieldPathSegment<'_>]) -> bool {
        let mut fields = self.fields;
        for step in place {
            let Some(inside) = fields.as_object() else { return false };
            if inside.is_empty() {
                // Owns everything below.
                return true;
            }
            let next = match step {
                FieldPathSegment::Key(key) => inside.get(&format!("f:{key}")),
                FieldPathSegment::Item(item) => {
                    inside.iter().find(|(key, _)| matches_item_key(key, item)).map(|(_, it)| it)
                }
            };
            match next {
                Some(next) => fields = next,
                None => return false,
            }
        }
        fields.is_object()
    }
}

/// Whether the key of a list item, such as `k:{"name":"a"}`, matches this item.
fn matches_item_key(key: &str, item: &Value) -> bool {
    let key = key.strip_prefix("k:").and_then(|key| serde_json::from_str::<Value>(key).ok());
    let Some(Value::Object(key)) = key else { return false };
    key.iter().all(|(field, value)| item[field] == *value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::component_order::OperatorComponent;
    use crate::operator::components::tests::inputs;
    use serde_json::json;

    /// The controller's Deployment as an API server stores it.
    fn kept() -> Value {
        let mut kept = inputs().manifest(OperatorComponent::Controller);
        kept["metadata"]["generation"] = 1.into();
        kept["spec"]["progressDeadlineSeconds"] = 600.into();
        kept["spec"]["template"]["spec"]["containers"][0]["ports"][0]["protocol"] = "TCP".into();
        kept["metadata"]["managedFields"] = json!([
            {"manager": FIELD_MANAGER, "operation": "Apply", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {
                "f:replicas": {},
                "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"controller\"}": {"f:args": {}, "f:image": {}}}}},
            }}},
            {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}},
        ]);
        kept
    }

    /// Somebody takes over a field.
    fn taken(kept: &mut Value, manager: &str, fields: &Value) {
        let ours = &mut kept["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
        ours.as_object_mut().unwrap().remove("f:replicas");
        let more = json!({"manager": manager, "operation": "Update", "time": "2026-01-02T00:00:00Z", "fieldsV1": fields});
        kept["metadata"]["managedFields"].as_array_mut().unwrap().push(more);
    }

    fn asked(found: &Value) -> String {
        let mut written = found.clone();
        written["metadata"]["generation"] = 2.into();
        let event = apply_event(
            &inputs().manifest(OperatorComponent::Controller),
            Some(found),
            &written,
            true,
        );
        event.map(|event| format!("{}: {}", event.reason, event.message)).unwrap_or_default()
    }

    #[test]
    fn no_event_if_nothing_was_written() {
        let found = kept();
        let mut written = found.clone();
        written["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "1".into();
        assert_eq!(
            apply_event(
                &inputs().manifest(OperatorComponent::Controller),
                Some(&found),
                &written,
                true
            ),
            None
        );
        assert!(differences(&inputs().manifest(OperatorComponent::Controller), &found).is_empty());
    }

    #[test]
    fn created_and_recreated_objects_are_reported() {
        let wanted = inputs().manifest(OperatorComponent::Daemon);
        let reason =
            |existed| apply_event(&wanted, None, &wanted, existed).map(|event| event.reason);
        assert_eq!(reason(false), Some("DaemonSetCreated"));
        assert_eq!(reason(true), Some("DaemonSetRepaired"));
    }

    #[test]
    fn a_scaled_deployment_is_repaired() {
        let mut found = kept();
        found["spec"]["replicas"] = 0.into();
        taken(&mut found, "kubectl-scale", &json!({"f:spec": {"f:replicas": {}}}));
        assert_eq!(
            asked(&found),
            "DeploymentRepaired: Deployment machine-config-controller was repaired: spec.replicas had been changed by kubectl-scale"
        );
    }

    #[test]
    fn a_removed_field_is_repaired() {
        let mut found = kept();
        found["spec"].as_object_mut().unwrap().remove("replicas");
        let ours = &mut found["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
        ours.as_object_mut().unwrap().remove("f:replicas");
        assert_eq!(
            asked(&found),
            "DeploymentRepaired: Deployment machine-config-controller was repaired: spec.replicas had been changed by somebody"
        );
    }

    #[test]
    fn a_new_setting_or_release_is_not_a_repair() {
        let mut found = kept();
        found["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["controller"]);
        assert_eq!(
            asked(&found),
            "DeploymentUpdated: Deployment machine-config-controller was updated: spec.template.spec.containers[controller].args"
        );
        found["metadata"]["annotations"][RELEASE_ANNOTATION] = "0".into();
        assert_eq!(
            asked(&found),
            "DeploymentUpdated: Deployment machine-config-controller was updated to release 1"
        );
    }

    #[test]
    fn list_items_are_found_by_name() {
        let mut found = kept();
        found["spec"]["template"]["spec"]["containers"][0]["image"] = "other".into();
        let fields = json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"controller\"}": {"f:image": {}}}}}}});
        taken(&mut found, "kubectl-edit", &fields);
        assert!(
            asked(&found)
                .ends_with("containers[controller].image had been changed by kubectl-edit")
        );
    }

    #[test]
    fn only_the_first_fields_are_listed() {
        let (wanted, found) =
            (json!({"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f.g": 1, "h": []}), json!({"f.g": 1}));
        assert_eq!(name_fields(&differences(&wanted, &found)), "a, b, c, d, e");
        assert!(name_fields(&differences(&wanted, &json!({}))).ends_with("e and 1 more"));
    }
}
