//! Collects everything that is needed to find a problem into one archive, without secrets.
//!
//! Items that cannot be read are listed as missing and do not stop the rest. Called by `machinist must-gather`.

mod archive;
mod kinds;
mod local_machine;
mod overview;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use machinist_core::go::yaml::to_go_yaml;
use machinist_core::redact::Redactor;
use serde::Serialize;
use serde_json::{Value, json};

pub use archive::pack;
pub use local_machine::{collect_machine, is_managed};

use crate::kubernetes::ApiClient;
use crate::kubernetes::request::{ACCEPT_JSON, status_code};
use kinds::{CollectedKind, KINDS};

/// How long a request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How many requests are sent at a time.
const MAX_CONCURRENT_REQUESTS: usize = 4;

/// An item that could not be collected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MissingItem {
    /// What it is.
    pub what: String,
    /// Why it is not there.
    pub why: String,
}

/// What was collected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collected {
    /// The files: their paths in the archive, and what is in them.
    pub files: BTreeMap<String, Vec<u8>>,
    /// How many objects there are of each kind.
    pub objects: BTreeMap<String, usize>,
    /// Kinds that the API server does not serve.
    pub absent: Vec<String>,
    /// What could not be collected.
    pub missing: Vec<MissingItem>,
}

impl Collected {
    /// Adds a file.
    fn add(&mut self, path: impl Into<String>, contents: impl Into<Vec<u8>>) {
        self.files.insert(path.into(), contents.into());
    }

    /// Notes that something is missing.
    fn add_missing(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.missing.push(MissingItem { what: what.into(), why: why.into() });
    }

    /// Adds another collection.
    pub fn merge(&mut self, other: Self) {
        self.files.extend(other.files);
        self.objects.extend(other.objects);
        self.absent.extend(other.absent);
        self.missing.extend(other.missing);
    }

    /// A summary of the archive as JSON.
    #[must_use]
    pub fn summary(&self, time: &str) -> Value {
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "time": time,
            "objects": self.objects,
            "absent": self.absent,
            "missing": self.missing,
            "files": self.files.len(),
        })
    }
}

/// Collects the state of a cluster. `report` gets a line for every kind.
pub async fn collect_cluster(
    client: &ApiClient,
    redactor: &Redactor,
    report: impl Fn(&str),
) -> Collected {
    let mut collected = Collected::default();
    for (path, name) in [("/version", "version.json"), ("/apis", "groups.json")] {
        match send_request(client.get(path)).await {
            Ok(response) => collected.add(format!("home/{name}"), to_pretty_json(&response)),
            Err(why) => collected.add_missing(path, why.message()),
        }
    }
    let requests = KINDS
        .iter()
        .map(async |kind| (kind, send_request(client.list_as(kind.path, ACCEPT_JSON)).await));
    let mut responses = futures::stream::iter(requests).buffer_unordered(MAX_CONCURRENT_REQUESTS);
    let mut known: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    while let Some((kind, response)) = responses.next().await {
        match response {
            Ok(list) => {
                let objects = objects(kind, list, redactor);
                report(&format!("{} {}", objects.len(), kind.name));
                for object in &objects {
                    collected.add(archive_path(kind, object), to_go_yaml(object));
                }
                collected.objects.insert(kind.name.to_owned(), objects.len());
                known.insert(kind.name, objects);
            }
            Err(RequestFailure::NotServed) => collected.absent.push(kind.name.to_owned()),
            Err(failure) => {
                let why = failure.message();
                report(&format!("cannot read {}: {why}", kind.name));
                collected.add_missing(kind.name, why);
            }
        }
    }
    // Responses come in any order.
    collected.absent.sort();
    collected.missing.sort_by(|a, b| a.what.cmp(&b.what));
    let of = |kind: &str| known.get(kind).map_or(&[][..], Vec::as_slice);
    let overview = overview::overview(of("machineconfigpools"), of("nodes"));
    collected.add("overview.txt", overview);
    collected
}

/// Why a request failed.
enum RequestFailure {
    /// The API server does not serve the kind.
    NotServed,
    /// Any other failure.
    Failed(String),
}

impl RequestFailure {
    fn message(self) -> String {
        match self {
            Self::NotServed => "the API server does not serve it".to_owned(),
            Self::Failed(why) => why,
        }
    }
}

async fn send_request(
    request: impl Future<Output = anyhow::Result<Value>>,
) -> Result<Value, RequestFailure> {
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) if status_code(&error) == Some(404) => Err(RequestFailure::NotServed),
        Ok(Err(error)) => Err(RequestFailure::Failed(format!("{error:#}"))),
        Err(_) => Err(RequestFailure::Failed(format!(
            "no response in {} seconds",
            REQUEST_TIMEOUT.as_secs()
        ))),
    }
}

/// The objects of a list, without secrets. The items of a list lack kind and API version, which are added.
fn objects(kind: &CollectedKind, mut list: Value, redactor: &Redactor) -> Vec<Value> {
    let items = list.get_mut("items").map(Value::take);
    let Some(Value::Array(mut items)) = items else { return Vec::new() };
    for item in &mut items {
        if let Some(fields) = item.as_object_mut() {
            fields.insert("kind".to_owned(), kind.kind.into());
            fields.insert("apiVersion".to_owned(), kind.api_version().into());
        }
        redactor.redact_object(item);
    }
    items
}

/// The path of an object in the archive. Its first part is `home`, which readers of archives know.
fn archive_path(kind: &CollectedKind, object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') { c } else { '_' };
    let clean = |text: &str| text.chars().map(plain).collect::<String>();
    let (namespace, name) = (clean(text("/metadata/namespace")), clean(text("/metadata/name")));
    let directory = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
    format!("home/{}/{directory}{name}.yaml", kind.name)
}

fn to_pretty_json(value: &Value) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).unwrap_or_default();
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_objects_stay_in_their_directory() {
        let kind = &KINDS[0];
        let object = |name: &str, namespace: &str| json!({"metadata": {"name": name, "namespace": namespace}});
        assert_eq!(archive_path(kind, &object("a", "")), "home/machineconfigpools/a.yaml");
        assert_eq!(archive_path(kind, &object("a", "n")), "home/machineconfigpools/n/a.yaml");
        assert_eq!(
            archive_path(kind, &object("../a/b", "")),
            "home/machineconfigpools/.._a_b.yaml"
        );
    }

    #[test]
    fn items_get_their_kind_and_lose_their_secrets() {
        let list = json!({"items": [{"metadata": {"name": "a"}, "spec": {"config": {"passwd": {"users": [{"passwordHash": "hunter2"}]}}}}]});
        let kind = KINDS.iter().find(|kind| kind.name == "machineconfigs").unwrap();
        let made = objects(kind, list, &Redactor::new("key"));
        assert_eq!(made[0]["kind"], "MachineConfig");
        assert_eq!(made[0]["apiVersion"], "machineconfiguration.openshift.io/v1");
        assert!(!made[0].to_string().contains("hunter2"));
        assert!(objects(kind, json!({"kind": "Status"}), &Redactor::new("key")).is_empty());
    }
}
