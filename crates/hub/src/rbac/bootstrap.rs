//! The roles and bindings that every hub has, and how a start brings them up to date. Pure.
//!
//! As in kube-apiserver, a start adds what is missing and keeps what people added; one with the annotation
//! `rbac.authorization.kubernetes.io/autoupdate: "false"` stays as it is. Called by [`crate::startup`].

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::GROUP;
use super::cover::missing_rules;
use super::rule::RoleRule;
use crate::auth::authorizer::{OUTLINE_SUBRESOURCE, PolicyRule, READ_VERBS};
use crate::auth::{
    ADMIN_GROUP, AUTHENTICATED_GROUP, BOOTSTRAP_GROUP, CONTROLLER_GROUP, METRICS_GROUP, NODE_GROUP,
    UNAUTHENTICATED_GROUP, VIEWER_GROUP,
};
use crate::discovery;
use crate::kind_registry::{KindRegistry, ResourceKind};

const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
const BOOTSTRAPPING_LABEL: &str = "kubernetes.io/bootstrapping";
const AGGREGATE_PREFIX: &str = "rbac.authorization.k8s.io/aggregate-to-";
const DESCRIPTION: &str = "kubernetes.io/description";
const ALL_VERBS: &str = "create delete deletecollection get list patch update watch";
const WRITE_VERBS: &str = "create delete deletecollection patch update";
const NODE_DESCRIPTION: &str = "What machines may do with their own objects. The hub checks it in code: changes of \
    this role, and bindings of it to machines, have no effect on machines.";

/// What the roles are made from.
#[derive(Debug)]
pub struct BootstrapInputs<'a> {
    /// The kinds that the hub serves.
    pub registry: &'a KindRegistry,
    /// The rules of the authorizer.
    pub rules: &'a [PolicyRule],
    /// Group and resource of the kinds that viewers may not read, besides Secrets.
    pub hidden_from_viewers: &'a [(String, String)],
    /// Group and resource of the kinds of which viewers see an outline.
    pub outlined: &'a [(String, String)],
}

/// All roles and bindings.
#[must_use]
pub fn objects(inputs: &BootstrapInputs<'_>) -> Vec<Value> {
    let public = "/healthz /livez /readyz /version /version/";
    let discovery =
        "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/";
    let metrics = RoleRule::paths("get", "/metrics /metrics/*");
    let reviews = "subjectaccessreviews";
    let own_reviews = "selfsubjectaccessreviews selfsubjectrulesreviews";
    let mut all = vec![
        role("cluster-admin", &[RoleRule::resources("*", "*", "*"), RoleRule::paths("*", "*")]),
        role("system:discovery", &[RoleRule::paths("get", discovery)]),
        role("system:public-info-viewer", &[RoleRule::paths("get", public)]),
        role(
            "system:basic-user",
            &[
                RoleRule::resources("create", "authorization.k8s.io", own_reviews),
                RoleRule::resources("create", "authentication.k8s.io", "selfsubjectreviews"),
            ],
        ),
        role(
            "system:auth-delegator",
            &[
                RoleRule::resources("create", "authentication.k8s.io", "tokenreviews"),
                RoleRule::resources("create", "authorization.k8s.io", reviews),
            ],
        ),
        role("machinist:controller", &controller_rules(inputs.registry)),
        role("machinist:viewer", &viewer_rules(inputs)),
        role("machinist:metrics-reader", &[metrics]),
        described(role("system:node", &policy_rules(inputs.rules, NODE_GROUP)), NODE_DESCRIPTION),
        role("system:node-bootstrapper", &policy_rules(inputs.rules, BOOTSTRAP_GROUP)),
        binding("cluster-admin", "cluster-admin", &[ADMIN_GROUP]),
        binding("system:discovery", "system:discovery", &[AUTHENTICATED_GROUP]),
        binding("system:basic-user", "system:basic-user", &[AUTHENTICATED_GROUP]),
        binding(
            "system:public-info-viewer",
            "system:public-info-viewer",
            &[AUTHENTICATED_GROUP, UNAUTHENTICATED_GROUP],
        ),
        binding("machinist:controllers", "machinist:controller", &[CONTROLLER_GROUP]),
        binding("machinist:viewers", "machinist:viewer", &[VIEWER_GROUP]),
        binding("machinist:metrics-readers", "machinist:metrics-reader", &[METRICS_GROUP]),
    ];
    all.extend(user_roles());
    all
}

/// `admin`, `edit` and `view`, and the roles that they gather. They are for use in one namespace.
fn user_roles() -> Vec<Value> {
    let read = |group: &str, resources: &str| RoleRule::resources(READ_VERBS, group, resources);
    let write = |group: &str, resources: &str| RoleRule::resources(WRITE_VERBS, group, resources);
    let view = [read("core", "configmaps events namespaces pods serviceaccounts services")];
    let edit = [
        read("core", "secrets"),
        write("core", "configmaps events secrets serviceaccounts services"),
        RoleRule::resources("impersonate", "core", "serviceaccounts"),
        RoleRule::resources("create", "core", "serviceaccounts/token"),
        RoleRule::resources(ALL_VERBS, "coordination.k8s.io", "leases"),
    ];
    let admin = [
        RoleRule::resources("create", "authorization.k8s.io", "localsubjectaccessreviews"),
        RoleRule::resources(ALL_VERBS, GROUP, "rolebindings roles"),
    ];
    vec![
        labelled(role("system:aggregate-to-view", &view), &["view"]),
        labelled(role("system:aggregate-to-edit", &edit), &["edit"]),
        labelled(role("system:aggregate-to-admin", &admin), &["admin"]),
        labelled(aggregated("view", "view"), &["edit"]),
        labelled(aggregated("edit", "edit"), &["admin"]),
        aggregated("admin", "admin"),
    ]
}

/// Everything but what would make a controller more than that: approvals, kinds, roles and impersonation.
fn controller_rules(registry: &KindRegistry) -> Vec<RoleRule> {
    let mut rules = by_group(registry, |kind| {
        let is_read = match kind.group.as_str() {
            "certificates.k8s.io" | "apiextensions.k8s.io" | GROUP => kind.built_in,
            _ => false,
        };
        let verbs = if is_read { READ_VERBS } else { ALL_VERBS };
        // Tokens of service accounts would have the rights of these.
        let parts = subresources(kind).into_iter().filter(|part| *part != "token");
        Some((verbs, with_subresources(kind, parts)))
    });
    rules.push(RoleRule::resources("create", "authentication.k8s.io", "tokenreviews"));
    rules.push(RoleRule::resources("create", "authorization.k8s.io", "subjectaccessreviews"));
    rules
}

/// Reading of everything but Secrets and what is hidden.
fn viewer_rules(inputs: &BootstrapInputs<'_>) -> Vec<RoleRule> {
    let is_in = |list: &[(String, String)], kind: &ResourceKind| {
        list.iter().any(|(group, resource)| *group == kind.group && *resource == kind.plural)
    };
    let mut rules = by_group(inputs.registry, |kind| {
        let is_secret = kind.group.is_empty() && kind.plural == "secrets";
        if is_secret || is_in(inputs.hidden_from_viewers, kind) {
            return None;
        }
        if is_in(inputs.outlined, kind) {
            return Some((READ_VERBS, vec![format!("{}/{OUTLINE_SUBRESOURCE}", kind.plural)]));
        }
        Some((READ_VERBS, with_subresources(kind, subresources(kind).into_iter())))
    });
    rules.push(RoleRule::paths("get", "/metrics /metrics/*"));
    rules
}

fn subresources(kind: &ResourceKind) -> Vec<&'static str> {
    discovery::subresources(kind).into_iter().map(|(name, _)| name).collect()
}

fn with_subresources<'a>(kind: &ResourceKind, parts: impl Iterator<Item = &'a str>) -> Vec<String> {
    let parts = parts.map(|part| format!("{}/{part}", kind.plural));
    std::iter::once(kind.plural.clone()).chain(parts).collect()
}

/// One rule for each group and set of verbs.
fn by_group(
    registry: &KindRegistry,
    rule: impl Fn(&ResourceKind) -> Option<(&'static str, Vec<String>)>,
) -> Vec<RoleRule> {
    let mut found: BTreeMap<(String, &str), Vec<String>> = BTreeMap::new();
    for kind in registry.kinds() {
        if let Some((verbs, resources)) = rule(kind) {
            found.entry((kind.group.clone(), verbs)).or_default().extend(resources);
        }
    }
    found
        .into_iter()
        .map(|((group, verbs), mut resources)| {
            resources.sort();
            resources.dedup();
            RoleRule { api_groups: vec![group], resources, ..RoleRule::resources(verbs, "", "") }
        })
        .collect()
}

/// The rules of the authorizer for a group of users.
fn policy_rules(rules: &[PolicyRule], members: &str) -> Vec<RoleRule> {
    let rules = rules.iter().filter(|rule| rule.user_group == members);
    let mut found: Vec<RoleRule> = rules.map(|rule| RoleRule::from_policy(rule, None)).collect();
    found.dedup();
    found
}

fn metadata(name: &str) -> Value {
    json!({
        "name": name,
        "labels": {BOOTSTRAPPING_LABEL: "rbac-defaults"},
        "annotations": {AUTO_UPDATE: "true"},
    })
}

fn role(name: &str, rules: &[RoleRule]) -> Value {
    let rules: Vec<Value> = rules.iter().map(RoleRule::to_json).collect();
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole",
        "metadata": metadata(name), "rules": rules,
    })
}

fn aggregated(name: &str, label: &str) -> Value {
    let mut role = role(name, &[]);
    let label = format!("{AGGREGATE_PREFIX}{label}");
    role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
    role
}

fn labelled(mut role: Value, gathered_by: &[&str]) -> Value {
    for name in gathered_by {
        role["metadata"]["labels"][format!("{AGGREGATE_PREFIX}{name}")] = "true".into();
    }
    role
}

fn described(mut role: Value, text: &str) -> Value {
    role["metadata"]["annotations"][DESCRIPTION] = text.into();
    role
}

fn binding(name: &str, role: &str, groups: &[&str]) -> Value {
    let subjects = groups.iter();
    let subjects: Vec<Value> =
        subjects.map(|name| json!({"apiGroup": GROUP, "kind": "Group", "name": name})).collect();
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRoleBinding",
        "metadata": metadata(name),
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    })
}

/// A stored object with what it lacks; `None` if it lacks nothing, or wants to stay as it is.
#[must_use]
pub fn reconcile(stored: &Value, wanted: &Value) -> Option<Value> {
    if stored["metadata"]["annotations"][AUTO_UPDATE] == "false" {
        return None;
    }
    let mut new = stored.clone();
    for field in ["labels", "annotations"] {
        for (key, value) in wanted["metadata"][field].as_object().into_iter().flatten() {
            if new["metadata"][field][key].is_null() {
                new["metadata"][field][key] = value.clone();
            }
        }
    }
    match wanted["kind"].as_str() {
        Some("ClusterRole") if wanted["aggregationRule"].is_object() => {
            let pointer = ["aggregationRule", "clusterRoleSelectors"];
            add_missing(&mut new[pointer[0]][pointer[1]], &wanted[pointer[0]][pointer[1]]);
        }
        Some("ClusterRole") => {
            let (held, wanted) = (RoleRule::rules_of(stored), RoleRule::rules_of(wanted));
            let missing = missing_rules(&held, &wanted);
            if !missing.is_empty() {
                let all = held.iter().chain(&missing).map(RoleRule::to_json);
                new["rules"] = all.collect();
            }
        }
        _ => {
            // A binding to another role is replaced: the field cannot be changed.
            if stored["roleRef"] != wanted["roleRef"] {
                return Some(wanted.clone());
            }
            add_missing(&mut new["subjects"], &wanted["subjects"]);
        }
    }
    (new != *stored).then_some(new)
}

fn add_missing(list: &mut Value, wanted: &Value) {
    let mut all = list.as_array().cloned().unwrap_or_default();
    let before = all.len();
    for item in wanted.as_array().into_iter().flatten() {
        if !all.contains(item) {
            all.push(item.clone());
        }
    }
    if all.len() > before {
        *list = all.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Value> {
        let mut registry = KindRegistry::default();
        crate::built_in::kinds().into_iter().for_each(|kind| registry.add(kind));
        objects(&BootstrapInputs {
            registry: &registry,
            rules: &[],
            hidden_from_viewers: &[(String::new(), "nodes".to_owned())],
            outlined: &[(String::new(), "configmaps".to_owned())],
        })
    }

    fn named<'a>(all: &'a [Value], name: &str) -> &'a Value {
        all.iter().find(|it| it["metadata"]["name"] == name).unwrap()
    }

    #[test]
    fn viewers_and_controllers_get_no_more_than_they_should() {
        let all = all();
        let text = named(&all, "machinist:viewer").to_string();
        for (word, expected) in [
            ("\"secrets\"", false),
            ("\"nodes\"", false),
            ("nodes/status", false),
            ("\"configmaps\"", false),
            ("configmaps/outline", true),
            ("\"namespaces\"", true),
            ("create", false),
            ("*\"", false),
        ] {
            assert_eq!(text.replace("/metrics/*", "").contains(word), expected, "{word}: {text}");
        }
        let rules = RoleRule::rules_of(named(&all, "machinist:controller"));
        assert!(rules.iter().all(|rule| !rule.verbs.contains(&"*".to_owned())));
        for group in ["certificates.k8s.io", "apiextensions.k8s.io", GROUP] {
            let rules = rules.iter().filter(|rule| rule.api_groups == [group]);
            rules.for_each(|rule| assert_eq!(rule.verbs, ["get", "list", "watch"], "{rule:?}"));
        }
    }

    #[test]
    fn a_start_adds_what_is_missing_and_keeps_the_rest() {
        let all = all();
        for wanted in &all {
            assert_eq!(reconcile(wanted, wanted), None);
        }
        let mut viewer = named(&all, "machinist:viewer").clone();
        let mut rules = viewer["rules"].as_array().cloned().unwrap();
        let removed = rules.pop().unwrap();
        rules.push(RoleRule::resources("get", "g.io", "things").to_json());
        viewer["rules"] = rules.into();
        let new = reconcile(&viewer, named(&all, "machinist:viewer")).unwrap();
        let rules = new["rules"].as_array().unwrap();
        assert!(rules.contains(&removed) && new.to_string().contains("g.io"));
        viewer["metadata"]["annotations"][AUTO_UPDATE] = "false".into();
        assert_eq!(reconcile(&viewer, named(&all, "machinist:viewer")), None);
        let mut admins = named(&all, "cluster-admin").clone();
        assert_eq!(admins["kind"], "ClusterRole");
        admins["metadata"]["labels"] = Value::Null;
        let new = reconcile(&admins, named(&all, "cluster-admin")).unwrap();
        assert_eq!(new["metadata"]["labels"][BOOTSTRAPPING_LABEL], "rbac-defaults");
        let mut viewers = named(&all, "machinist:viewers").clone();
        viewers["subjects"] = json!([{"kind": "User", "name": "ann", "apiGroup": GROUP}]);
        let new = reconcile(&viewers, named(&all, "machinist:viewers")).unwrap();
        assert_eq!(new["subjects"].as_array().unwrap().len(), 2);
    }
}
