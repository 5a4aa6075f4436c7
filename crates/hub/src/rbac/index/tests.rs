use super::*;

fn key(plural: &str, namespace: &str, name: &str) -> String {
    format!("{KEY_PREFIX}{plural}/{namespace}/{name}")
}

fn rules(resources: &[&str]) -> Value {
    json!([{"verbs": ["get"], "apiGroups": [""], "resources": resources}])
}

fn binding(role: &str, kind: &str, subject: &Value) -> Value {
    json!({"roleRef": {"kind": kind, "name": role}, "subjects": [subject]})
}

fn ask(
    index: &RbacIndex,
    user: &str,
    groups: &[&str],
    namespace: Option<&str>,
    what: &str,
) -> bool {
    let subject = Subject { user, groups: groups.to_vec() };
    let request = RequestAttributes {
        verb: "get".into(),
        resource: what.into(),
        namespace: namespace.map(Into::into),
        ..RequestAttributes::default()
    };
    index.allows(&subject, &request)
}

#[test]
fn bindings_apply_in_their_namespace_or_everywhere() {
    let mut index = RbacIndex::default();
    index.set(&key("clusterroles", "-", "reader"), Some(&json!({"rules": rules(&["pods"])})), 1);
    index.set(&key("roles", "a", "own"), Some(&json!({"rules": rules(&["secrets"])})), 1);
    let user = json!({"kind": "User", "name": "ann"});
    let group = json!({"kind": "Group", "name": "devs"});
    let account = json!({"kind": "ServiceAccount", "name": "bot"});
    index.set(&key("rolebindings", "a", "r"), Some(&binding("reader", "ClusterRole", &user)), 1);
    index.set(&key("rolebindings", "a", "s"), Some(&binding("own", "Role", &account)), 1);
    let everywhere = key("clusterrolebindings", "-", "c");
    index.set(&everywhere, Some(&binding("reader", "ClusterRole", &group)), 1);
    let bot = "system:serviceaccount:a:bot";
    for (user, groups, namespace, what, expected) in [
        ("ann", &[][..], Some("a"), "pods", true),
        ("ann", &[], Some("b"), "pods", false),
        ("ann", &[], None, "pods", false),
        ("ann", &[], Some("a"), "secrets", false),
        ("bob", &["devs"], None, "pods", true),
        ("bob", &["devs"], Some("b"), "pods", true),
        ("devs", &["ann"], Some("a"), "pods", false),
        (bot, &[], Some("a"), "secrets", true),
        (bot, &[], Some("b"), "secrets", false),
    ] {
        assert_eq!(
            ask(&index, user, groups, namespace, what),
            expected,
            "{user} {namespace:?} {what}"
        );
    }
    index.set(&everywhere, None, 0);
    assert!(!ask(&index, "bob", &["devs"], None, "pods"));
    index.set(&key("clusterroles", "-", "reader"), None, 0);
    assert!(!ask(&index, "ann", &[], Some("a"), "pods"));
    for name in ["r", "s"] {
        index.set(&key("rolebindings", "a", name), None, 0);
    }
    index.set(&key("roles", "a", "own"), None, 0);
    assert!(index.users.is_empty() && index.groups.is_empty() && index.roles.is_empty());
    assert_eq!((index.bytes, index.sizes.len()), (0, 0));
}

#[test]
fn cluster_roles_gather_the_rules_of_others() {
    let mut index = RbacIndex::default();
    let gathers = |label: &str, labels: Value| {
        json!({
            "metadata": {"labels": labels},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]},
            "rules": rules(&["old"]),
        })
    };
    let leaf = |resource: &str, label: &str| {
        json!({
            "metadata": {"labels": {label: "true"}}, "rules": rules(&[resource]),
        })
    };
    // `edit` gathers `view`, which gathers a leaf; both also select each other.
    index.set(
        &key("clusterroles", "-", "edit"),
        Some(&gathers("to-edit", json!({"to-view": "true"}))),
        1,
    );
    index.set(
        &key("clusterroles", "-", "view"),
        Some(&gathers("to-view", json!({"to-edit": "true"}))),
        1,
    );
    index.set(&key("clusterroles", "-", "leaf"), Some(&leaf("pods", "to-view")), 1);
    let user = json!({"kind": "User", "name": "ann"});
    index.set(
        &key("clusterrolebindings", "-", "b"),
        Some(&binding("edit", "ClusterRole", &user)),
        1,
    );
    assert!(ask(&index, "ann", &[], None, "pods"));
    assert!(!ask(&index, "ann", &[], None, "old"), "its own rules do not count");
    index.set(&key("clusterroles", "-", "leaf"), None, 0);
    assert!(!ask(&index, "ann", &[], None, "pods"), "and nothing stays behind in a cycle");
}

#[test]
fn the_number_and_size_of_objects_is_bounded() {
    let mut index = RbacIndex::default();
    assert!(index.has_capacity(1, MAX_BYTES) && !index.has_capacity(1, MAX_BYTES + 1));
    index.set(&key("roles", "a", "own"), Some(&json!({})), 10);
    assert!(!index.has_capacity(1, MAX_BYTES));
    index.set(&key("roles", "a", "own"), Some(&json!({})), 0);
    assert!(index.has_capacity(1, MAX_BYTES));
}
