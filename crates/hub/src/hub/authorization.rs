//! What a user may do: the rules of the authorizer, then roles and bindings.
//!
//! Called by the router for each request, by access reviews, and by open watches after a role changed.

use std::sync::Arc;

use super::{HubInner, ViewerRedaction};
use crate::auth::authorizer::{
    AuthorizationDecision, OUTLINE_SUBRESOURCE, READ_VERBS, RequestAttributes, RoleScope,
};
use crate::auth::{ADMIN_GROUP, AUTHENTICATED_GROUP, BOOTSTRAP_GROUP, NODE_GROUP, UserInfo};
use crate::kind_registry::ResourceKind;
use crate::rbac::index::Subject;
use crate::rbac::rule::RoleRule;

/// The root of the hub's own endpoints. Roles do not count there: a token that it makes would outlive the role.
const OWN_ENDPOINTS: &str = "/machinist";

impl HubInner {
    /// Decides whether a user may make a request for objects.
    pub(crate) fn authorize(
        &self,
        user: &UserInfo,
        request: &RequestAttributes,
    ) -> AuthorizationDecision {
        let decision = self.authorizer.authorize(user, request);
        if decision == AuthorizationDecision::Allow {
            return decision;
        }
        let Some(subject) = subject(user, self.authorizer.role_scope(user, request)) else {
            return decision;
        };
        let index = self.rbac.read();
        if index.allows(&subject, request) {
            return AuthorizationDecision::Allow;
        }
        let has_outline = decision == AuthorizationDecision::Deny
            && request.subresource.is_empty()
            && READ_VERBS.split(' ').any(|verb| verb == request.verb)
            && self.redaction_of(&request.group, &request.resource).is_some();
        if has_outline {
            let subresource = OUTLINE_SUBRESOURCE.to_owned();
            let outline = RequestAttributes { subresource, ..request.clone() };
            if index.allows(&subject, &outline) {
                return AuthorizationDecision::AllowOutline;
            }
        }
        decision
    }

    /// Whether a user may make a request for a path that is not an object.
    pub(crate) fn authorize_path(&self, user: &UserInfo, verb: &str, path: &str) -> bool {
        if user.is_in_group(ADMIN_GROUP) {
            return true;
        }
        if path == OWN_ENDPOINTS || path.starts_with("/machinist/") {
            return false;
        }
        subject(user, RoleScope::All)
            .is_some_and(|subject| self.rbac.read().allows_path(&subject, verb, path))
    }

    /// The rules of a user in a namespace, and whether these are all.
    pub(crate) fn rules_of(&self, user: &UserInfo, namespace: &str) -> (Vec<RoleRule>, bool) {
        let is_machine = user.is_in_group(NODE_GROUP);
        let is_limited = is_machine || user.is_in_group(BOOTSTRAP_GROUP);
        let rules = self.authorizer.rules().iter();
        let rules = rules.filter(|rule| user.is_in_group(&rule.user_group));
        let mut found: Vec<RoleRule> =
            rules.map(|rule| RoleRule::from_policy(rule, user.node_name())).collect();
        if let Some(subject) = subject(user, RoleScope::All) {
            let rules = self.rbac.read().rules(&subject, Some(namespace));
            found.extend(rules.iter().map(|rule| RoleRule::clone(rule)));
        }
        (found, !is_limited)
    }

    /// The rules with which a user grants rights to others. Those of the authorizer cannot be passed on.
    pub(crate) fn grantable_rules(
        &self,
        user: &UserInfo,
        namespace: Option<&str>,
    ) -> Vec<Arc<RoleRule>> {
        let scope = if user.is_in_group(NODE_GROUP) || user.is_in_group(BOOTSTRAP_GROUP) {
            RoleScope::None
        } else {
            RoleScope::All
        };
        subject(user, scope)
            .map(|subject| self.rbac.read().rules(&subject, namespace))
            .unwrap_or_default()
    }

    /// How those see the objects of a kind who may read its outline only.
    pub(crate) fn redaction(&self, kind: &ResourceKind) -> Option<&ViewerRedaction> {
        self.redaction_of(&kind.group, &kind.plural)
    }

    fn redaction_of(&self, group: &str, resource: &str) -> Option<&ViewerRedaction> {
        let mut redactions = self.viewer_redactions.iter();
        redactions.find(|it| it.group == group && it.resource == resource)
    }
}

fn subject(user: &UserInfo, scope: RoleScope) -> Option<Subject<'_>> {
    let groups = user.groups.iter().map(String::as_str);
    let groups = match scope {
        RoleScope::None => return None,
        RoleScope::Named => groups.filter(|group| *group != AUTHENTICATED_GROUP).collect(),
        RoleScope::All => groups.collect(),
    };
    Some(Subject { user: &user.user, groups })
}
