//! What applying an object changed, and whether that undid what somebody else had done.
//!
//! An API server remembers who wrote which field last (`metadata.managedFields`), so that it can be told without remembering anything: a field that is
//! not as we want it and that is still ours was changed by a wish of our own (a new setting, a new release); one that is not ours any more was
//! changed by somebody, and often it is known by whom.

use serde_json::Value;

use super::RELEASE;
use super::news::News;
use crate::api::names::FIELD_MANAGER;

/// The most fields that are named.
const NAMED: usize = 5;

/// Where in an object: keys, and items of lists by what they are.
#[derive(Debug, Clone)]
enum Step<'a> {
    Key(&'a str),
    Item(&'a Value),
}

type Place<'a> = Vec<Step<'a>>;

/// What applying `wanted` did, where there was `found` before; `existed` says whether it had been there earlier. Nothing, where
/// nothing was written.
#[must_use]
pub fn told(wanted: &Value, found: Option<&Value>, written: &Value, existed: bool) -> Option<News> {
    let about = format!("{} {}", word(&wanted["kind"]), word(&wanted["metadata"]["name"]));
    let Some(found) = found else {
        return Some(match existed {
            true => repaired(wanted, format!("{about} was deleted by somebody; it was made again")),
            false => made(wanted, format!("{about} was made")),
        });
    };
    if is_same(wanted, found, written) {
        return None;
    }
    let release = |object: &Value| object["metadata"]["annotations"][RELEASE].clone();
    if release(wanted) != release(found) && !release(found).is_null() {
        let message = format!("{about} was brought to release {}", word(&release(wanted)));
        return Some(updated(wanted, message));
    }
    let places = differences(wanted, found);
    let names = named(&places);
    let writers = Writers::of(found);
    let by = places.iter().filter_map(|place| writers.other(place)).max_by_key(|it| it.time);
    let is_own_wish = places.is_empty() || places.iter().any(|place| writers.is_ours(place));
    Some(match by {
        Some(by) => {
            let message = format!("{about} was put right: {names} had been changed by {}", by.name);
            repaired(wanted, message)
        }
        None if is_own_wish => updated(wanted, format!("{about} was updated: {names}")),
        None => {
            repaired(wanted, format!("{about} was put right: {names} had been changed by somebody"))
        }
    })
}

fn made(object: &Value, message: String) -> News {
    match word(&object["kind"]) {
        "Deployment" => News::of("DeploymentCreated", message),
        "DaemonSet" => News::of("DaemonSetCreated", message),
        _ => News::of("ControllerConfigCreated", message),
    }
}

fn updated(object: &Value, message: String) -> News {
    match word(&object["kind"]) {
        "Deployment" => News::of("DeploymentUpdated", message),
        "DaemonSet" => News::of("DaemonSetUpdated", message),
        _ => News::of("ControllerConfigUpdated", message),
    }
}

fn repaired(object: &Value, message: String) -> News {
    match word(&object["kind"]) {
        "Deployment" => News::warning("DeploymentRepaired", message),
        "DaemonSet" => News::warning("DaemonSetRepaired", message),
        _ => News::warning("ControllerConfigRepaired", message),
    }
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whether nothing of ours was written. Annotations of others come and go without a new generation.
fn is_same(wanted: &Value, found: &Value, written: &Value) -> bool {
    found["metadata"]["generation"] == written["metadata"]["generation"]
        && differences(&wanted["metadata"], &found["metadata"]).is_empty()
}

/// Where an object is not as it is wanted. What is not said may be anything.
fn differences<'a>(wanted: &'a Value, found: &'a Value) -> Vec<Place<'a>> {
    let (mut all, mut place) = (Vec::new(), Vec::new());
    compare(wanted, found, &mut place, &mut all);
    all
}

fn compare<'a>(
    wanted: &'a Value,
    found: &'a Value,
    place: &mut Place<'a>,
    all: &mut Vec<Place<'a>>,
) {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            for (key, value) in wanted {
                place.push(Step::Key(key));
                match found.get(key) {
                    Some(found) => compare(value, found, place, all),
                    // What is empty is as good as absent.
                    None if is_empty(value) => {}
                    None => all.push(place.clone()),
                }
                place.pop();
            }
        }
        (Value::Array(wanted), Value::Array(found)) if wanted.iter().all(is_named) => {
            for item in wanted {
                let same = found.iter().find(|it| it["name"] == item["name"]);
                place.push(Step::Item(same.unwrap_or(item)));
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

/// Fields as people name them, a few at most.
fn named(places: &[Place<'_>]) -> String {
    let one = |place: &Place<'_>| {
        let mut text = String::new();
        for step in place {
            match step {
                Step::Key(key) if key.contains(['.', '/']) => text += &format!("[{key}]"),
                Step::Key(key) if text.is_empty() => text += key,
                Step::Key(key) => text += &format!(".{key}"),
                Step::Item(item) => text += &format!("[{}]", word(&item["name"])),
            }
        }
        text
    };
    let names: Vec<String> = places.iter().take(NAMED).map(one).collect();
    match places.len() {
        0 => "nothing is in it any more that is not wanted".to_owned(),
        count if count > NAMED => format!("{} and {} more", names.join(", "), count - NAMED),
        _ => names.join(", "),
    }
}

/// Who wrote which field of an object.
struct Writers<'a>(Vec<Writer<'a>>);

struct Writer<'a> {
    name: &'a str,
    time: &'a str,
    is_apply: bool,
    fields: &'a Value,
}

impl<'a> Writers<'a> {
    /// Who wrote its status does not matter.
    fn of(object: &'a Value) -> Self {
        let entries = object["metadata"]["managedFields"].as_array();
        let entries =
            entries.into_iter().flatten().filter(|entry| entry["subresource"] != "status");
        let writer = |entry: &'a Value| Writer {
            name: word(&entry["manager"]),
            time: word(&entry["time"]),
            is_apply: entry["operation"] == "Apply",
            fields: &entry["fieldsV1"],
        };
        Self(entries.map(writer).collect())
    }

    fn is_ours(&self, place: &[Step<'_>]) -> bool {
        self.0.iter().any(|it| it.name == FIELD_MANAGER && it.is_apply && it.has(place))
    }

    fn other(&self, place: &[Step<'_>]) -> Option<&Writer<'a>> {
        let others = self.0.iter().filter(|it| it.name != FIELD_MANAGER || !it.is_apply);
        others.filter(|it| it.has(place)).max_by_key(|it| it.time)
    }
}

impl Writer<'_> {
    fn has(&self, place: &[Step<'_>]) -> bool {
        let mut fields = self.fields;
        for step in place {
            let Some(inside) = fields.as_object() else { return false };
            if inside.is_empty() {
                // All of it.
                return true;
            }
            let next = match step {
                Step::Key(key) => inside.get(&format!("f:{key}")),
                Step::Item(item) => {
                    inside.iter().find(|(key, _)| means(key, item)).map(|(_, it)| it)
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

/// Whether the key of a list's item, such as `k:{"name":"a"}`, is that of this one.
fn means(key: &str, item: &Value) -> bool {
    let key = key.strip_prefix("k:").and_then(|key| serde_json::from_str::<Value>(key).ok());
    let Some(Value::Object(key)) = key else { return false };
    key.iter().all(|(field, value)| item[field] == *value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::order::Part;
    use crate::operator::parts::tests::inputs;
    use serde_json::json;

    /// What an API server keeps of the controller's Deployment.
    fn kept() -> Value {
        let mut kept = inputs().object(Part::Controller);
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

    /// Somebody takes a field over.
    fn taken(kept: &mut Value, manager: &str, fields: &Value) {
        let ours = &mut kept["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
        ours.as_object_mut().unwrap().remove("f:replicas");
        let more = json!({"manager": manager, "operation": "Update", "time": "2026-01-02T00:00:00Z", "fieldsV1": fields});
        kept["metadata"]["managedFields"].as_array_mut().unwrap().push(more);
    }

    fn asked(found: &Value) -> String {
        let mut written = found.clone();
        written["metadata"]["generation"] = 2.into();
        let news = told(&inputs().object(Part::Controller), Some(found), &written, true);
        news.map(|news| format!("{}: {}", news.reason, news.message)).unwrap_or_default()
    }

    #[test]
    fn nothing_was_written() {
        let found = kept();
        let mut written = found.clone();
        written["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "1".into();
        assert_eq!(told(&inputs().object(Part::Controller), Some(&found), &written, true), None);
        assert!(differences(&inputs().object(Part::Controller), &found).is_empty());
    }

    #[test]
    fn made_and_made_again() {
        let wanted = inputs().object(Part::Daemon);
        let reason = |existed| told(&wanted, None, &wanted, existed).map(|news| news.reason);
        assert_eq!(reason(false), Some("DaemonSetCreated"));
        assert_eq!(reason(true), Some("DaemonSetRepaired"));
    }

    #[test]
    fn somebody_scaled_it() {
        let mut found = kept();
        found["spec"]["replicas"] = 0.into();
        taken(&mut found, "kubectl-scale", &json!({"f:spec": {"f:replicas": {}}}));
        assert_eq!(
            asked(&found),
            "DeploymentRepaired: Deployment machine-config-controller was put right: spec.replicas had been changed by kubectl-scale"
        );
    }

    #[test]
    fn somebody_took_something_away() {
        let mut found = kept();
        found["spec"].as_object_mut().unwrap().remove("replicas");
        let ours = &mut found["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
        ours.as_object_mut().unwrap().remove("f:replicas");
        assert_eq!(
            asked(&found),
            "DeploymentRepaired: Deployment machine-config-controller was put right: spec.replicas had been changed by somebody"
        );
    }

    #[test]
    fn a_wish_of_our_own_is_no_repair() {
        let mut found = kept();
        found["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["controller"]);
        assert_eq!(
            asked(&found),
            "DeploymentUpdated: Deployment machine-config-controller was updated: spec.template.spec.containers[controller].args"
        );
        found["metadata"]["annotations"][RELEASE] = "0".into();
        assert_eq!(
            asked(&found),
            "DeploymentUpdated: Deployment machine-config-controller was brought to release 1"
        );
    }

    #[test]
    fn items_of_lists_are_found_by_what_they_are() {
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
    fn many_fields_are_not_all_named() {
        let (wanted, found) =
            (json!({"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f.g": 1, "h": []}), json!({"f.g": 1}));
        assert_eq!(named(&differences(&wanted, &found)), "a, b, c, d, e");
        assert!(named(&differences(&wanted, &json!({}))).ends_with("e and 1 more"));
    }
}
