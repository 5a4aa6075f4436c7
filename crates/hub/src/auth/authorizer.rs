//! The authorizer: a list of rules per user group, and one pure query.
//!
//! Called by the router for each request and by access reviews. What no rule allows is forbidden.

use super::node_graph::NodeRelation;
use super::{ADMIN_GROUP, BOOTSTRAP_GROUP, CONTROLLER_GROUP, NODE_GROUP, UserInfo, VIEWER_GROUP};

/// The attributes of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestAttributes {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Resource.
    pub resource: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// Namespace, if any.
    pub namespace: Option<String>,
    /// Object name, if any.
    pub name: Option<String>,
}

impl RequestAttributes {
    /// `nodes`, or `nodes/status`.
    #[must_use]
    pub fn resource_with_subresource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }
}

/// Which objects a rule covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceNames {
    /// All objects.
    Any,
    /// The object that has the machine's own name.
    OwnNode,
    /// CSRs that the user has created.
    OwnRequests,
    /// The object of this name.
    Named(&'static str),
    /// Objects that concern the machine.
    Related(NodeRelation),
}

/// The decision of the authorizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthorizationDecision {
    /// Allowed.
    Allow,
    /// Allowed only if the user created the CSR.
    AllowRequester,
    /// Allowed only for objects that concern the machine. A list or watch shows only these.
    AllowRelated(NodeRelation),
    /// Denied.
    Deny,
}

/// Allows the members of a group to do something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRule {
    /// The user group.
    pub user_group: String,
    /// Verbs; `*` means all.
    pub verbs: Vec<String>,
    /// API group; `*` means all.
    pub group: String,
    /// Resources such as `nodes` and `nodes/status`; `*` means all.
    pub resources: Vec<String>,
    /// Which objects.
    pub names: ResourceNames,
    /// The only namespace that the rule covers; `None` means all.
    pub namespace: Option<String>,
}

impl PolicyRule {
    /// Builds a rule from space-separated words.
    #[must_use]
    pub fn new(
        members: &str,
        verbs: &str,
        group: &str,
        resources: &str,
        names: ResourceNames,
    ) -> Self {
        let words = |text: &str| text.split_whitespace().map(ToOwned::to_owned).collect();
        Self {
            user_group: members.to_owned(),
            verbs: words(verbs),
            group: group.to_owned(),
            resources: words(resources),
            names,
            namespace: None,
        }
    }

    /// Limits the rule to one namespace.
    #[must_use]
    pub fn in_namespace(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..self }
    }

    fn authorize(&self, user: &UserInfo, attributes: &RequestAttributes) -> AuthorizationDecision {
        let has = |list: &[String], word: &str| list.iter().any(|own| own == "*" || own == word);
        let fits = user.is_in_group(&self.user_group)
            && has(&self.verbs, &attributes.verb)
            && (self.group == "*" || self.group == attributes.group)
            && has(&self.resources, &attributes.resource_with_subresource())
            && (self.namespace.is_none() || self.namespace == attributes.namespace);
        if !fits {
            return AuthorizationDecision::Deny;
        }
        match (self.names, &attributes.name) {
            (ResourceNames::Any, _) => AuthorizationDecision::Allow,
            // The name of a new object is in the body; the check is repeated after decoding it.
            (ResourceNames::OwnNode, None) if attributes.verb == "create" => {
                AuthorizationDecision::Allow
            }
            (ResourceNames::OwnNode, name) => match (user.node_name(), name) {
                (Some(own), Some(name)) if own == name => AuthorizationDecision::Allow,
                _ => AuthorizationDecision::Deny,
            },
            (ResourceNames::OwnRequests, Some(_)) => AuthorizationDecision::AllowRequester,
            (ResourceNames::Named(own), Some(name)) if own == name => AuthorizationDecision::Allow,
            (ResourceNames::Related(relation), _) if user.node_name().is_some() => {
                AuthorizationDecision::AllowRelated(relation)
            }
            (
                ResourceNames::OwnRequests | ResourceNames::Named(_) | ResourceNames::Related(_),
                _,
            ) => AuthorizationDecision::Deny,
        }
    }
}

/// All rules. What no rule allows is forbidden.
#[derive(Debug, Clone, Default)]
pub struct Authorizer {
    rules: Vec<PolicyRule>,
    /// Group and resource of the kinds that viewers may not read, besides Secrets.
    hidden_from_viewers: Vec<(String, String)>,
}

/// The read-only verbs.
pub const READ_VERBS: &str = "get list watch";

/// The namespace of the machines' own leases.
pub const NODE_LEASE_NAMESPACE: &str = "kube-node-lease";

const CSR_GROUP: &str = "certificates.k8s.io";
const CSR_RESOURCE: &str = "certificatesigningrequests";

impl Authorizer {
    /// The rules for the built-in kinds, plus `more`.
    pub fn new(more: impl IntoIterator<Item = PolicyRule>) -> Self {
        let mut rules = vec![
            PolicyRule::new(ADMIN_GROUP, "*", "*", "*", ResourceNames::Any),
            // A machine that leaves deletes its own Node.
            PolicyRule::new(
                NODE_GROUP,
                "get list watch create update patch delete",
                "",
                "nodes",
                ResourceNames::OwnNode,
            ),
            PolicyRule::new(
                NODE_GROUP,
                "get update patch",
                "",
                "nodes/status",
                ResourceNames::OwnNode,
            ),
            // Leases elsewhere elect leaders: a machine that is named like one would take its place.
            PolicyRule::new(
                NODE_GROUP,
                "get list watch create update patch delete",
                "coordination.k8s.io",
                "leases",
                ResourceNames::OwnNode,
            )
            .in_namespace(NODE_LEASE_NAMESPACE),
            PolicyRule::new(CONTROLLER_GROUP, "*", "*", "*", ResourceNames::Any),
        ];
        for group in ["", "events.k8s.io"] {
            rules.push(PolicyRule::new(
                NODE_GROUP,
                "create update patch",
                group,
                "events",
                ResourceNames::Any,
            ));
        }
        for members in [NODE_GROUP, BOOTSTRAP_GROUP] {
            rules.push(PolicyRule::new(
                members,
                "create",
                CSR_GROUP,
                CSR_RESOURCE,
                ResourceNames::Any,
            ));
            rules.push(PolicyRule::new(
                members,
                READ_VERBS,
                CSR_GROUP,
                CSR_RESOURCE,
                ResourceNames::OwnRequests,
            ));
        }
        rules.extend(more);
        Self { rules, hidden_from_viewers: Vec::new() }
    }

    /// Hides kinds, by group and resource, from viewers.
    #[must_use]
    pub fn hide_from_viewers(self, hidden: Vec<(String, String)>) -> Self {
        Self { hidden_from_viewers: hidden, ..self }
    }

    /// The annotations of a Node that assign objects to its machine.
    pub fn assignment_annotations(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.rules.iter().filter_map(|rule| match rule.names {
            ResourceNames::Related(NodeRelation::Assigned { annotation, .. }) => Some(annotation),
            _ => None,
        })
    }

    /// Decides whether a user may make a request.
    #[must_use]
    pub fn authorize(
        &self,
        user: &UserInfo,
        attributes: &RequestAttributes,
    ) -> AuthorizationDecision {
        if self.is_allowed_for_viewers(user, attributes) {
            return AuthorizationDecision::Allow;
        }
        if is_denied_to_controllers(attributes)
            && user.is_in_group(CONTROLLER_GROUP)
            && !user.is_in_group(ADMIN_GROUP)
        {
            return AuthorizationDecision::Deny;
        }
        let mut decision = AuthorizationDecision::Deny;
        for rule in &self.rules {
            match rule.authorize(user, attributes) {
                AuthorizationDecision::Allow => return AuthorizationDecision::Allow,
                conditional @ (AuthorizationDecision::AllowRequester
                | AuthorizationDecision::AllowRelated(_)) => decision = conditional,
                AuthorizationDecision::Deny => {}
            }
        }
        decision
    }

    /// Viewers read everything but Secrets and what is hidden from them.
    fn is_allowed_for_viewers(&self, user: &UserInfo, attributes: &RequestAttributes) -> bool {
        let is_hidden = |(group, resource): &(String, String)| {
            *group == attributes.group && *resource == attributes.resource
        };
        user.is_in_group(VIEWER_GROUP)
            && READ_VERBS.split(' ').any(|verb| verb == attributes.verb)
            && !(attributes.group.is_empty() && attributes.resource == "secrets")
            && !self.hidden_from_viewers.iter().any(is_hidden)
    }
}

/// Controllers cannot become any user: neither by impersonation nor by approving a CSR for a client certificate.
fn is_denied_to_controllers(attributes: &RequestAttributes) -> bool {
    let approves =
        attributes.group == CSR_GROUP && !READ_VERBS.split(' ').any(|verb| verb == attributes.verb);
    approves || attributes.verb == "impersonate"
}

#[cfg(test)]
mod tests {
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
            (
                ADMIN_GROUP,
                "update certificatesigningrequests.certificates.k8s.io/approval a",
                Allow,
            ),
            (VIEWER_GROUP, "list things.g.io", Allow),
            (VIEWER_GROUP, "get secrets a", Deny),
            (VIEWER_GROUP, "delete things.g.io a", Deny),
            (CONTROLLER_GROUP, "patch things.g.io/status a", Allow),
            (CONTROLLER_GROUP, "get secrets a", Allow),
            (
                CONTROLLER_GROUP,
                "update certificatesigningrequests.certificates.k8s.io/approval a",
                Deny,
            ),
            (CONTROLLER_GROUP, "create certificatesigningrequests.certificates.k8s.io", Deny),
            (ADMIN_GROUP, "impersonate users b", Allow),
            (CONTROLLER_GROUP, "impersonate users b", Deny),
            (VIEWER_GROUP, "impersonate groups system:masters", Deny),
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
            (
                BOOTSTRAP_GROUP,
                "get certificatesigningrequests.certificates.k8s.io a",
                AllowRequester,
            ),
            (BOOTSTRAP_GROUP, "list certificatesigningrequests.certificates.k8s.io", Deny),
            (
                BOOTSTRAP_GROUP,
                "update certificatesigningrequests.certificates.k8s.io/approval a",
                Deny,
            ),
            (BOOTSTRAP_GROUP, "get nodes a", Deny),
            ("others", "get nodes a", Deny),
        ];
        for (group, text, expected) in table {
            assert_eq!(
                roles.authorize(&user(group), &attributes(text)),
                expected,
                "{group}: {text}"
            );
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
}
