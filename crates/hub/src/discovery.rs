//! Discovery documents: `/api`, `/apis` and the resource lists that clients read first.
//!
//! Pure: made from the [`KindRegistry`]. Called by `router::discovery_endpoints`.

use std::cmp::Reverse;

use serde_json::{Map, Value, json};

use crate::kind_registry::{KindRegistry, ResourceKind};

/// Built-in groups come first, in the order of kube-apiserver; others follow by name.
const GROUP_ORDER: [&str; 8] = [
    "apps",
    "events.k8s.io",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "rbac.authorization.k8s.io",
    "apiextensions.k8s.io",
    "coordination.k8s.io",
];

const BUILT_IN_VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const NAMESPACE_VERBS: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
const READ_VERBS: &[&str] = &["get", "list", "watch"];
const CUSTOM_VERBS: &[&str] =
    &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const SUBRESOURCE_VERBS: &[&str] = &["get", "patch", "update"];

/// `/api`: the versions of the core group.
#[must_use]
pub fn api_versions() -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [],
    })
}

/// `/apis`: all other groups.
#[must_use]
pub fn api_groups(registry: &KindRegistry) -> Value {
    let groups: Vec<Value> =
        groups(registry).iter().map(|group| group_document(registry, group)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/<group>`: one group; `None` if it is not served.
#[must_use]
pub fn api_group(registry: &KindRegistry, group: &str) -> Option<Value> {
    if group.is_empty() || !groups(registry).contains(&group) {
        return None;
    }
    let mut value = json!({"kind": "APIGroup", "apiVersion": "v1"});
    if let (Some(into), Value::Object(fields)) =
        (value.as_object_mut(), group_document(registry, group))
    {
        into.extend(fields);
    }
    Some(value)
}

/// `/api/v1` or `/apis/<group>/<version>`: its resources; `None` if it is not served.
#[must_use]
pub fn resource_list(registry: &KindRegistry, group: &str, version: &str) -> Option<Value> {
    let kinds = kinds(registry, group, version);
    let first = kinds.first()?;
    let mut list = json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": first.api_version(),
    });
    if group.is_empty() {
        // The list of the core group is the oldest form and has no apiVersion.
        list.as_object_mut()?.remove("apiVersion");
    }
    list["resources"] = kinds.iter().flat_map(|kind| api_resources(kind)).collect();
    Some(list)
}

/// `/api` (`legacy`) or `/apis` in the aggregated form, an `APIGroupDiscoveryList`.
#[must_use]
pub fn aggregated_discovery(registry: &KindRegistry, legacy: bool) -> Value {
    let names = if legacy { vec![""] } else { groups(registry) };
    let items: Vec<Value> = names
        .iter()
        .map(|group| {
            let versions: Vec<Value> = versions(registry, group)
                .iter()
                .map(|version| {
                    let kinds = kinds(registry, group, version);
                    let resources: Vec<Value> =
                        kinds.iter().map(|kind| aggregated_resource(kind)).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

/// The verbs that a kind supports.
#[must_use]
pub fn verbs(kind: &ResourceKind) -> &'static [&'static str] {
    match kind.kind.as_str() {
        _ if kind.is_always_empty() => READ_VERBS,
        "Namespace" if kind.built_in => NAMESPACE_VERBS,
        _ if kind.built_in => BUILT_IN_VERBS,
        _ => CUSTOM_VERBS,
    }
}

/// The subresources of a kind and the verbs of each.
#[must_use]
pub fn subresources(kind: &ResourceKind) -> Vec<(&'static str, &'static [&'static str])> {
    let mut parts: Vec<(&'static str, &'static [&'static str])> = Vec::new();
    match kind.kind.as_str() {
        "CertificateSigningRequest" if kind.built_in => parts.push(("approval", SUBRESOURCE_VERBS)),
        "Namespace" if kind.built_in => parts.push(("finalize", &["update"])),
        "ServiceAccount" if kind.built_in => parts.push(("token", &["create"])),
        _ => {}
    }
    if kind.status_subresource {
        parts.push(("status", SUBRESOURCE_VERBS));
    }
    if kind.scale.is_some() {
        parts.push(("scale", SUBRESOURCE_VERBS));
    }
    parts
}

/// All groups but the core group.
fn groups(registry: &KindRegistry) -> Vec<&str> {
    let mut names: Vec<&str> = registry.kinds().map(|kind| kind.group.as_str()).collect();
    names.retain(|name| !name.is_empty());
    let rank = |name: &str| GROUP_ORDER.iter().position(|known| *known == name);
    names.sort_unstable_by_key(|name| (rank(name).unwrap_or(GROUP_ORDER.len()), *name));
    names.dedup();
    names
}

/// The versions of a group, preferred first.
fn versions<'a>(registry: &'a KindRegistry, group: &str) -> Vec<&'a str> {
    let of_group = registry.kinds().filter(|kind| kind.group == group);
    let mut versions: Vec<&str> = of_group.map(|kind| kind.version.as_str()).collect();
    versions.sort_by_cached_key(|version| Reverse(version_rank(version)));
    versions.dedup();
    versions
}

/// `v2` before `v1` before `v1beta1` before `v1alpha1`.
fn version_rank(version: &str) -> (u8, u32, u32, String) {
    let rest = version.strip_prefix('v').unwrap_or(version);
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, rest) = rest.split_at(digits);
    let major = major.parse().unwrap_or(0);
    let (stage, minor) = match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
        (Some(minor), _) => (2, minor),
        (_, Some(minor)) => (1, minor),
        _ if rest.is_empty() => (3, ""),
        _ => (0, ""),
    };
    (stage, major, minor.parse().unwrap_or(0), version.to_owned())
}

fn kinds<'a>(registry: &'a KindRegistry, group: &str, version: &str) -> Vec<&'a ResourceKind> {
    let mut kinds: Vec<&ResourceKind> = registry
        .kinds()
        .map(AsRef::as_ref)
        .filter(|kind: &&ResourceKind| kind.group == group && kind.version == version)
        .collect();
    kinds.sort_by(|a, b| a.plural.cmp(&b.plural));
    kinds
}

fn group_document(registry: &KindRegistry, group: &str) -> Value {
    let versions: Vec<Value> = versions(registry, group)
        .iter()
        .map(|version| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
        .collect();
    let preferred = versions.first().cloned().unwrap_or(Value::Null);
    json!({"name": group, "versions": versions, "preferredVersion": preferred})
}

/// A resource and its subresources, as in an `APIResourceList`.
fn api_resources(kind: &ResourceKind) -> Vec<Value> {
    let mut main = json!({
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": verbs(kind),
    });
    add_names(&mut main, kind);
    let parts = subresources(kind).into_iter().map(|(part, verbs)| {
        let mut resource = json!({
            "name": format!("{}/{part}", kind.plural),
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": verbs,
        });
        for (field, value) in subresource_type(part).into_iter().flatten() {
            resource[field] = value.into();
        }
        resource
    });
    std::iter::once(main).chain(parts).collect()
}

/// The type of a subresource, if it is not that of its resource.
fn subresource_type(name: &str) -> Option<[(&'static str, &'static str); 3]> {
    let (group, kind) = match name {
        "token" => ("authentication.k8s.io", "TokenRequest"),
        "scale" => ("autoscaling", "Scale"),
        _ => return None,
    };
    Some([("group", group), ("version", "v1"), ("kind", kind)])
}

/// A resource as in an `APIGroupDiscoveryList`.
fn aggregated_resource(kind: &ResourceKind) -> Value {
    // For built-in kinds kube-apiserver omits what equals the values of the list.
    let (group, version) =
        if kind.built_in { ("", "") } else { (kind.group.as_str(), kind.version.as_str()) };
    let response = json!({"group": group, "version": version, "kind": kind.kind});
    let mut resource = json!({
        "resource": kind.plural,
        "responseKind": response,
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular,
        "verbs": verbs(kind),
    });
    add_names(&mut resource, kind);
    let parts: Vec<Value> = subresources(kind)
        .into_iter()
        .map(|(part, verbs)| {
            let own = subresource_type(part).map(|type_| type_.into_iter().collect());
            let response: Value = own.unwrap_or_else(|| response.clone());
            json!({"subresource": part, "responseKind": response, "verbs": verbs})
        })
        .collect();
    if !parts.is_empty() {
        resource["subresources"] = parts.into();
    }
    resource
}

fn add_names(resource: &mut Value, kind: &ResourceKind) {
    let Some(fields) = resource.as_object_mut() else { return };
    let add = |fields: &mut Map<String, Value>, name: &str, list: &[String]| {
        if !list.is_empty() {
            fields.insert(name.to_owned(), list.into());
        }
    };
    add(fields, "shortNames", &kind.short_names);
    add(fields, "categories", &kind.categories);
}
