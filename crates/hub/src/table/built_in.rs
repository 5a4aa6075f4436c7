//! Table cells of the built-in kinds.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

use super::human_duration;
use crate::kind_registry::ResourceKind;

/// Returns the cells of one object.
pub(super) type PrintCells = fn(&Value, Timestamp) -> Vec<Value>;

/// The printer of a built-in kind.
pub(super) fn cell_printer(kind: &ResourceKind) -> Option<PrintCells> {
    if !kind.built_in {
        return None;
    }
    Some(match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Node") => node,
        ("", "Namespace") => namespace,
        ("", "Secret") => secret,
        ("", "ConfigMap") => config_map,
        ("", "ServiceAccount") => service_account,
        ("" | "events.k8s.io", "Event") => event,
        ("coordination.k8s.io", "Lease") => lease,
        ("certificates.k8s.io", "CertificateSigningRequest") => signing_request,
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => role_binding,
        ("rbac.authorization.k8s.io", _) | ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            name_and_time
        }
        _ => return None,
    })
}

/// Whether the columns of the kind include the object's name.
pub(super) fn has_name_column(kind: &ResourceKind) -> bool {
    kind.built_in && kind.kind == "Event"
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The first of several fields that has a text.
fn first_text<'a>(object: &'a Value, pointers: &[&str]) -> &'a str {
    let mut texts = pointers.iter().map(|pointer| text(object, pointer));
    texts.find(|text| !text.is_empty()).unwrap_or_default()
}

fn or_default<'a>(text: &'a str, default: &'a str) -> &'a str {
    if text.is_empty() { default } else { text }
}

fn name(object: &Value) -> Value {
    text(object, "/metadata/name").into()
}

fn age(object: &Value, now: Timestamp) -> Value {
    since(text(object, "/metadata/creationTimestamp"), now).unwrap_or_else(unknown).into()
}

fn since(time: &str, now: Timestamp) -> Option<String> {
    time.parse::<Timestamp>().ok().map(|time| human_duration(now.duration_since(time)))
}

fn unknown() -> String {
    "<unknown>".to_owned()
}

fn size(object: &Value, field: &str) -> usize {
    object.get(field).and_then(Value::as_object).map_or(0, Map::len)
}

fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let ready = items(object, "/status/conditions").filter(|one| one["type"] == "Ready").last();
    let mut status = match ready {
        Some(ready) if ready["status"] == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if object.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let info = |field: &str| text(object, &format!("/status/nodeInfo/{field}")).to_owned();
    let address = |type_: &str| {
        let found = items(object, "/status/addresses").find(|one| one["type"] == type_);
        found.map_or("<none>", |one| one["address"].as_str().unwrap_or_default())
    };
    vec![
        name(object),
        status.into(),
        roles(object).into(),
        age(object, now),
        info("kubeletVersion").into(),
        address("InternalIP").into(),
        address("ExternalIP").into(),
        or_default(&info("osImage"), "<unknown>").into(),
        or_default(&info("kernelVersion"), "<unknown>").into(),
        or_default(&info("containerRuntimeVersion"), "<unknown>").into(),
    ]
}

fn roles(object: &Value) -> String {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let roles: BTreeSet<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    if roles.is_empty() {
        return "<none>".to_owned();
    }
    roles.into_iter().collect::<Vec<_>>().join(",")
}

fn namespace(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), text(object, "/status/phase").into(), age(object, now)]
}

fn secret(object: &Value, now: Timestamp) -> Vec<Value> {
    let type_ = text(object, "/type").into();
    vec![name(object), type_, size(object, "data").into(), age(object, now)]
}

fn config_map(object: &Value, now: Timestamp) -> Vec<Value> {
    let entries = size(object, "data") + size(object, "binaryData");
    vec![name(object), entries.into(), age(object, now)]
}

fn service_account(object: &Value, now: Timestamp) -> Vec<Value> {
    let secrets = items(object, "/secrets").count();
    vec![name(object), secrets.into(), age(object, now)]
}

/// Prints events of both APIs, which name the same fields differently.
fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let seen = |pointers: &[&str]| since(first_text(object, pointers), now);
    let started = seen(&["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"]);
    let started = started.unwrap_or_else(unknown);
    let mut last = seen(&["/lastTimestamp", "/deprecatedLastTimestamp"]);
    let counts = [object.get("count"), object.get("deprecatedCount")];
    let mut count = counts.into_iter().flatten().find_map(Value::as_i64).unwrap_or(0);
    if let Some(series) = object.get("series").filter(|series| series.is_object()) {
        last = Some(since(text(series, "/lastObservedTime"), now).unwrap_or_else(unknown));
        count = series["count"].as_i64().unwrap_or(0);
    } else if count == 0 {
        count = 1;
    }
    let about = |field: &str| {
        let places = [format!("/involvedObject/{field}"), format!("/regarding/{field}")];
        first_text(object, &[&places[0], &places[1]]).to_owned()
    };
    let target = match about("name") {
        none if none.is_empty() => about("kind").to_lowercase(),
        name => format!("{}/{name}", about("kind").to_lowercase()),
    };
    let component = first_text(
        object,
        &[
            "/source/component",
            "/deprecatedSource/component",
            "/reportingComponent",
            "/reportingController",
        ],
    );
    let instance =
        first_text(object, &["/source/host", "/deprecatedSource/host", "/reportingInstance"]);
    let source =
        if instance.is_empty() { component.to_owned() } else { format!("{component}, {instance}") };
    vec![
        last.unwrap_or_else(|| started.clone()).into(),
        text(object, "/type").into(),
        text(object, "/reason").into(),
        target.into(),
        about("fieldPath").into(),
        source.into(),
        first_text(object, &["/message", "/note"]).trim().into(),
        started.into(),
        count.into(),
        name(object),
    ]
}

fn lease(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), text(object, "/spec/holderIdentity").into(), age(object, now)]
}

fn signing_request(object: &Value, now: Timestamp) -> Vec<Value> {
    let has = |type_: &str| items(object, "/status/conditions").any(|one| one["type"] == type_);
    let mut status = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        status.push_str(",Failed");
    }
    if !text(object, "/status/certificate").is_empty() {
        status.push_str(",Issued");
    }
    let seconds = object.pointer("/spec/expirationSeconds").and_then(Value::as_i64);
    let lasts = seconds.map(|seconds| human_duration(SignedDuration::from_secs(seconds)));
    vec![
        name(object),
        age(object, now),
        or_default(text(object, "/spec/signerName"), "<none>").into(),
        text(object, "/spec/username").into(),
        lasts.unwrap_or_else(|| "<none>".to_owned()).into(),
        status.into(),
    ]
}

fn role_binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let subjects = |kind: &str| {
        let found = items(object, "/subjects").filter(|subject| subject["kind"] == kind);
        let names = found.map(|subject| match text(subject, "/namespace") {
            "" => text(subject, "/name").to_owned(),
            namespace => format!("{namespace}/{}", text(subject, "/name")),
        });
        names.collect::<Vec<_>>().join(", ")
    };
    let role = format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
    vec![
        name(object),
        role.into(),
        age(object, now),
        subjects("User").into(),
        subjects("Group").into(),
        subjects("ServiceAccount").into(),
    ]
}

fn name_and_time(object: &Value, _: Timestamp) -> Vec<Value> {
    vec![name(object), text(object, "/metadata/creationTimestamp").into()]
}
