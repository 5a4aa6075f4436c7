//! The rules that are not in roles: those of administrators, machines and bootstrap tokens, and how far roles count for
//! them. Pure.
//!
//! Asked by `hub::authorization` before it looks at roles and bindings.

use super::node_graph::NodeRelation;
use super::{ADMIN_GROUP, BOOTSTRAP_GROUP, CONTROLLER_GROUP, NODE_GROUP, UserInfo};

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
    /// Allowed, without the contents of objects.
    AllowOutline,
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

/// How far roles and bindings count for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleScope {
    /// Not at all.
    None,
    /// The bindings of the user and its groups, but for what all authenticated users get.
    Named,
    /// The bindings of the user and its groups.
    All,
}

/// All rules that are not in roles.
#[derive(Debug, Clone, Default)]
pub struct Authorizer {
    rules: Vec<PolicyRule>,
}

/// The subresource that stands for an object without its contents. It has no path: whoever may read it, and not the
/// object, sees the outline when reading the object.
pub const OUTLINE_SUBRESOURCE: &str = "outline";

/// Groups of which a machine gets nothing from roles, whatever the kind: they are credentials, or rights.
const NEVER_FOR_MACHINES: [&str; 4] =
    ["rbac.authorization.k8s.io", "authentication.k8s.io", "apiextensions.k8s.io", CSR_GROUP];
/// Such kinds of the core group, and what can be impersonated.
const NEVER_FOR_MACHINES_CORE: [&str; 4] = ["secrets", "serviceaccounts", "users", "groups"];

/// The read-only verbs.
pub const READ_VERBS: &str = "get list watch";

/// The namespace of the machines' own leases.
pub const NODE_LEASE_NAMESPACE: &str = "kube-node-lease";

/// The verbs of requests for objects. Others are rights of their own, such as `impersonate` and `bind`.
const KNOWN_VERBS: [&str; 8] =
    ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

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
        Self { rules }
    }

    /// All rules.
    #[must_use]
    pub fn rules(&self) -> &[PolicyRule] {
        &self.rules
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
        let mut decision = AuthorizationDecision::Deny;
        for rule in &self.rules {
            match rule.authorize(user, attributes) {
                AuthorizationDecision::Allow => return AuthorizationDecision::Allow,
                conditional @ (AuthorizationDecision::AllowRequester
                | AuthorizationDecision::AllowRelated(_)) => decision = conditional,
                AuthorizationDecision::AllowOutline | AuthorizationDecision::Deny => {}
            }
        }
        decision
    }

    /// How far roles count for a request for objects.
    ///
    /// A binding must not widen what a machine reads by accident. For the kinds with rules here, and for credentials,
    /// roles do not count for machines at all. For all others, a binding must name the machine or `system:nodes`: what
    /// everybody gets through `system:authenticated` is not meant for machines. Bootstrap tokens get nothing.
    #[must_use]
    pub fn role_scope(&self, user: &UserInfo, attributes: &RequestAttributes) -> RoleScope {
        let is_controller = user.is_in_group(CONTROLLER_GROUP);
        if user.is_in_group(BOOTSTRAP_GROUP)
            || (is_controller && is_denied_to_controllers(attributes))
        {
            return RoleScope::None;
        }
        if !user.is_in_group(NODE_GROUP) {
            return RoleScope::All;
        }
        if self.is_limited_for_machines(attributes) {
            return RoleScope::None;
        }
        RoleScope::Named
    }

    fn is_limited_for_machines(&self, attributes: &RequestAttributes) -> bool {
        let RequestAttributes { verb, group, resource, .. } = attributes;
        let mut rules = self.rules.iter().filter(|rule| rule.user_group == NODE_GROUP);
        let has_rules = rules.any(|rule| {
            let mut resources = rule.resources.iter().filter_map(|it| it.split('/').next());
            rule.group == *group && resources.any(|own| own == resource)
        });
        has_rules
            || group == "*"
            || resource == "*"
            || !KNOWN_VERBS.contains(&verb.as_str())
            || NEVER_FOR_MACHINES.contains(&group.as_str())
            || (group.is_empty() && NEVER_FOR_MACHINES_CORE.contains(&resource.as_str()))
    }
}

/// Controllers cannot become any user: neither by impersonation nor by approving a CSR for a client certificate.
fn is_denied_to_controllers(attributes: &RequestAttributes) -> bool {
    let approves =
        attributes.group == CSR_GROUP && !READ_VERBS.split(' ').any(|verb| verb == attributes.verb);
    let acts_for_another = attributes.verb == "impersonate"
        || (attributes.resource == "serviceaccounts" && attributes.subresource == "token");
    approves || acts_for_another
}

#[cfg(test)]
mod tests;
