//! Role-based access control: Roles, ClusterRoles and their bindings, as in Kubernetes.
//!
//! | module | purpose |
//! |---|---|
//! | [`rule`] | one rule of a role, and what it allows |
//! | [`cover`] | whether rules cover other rules, so that nobody grants what they do not have |
//! | [`index`] | which rules apply to a user, without looking at objects |
//! | [`live`] | the index of a store, always up to date |
//! | [`bootstrap`] | the roles and bindings that every hub has |
//!
//! It knows nothing of requests. `hub::authorization` asks it for each request; the router asks it before it stores a
//! role or a binding.

pub mod bootstrap;
pub mod cover;
pub mod index;
pub(crate) mod live;
pub mod rule;

use crate::kind_registry::ResourceKind;

/// The API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";
/// The key prefix of all roles and bindings in the store.
pub(crate) const KEY_PREFIX: &str = "/rbac.authorization.k8s.io/";

/// Whether the objects of a kind are roles or bindings.
pub(crate) fn is_rbac(kind: &ResourceKind) -> bool {
    kind.built_in && kind.group == GROUP
}
