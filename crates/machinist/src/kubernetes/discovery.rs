//! Asks the API server which resources it serves: in two requests with aggregated discovery, else group by group.

use anyhow::Result;
use serde_json::Value;

use super::request::{ACCEPT_JSON, ApiClient};
use super::resource::{ServedResource, ServedResources};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

impl ApiClient {
    /// The served resources: the core group first, then the other groups, each with its preferred version first.
    ///
    /// # Errors
    /// The API server does not respond or refuses.
    pub async fn resources(&self) -> Result<ServedResources> {
        let mut all = Vec::new();
        for root in ["/api", "/apis"] {
            let response = self.get_as(root, AGGREGATED).await?;
            if str_field(&response, "kind") == "APIGroupDiscoveryList" {
                all.extend(parse_aggregated(&response));
                continue;
            }
            for version in group_versions(&response) {
                let list = self.get_as(&format!("{root}/{version}"), ACCEPT_JSON).await;
                // A group whose server is down must not hide the others.
                let Ok(list) = list else { continue };
                all.extend(resources_of_version(&version, &list));
            }
        }
        Ok(ServedResources(all))
    }
}

fn str_field<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn array_field<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn string_list(value: &Value, field: &str) -> Vec<String> {
    array_field(value, field).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The resources in an `APIGroupDiscoveryList`.
fn parse_aggregated(list: &Value) -> Vec<ServedResource> {
    let mut all = Vec::new();
    for group in array_field(list, "items") {
        let name = group.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        for version in array_field(group, "versions") {
            all.extend(array_field(version, "resources").iter().map(|resource| {
                ServedResource {
                    group: name.to_owned(),
                    version: str_field(version, "version").to_owned(),
                    kind: resource
                        .pointer("/responseKind/kind")
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                        .to_owned(),
                    plural: str_field(resource, "resource").to_owned(),
                    singular: str_field(resource, "singularResource").to_owned(),
                    short_names: string_list(resource, "shortNames"),
                    namespaced: str_field(resource, "scope") == "Namespaced",
                }
            }));
        }
    }
    all
}

/// The `group/version`s in an `APIVersions` or `APIGroupList`, the preferred of each group first.
fn group_versions(list: &Value) -> Vec<String> {
    let mut all = string_list(list, "versions");
    for group in array_field(list, "groups") {
        let preferred = group.get("preferredVersion").map(|one| str_field(one, "groupVersion"));
        let others =
            array_field(group, "versions").iter().map(|one| str_field(one, "groupVersion"));
        let mut names: Vec<&str> = preferred.into_iter().chain(others).collect();
        let mut seen = std::collections::HashSet::new();
        names.retain(|name| !name.is_empty() && seen.insert(*name));
        all.extend(names.into_iter().map(str::to_owned));
    }
    all
}

/// The resources in an `APIResourceList`.
fn resources_of_version(group_version: &str, list: &Value) -> Vec<ServedResource> {
    let (group, version) = group_version.rsplit_once('/').unwrap_or(("", group_version));
    array_field(list, "resources")
        .iter()
        .filter(|resource| !str_field(resource, "name").contains('/'))
        .map(|resource| ServedResource {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: str_field(resource, "kind").to_owned(),
            plural: str_field(resource, "name").to_owned(),
            singular: str_field(resource, "singularName").to_owned(),
            short_names: string_list(resource, "shortNames"),
            namespaced: resource.get("namespaced").and_then(Value::as_bool).unwrap_or_default(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn aggregated_and_plain_discovery_agree() {
        let new = parse_aggregated(&json!({"items": [{
            "metadata": {"name": "g.io"},
            "versions": [{"version": "v1", "resources": [{
                "resource": "pools", "responseKind": {"kind": "Pool"}, "scope": "Namespaced",
                "singularResource": "pool", "shortNames": ["p"],
            }]}],
        }]}));
        let old = resources_of_version(
            "g.io/v1",
            &json!({"resources": [
                {"name": "pools", "singularName": "pool", "namespaced": true, "kind": "Pool", "shortNames": ["p"]},
                {"name": "pools/status", "namespaced": true, "kind": "Pool"},
            ]}),
        );
        assert_eq!(new, old);
        assert_eq!(new[0].path(Some("n"), None), "/apis/g.io/v1/namespaces/n/pools");
    }

    #[test]
    fn the_preferred_version_comes_first() {
        let version = |name: &str| json!({"groupVersion": name});
        let groups = json!({"groups": [{
            "versions": [version("g/v1beta1"), version("g/v1")], "preferredVersion": version("g/v1"),
        }]});
        assert_eq!(group_versions(&groups), ["g/v1", "g/v1beta1"]);
        assert_eq!(group_versions(&json!({"versions": ["v1"]})), ["v1"]);
    }
}
