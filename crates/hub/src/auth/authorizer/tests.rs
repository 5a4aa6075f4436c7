//! Tests of the rules that are not in roles.

use super::*;

fn user(group: &str) -> UserInfo {
    match group {
        NODE_GROUP => UserInfo::node("a"),
        _ => UserInfo::new("x", [group.to_owned()]),
    }
}

/// `verb resource.group[/sub] [[namespace:]name]`
fn attributes(text: &str) -> RequestAttributes {
    let mut words = text.split(' ').map(ToOwned::to_owned);
    let verb = words.next().unwrap();
    let full = words.next().unwrap();
    let (full, subresource) = match full.split_once('/') {
        Some((full, sub)) => (full.to_owned(), sub.to_owned()),
        None => (full, String::new()),
    };
    let (resource, group) = full.split_once('.').unwrap_or((&full, ""));
    let (namespace, name) = match words.next() {
        None => (None, None),
        Some(text) => match text.split_once(':') {
            Some((namespace, "")) => (Some(namespace.to_owned()), None),
            Some((namespace, name)) => (Some(namespace.to_owned()), Some(name.to_owned())),
            None => (None, Some(text)),
        },
    };
    RequestAttributes {
        verb,
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource,
        namespace,
        name,
    }
}

#[test]
fn groups_and_their_permissions() {
    use AuthorizationDecision::{Allow, AllowRequester, Deny};
    let roles = Authorizer::new([PolicyRule::new(
        NODE_GROUP,
        READ_VERBS,
        "g.io",
        "things",
        ResourceNames::Any,
    )]);
    let table = [
        (ADMIN_GROUP, "delete secrets a", Allow),
        (ADMIN_GROUP, "update certificatesigningrequests.certificates.k8s.io/approval a", Allow),
        (ADMIN_GROUP, "impersonate users b", Allow),
        (NODE_GROUP, "impersonate users system:node:a", Deny),
        (NODE_GROUP, "get nodes a", Allow),
        (NODE_GROUP, "watch nodes a", Allow),
        (NODE_GROUP, "get nodes b", Deny),
        (NODE_GROUP, "list nodes", Deny),
        (NODE_GROUP, "create nodes", Allow),
        (NODE_GROUP, "create nodes b", Deny),
        (NODE_GROUP, "patch nodes/status a", Allow),
        (NODE_GROUP, "patch nodes/status b", Deny),
        (NODE_GROUP, "delete nodes a", Allow),
        (NODE_GROUP, "delete nodes b", Deny),
        (NODE_GROUP, "get secrets a", Deny),
        (NODE_GROUP, "list things.g.io", Allow),
        (NODE_GROUP, "patch things.g.io a", Deny),
        (NODE_GROUP, "update leases.coordination.k8s.io kube-node-lease:a", Allow),
        (NODE_GROUP, "create leases.coordination.k8s.io kube-node-lease:", Allow),
        (NODE_GROUP, "update leases.coordination.k8s.io kube-node-lease:b", Deny),
        (NODE_GROUP, "update leases.coordination.k8s.io system:a", Deny),
        (NODE_GROUP, "create leases.coordination.k8s.io system:", Deny),
        (NODE_GROUP, "delete leases.coordination.k8s.io system:a", Deny),
        (NODE_GROUP, "list leases.coordination.k8s.io a", Deny),
        (NODE_GROUP, "create events", Allow),
        (NODE_GROUP, "create certificatesigningrequests.certificates.k8s.io", Allow),
        (BOOTSTRAP_GROUP, "create certificatesigningrequests.certificates.k8s.io", Allow),
        (BOOTSTRAP_GROUP, "get certificatesigningrequests.certificates.k8s.io a", AllowRequester),
        (BOOTSTRAP_GROUP, "list certificatesigningrequests.certificates.k8s.io", Deny),
        (BOOTSTRAP_GROUP, "update certificatesigningrequests.certificates.k8s.io/approval a", Deny),
        (BOOTSTRAP_GROUP, "get nodes a", Deny),
        ("others", "get nodes a", Deny),
    ];
    for (group, text, expected) in table {
        assert_eq!(roles.authorize(&user(group), &attributes(text)), expected, "{group}: {text}");
    }
}

#[test]
fn roles_do_not_widen_what_machines_and_tokens_may_do() {
    let rule = PolicyRule::new(NODE_GROUP, READ_VERBS, "g.io", "things", ResourceNames::Any);
    let rules = Authorizer::new([rule]);
    let approve = "update certificatesigningrequests.certificates.k8s.io/approval a";
    for (group, text, expected) in [
        (NODE_GROUP, "get configmaps a", RoleScope::Named),
        (NODE_GROUP, "get widgets.example.com", RoleScope::Named),
        (NODE_GROUP, "get nodes b", RoleScope::None),
        (NODE_GROUP, "patch nodes/status b", RoleScope::None),
        (NODE_GROUP, "delete things.g.io b", RoleScope::None),
        (NODE_GROUP, "get secrets", RoleScope::None),
        (NODE_GROUP, "create serviceaccounts/token", RoleScope::None),
        (NODE_GROUP, "impersonate users b", RoleScope::None),
        (NODE_GROUP, "impersonate configmaps b", RoleScope::None),
        (NODE_GROUP, "create clusterroles.rbac.authorization.k8s.io", RoleScope::None),
        (NODE_GROUP, "bind clusterroles.rbac.authorization.k8s.io a", RoleScope::None),
        (NODE_GROUP, approve, RoleScope::None),
        (NODE_GROUP, "get *", RoleScope::None),
        (BOOTSTRAP_GROUP, "get configmaps a", RoleScope::None),
        (CONTROLLER_GROUP, "get things.g.io", RoleScope::All),
        (CONTROLLER_GROUP, approve, RoleScope::None),
        (
            CONTROLLER_GROUP,
            "create certificatesigningrequests.certificates.k8s.io",
            RoleScope::None,
        ),
        (CONTROLLER_GROUP, "impersonate users b", RoleScope::None),
        ("devs", "impersonate users b", RoleScope::All),
    ] {
        assert_eq!(rules.role_scope(&user(group), &attributes(text)), expected, "{group}: {text}");
    }
}

#[test]
fn a_node_user_must_be_in_the_node_group() {
    let odd = UserInfo::new("system:node:a", []);
    assert_eq!(
        Authorizer::new([]).authorize(&odd, &attributes("get nodes a")),
        AuthorizationDecision::Deny
    );
}
