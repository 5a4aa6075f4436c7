//! One rule of a role: verbs on resources or on paths. Pure.

use serde_json::{Map, Value};

use crate::auth::authorizer::{PolicyRule, RequestAttributes, ResourceNames};
use crate::schema::quote;

/// Every verb, group, resource or path.
const ALL: &str = "*";

/// A `PolicyRule` of a Role or ClusterRole.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct RoleRule {
    /// Verbs; `*` means all.
    pub verbs: Vec<String>,
    /// API groups; empty text is the core group.
    pub api_groups: Vec<String>,
    /// Resources: `nodes`, `nodes/status`, `*/status`.
    pub resources: Vec<String>,
    /// The only object names; none means all.
    pub resource_names: Vec<String>,
    /// Paths: `/healthz`, `/apis/*`.
    pub non_resource_urls: Vec<String>,
}

impl RoleRule {
    /// A rule for resources, from space-separated words. The group `core` is the one without a name.
    #[must_use]
    pub fn resources(verbs: &str, group: &str, resources: &str) -> Self {
        let group = if group == "core" { "" } else { group };
        Self {
            verbs: words(verbs),
            api_groups: vec![group.to_owned()],
            resources: words(resources),
            ..Self::default()
        }
    }

    /// A rule for paths, from space-separated words.
    #[must_use]
    pub fn paths(verbs: &str, paths: &str) -> Self {
        Self { verbs: words(verbs), non_resource_urls: words(paths), ..Self::default() }
    }

    /// A rule of the authorizer as far as roles can express it. `machine` has the objects that are its own.
    #[must_use]
    pub fn from_policy(rule: &PolicyRule, machine: Option<&str>) -> Self {
        let resource_names = match rule.names {
            ResourceNames::Named(name) => vec![name.to_owned()],
            ResourceNames::OwnNode => machine.map(ToOwned::to_owned).into_iter().collect(),
            ResourceNames::Any | ResourceNames::OwnRequests | ResourceNames::Related(_) => {
                Vec::new()
            }
        };
        Self {
            verbs: rule.verbs.clone(),
            api_groups: vec![rule.group.clone()],
            resources: rule.resources.clone(),
            resource_names,
            non_resource_urls: Vec::new(),
        }
    }

    /// The rules of a Role or ClusterRole.
    #[must_use]
    pub fn rules_of(role: &Value) -> Vec<Self> {
        role["rules"].as_array().into_iter().flatten().map(Self::from_json).collect()
    }

    fn from_json(rule: &Value) -> Self {
        Self {
            verbs: texts(&rule["verbs"]),
            api_groups: texts(&rule["apiGroups"]),
            resources: texts(&rule["resources"]),
            resource_names: texts(&rule["resourceNames"]),
            non_resource_urls: texts(&rule["nonResourceURLs"]),
        }
    }

    /// The rule as JSON, without empty fields.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut fields = Map::new();
        fields.insert("verbs".to_owned(), self.verbs.clone().into());
        for (name, list) in [
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
            ("nonResourceURLs", &self.non_resource_urls),
        ] {
            if !list.is_empty() {
                fields.insert(name.to_owned(), list.clone().into());
            }
        }
        Value::Object(fields)
    }

    /// Whether it allows a request for objects.
    #[must_use]
    pub fn allows(&self, request: &RequestAttributes) -> bool {
        has(&self.verbs, &request.verb)
            && has(&self.api_groups, &request.group)
            && self.has_resource(&request.resource, &request.subresource)
            && (self.resource_names.is_empty()
                || self.resource_names.iter().any(|own| Some(own) == request.name.as_ref()))
    }

    /// Whether it allows a request for a path.
    #[must_use]
    pub fn allows_path(&self, verb: &str, path: &str) -> bool {
        let fits = |own: &String| {
            own == ALL
                || own == path
                || own
                    .strip_suffix('*')
                    .is_some_and(|start| path.starts_with(start.trim_end_matches('*')))
        };
        has(&self.verbs, verb) && self.non_resource_urls.iter().any(fits)
    }

    fn has_resource(&self, resource: &str, subresource: &str) -> bool {
        let is_it = |own: &String| {
            if subresource.is_empty() {
                return own == resource;
            }
            // `*/scale` is the subresource of any resource.
            own.strip_suffix(subresource)
                .and_then(|main| main.strip_suffix('/'))
                .is_some_and(|main| main == resource || main == ALL)
        };
        self.resources.iter().any(|own| own == ALL || is_it(own))
    }

    /// The rule for a message, as Kubernetes prints it: `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
    #[must_use]
    pub fn compact_text(&self) -> String {
        let parts = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let parts = parts.iter().filter(|(_, list)| !list.is_empty());
        let parts: Vec<String> =
            parts.map(|(name, list)| format!("{name}:{}", quoted_list(list))).collect();
        format!("{{{}}}", parts.join(", "))
    }
}

/// A list as Go prints it with `%q`: `["a" "b"]`.
#[must_use]
pub fn quoted_list(list: &[String]) -> String {
    let items: Vec<String> = list.iter().map(|item| quote(item)).collect();
    format!("[{}]", items.join(" "))
}

fn has(list: &[String], word: &str) -> bool {
    list.iter().any(|own| own == ALL || own == word)
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(ToOwned::to_owned).collect()
}

fn texts(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(ToOwned::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(
        verb: &str,
        resource: &str,
        subresource: &str,
        name: Option<&str>,
    ) -> RequestAttributes {
        RequestAttributes {
            verb: verb.into(),
            resource: resource.into(),
            subresource: subresource.into(),
            name: name.map(Into::into),
            ..RequestAttributes::default()
        }
    }

    #[test]
    fn rules_match_as_in_kubernetes() {
        let rule = |resources: &str| RoleRule::resources("get", "core", resources);
        let named = RoleRule { resource_names: vec!["a".into()], ..rule("pods") };
        for (rule, resource, subresource, name, expected) in [
            (rule("pods"), "pods", "", None, true),
            (rule("pods"), "pods", "status", None, false),
            (rule("pods/status"), "pods", "status", Some("a"), true),
            (rule("pods/status"), "pods", "", None, false),
            (rule("*/status"), "pods", "status", None, true),
            (rule("*/status"), "pods", "", None, false),
            (rule("*"), "pods", "status", None, true),
            (rule("nodes"), "pods", "", None, false),
            (named.clone(), "pods", "", Some("a"), true),
            (named.clone(), "pods", "", Some("b"), false),
            (named, "pods", "", None, false),
        ] {
            let request = request("get", resource, subresource, name);
            assert_eq!(rule.allows(&request), expected, "{rule:?} {request:?}");
        }
        let other = RequestAttributes { group: "apps".into(), ..request("get", "pods", "", None) };
        assert!(!rule("pods").allows(&other));
        assert!(!rule("pods").allows(&request("list", "pods", "", None)));
    }

    #[test]
    fn paths_match_by_prefix() {
        let rule = RoleRule::paths("get", "/apis /apis/* /healthz");
        for (path, expected) in
            [("/apis", true), ("/apis/x/y", true), ("/apisx", false), ("/healthz/ping", false)]
        {
            assert_eq!(rule.allows_path("get", path), expected, "{path}");
        }
        assert!(!rule.allows_path("post", "/apis"));
        assert!(RoleRule::paths("*", "*").allows_path("post", "/x"));
    }

    #[test]
    fn rules_are_read_and_written() {
        let role = json!({"rules": [
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": null},
        ]});
        let rules = RoleRule::rules_of(&role);
        assert_eq!(
            rules[0].to_json(),
            json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]})
        );
        assert_eq!(
            rules[0].compact_text(),
            r#"{APIGroups:[""], Resources:["pods"], Verbs:["get"]}"#
        );
        assert!(RoleRule::rules_of(&json!({"rules": null})).is_empty());
    }
}
