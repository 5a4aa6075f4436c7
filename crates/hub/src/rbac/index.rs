//! Which rules apply to a user: roles by name, bindings by subject. Pure.
//!
//! A question costs a few lookups, however many roles and bindings there are. Filled by [`super::live`].

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::KEY_PREFIX;
use super::rule::RoleRule;
use crate::auth::authorizer::RequestAttributes;
use crate::selector::LabelSelector;

/// The most roles and bindings together.
pub const MAX_OBJECTS: usize = 20_000;
/// The most bytes of them together.
pub const MAX_BYTES: usize = 64 << 20;
/// The most rules that a ClusterRole gathers from others.
const MAX_AGGREGATED_RULES: usize = 10_000;
/// How deep ClusterRoles gather from others that gather themselves.
const MAX_AGGREGATION_DEPTH: usize = 8;

/// The rules of a role.
pub type Rules = Arc<[Arc<RoleRule>]>;

/// Whose rules are asked for.
#[derive(Debug, Clone)]
pub struct Subject<'a> {
    /// The user name.
    pub user: &'a str,
    /// The groups that count.
    pub groups: Vec<&'a str>,
}

/// The role of a binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoleRef {
    /// A Role of this namespace.
    Role {
        /// The namespace of the binding.
        namespace: String,
        /// The name of the Role.
        name: String,
    },
    /// A ClusterRole.
    ClusterRole {
        /// Its name.
        name: String,
    },
}

impl RoleRef {
    /// The role of a binding; `None` if the kind is neither.
    #[must_use]
    pub fn of_binding(binding: &Value, namespace: Option<&str>) -> Option<Self> {
        let name = binding["roleRef"]["name"].as_str().unwrap_or_default().to_owned();
        match (binding["roleRef"]["kind"].as_str(), namespace) {
            (Some("ClusterRole"), _) => Some(Self::ClusterRole { name }),
            (Some("Role"), Some(namespace)) => {
                Some(Self::Role { namespace: namespace.to_owned(), name })
            }
            _ => None,
        }
    }
}

#[derive(Debug)]
struct ClusterRole {
    rules: Rules,
    /// An object with the labels of the role, for selectors.
    labels: Value,
    /// What it gathers rules from; `None` if it has rules of its own.
    aggregation: Option<Vec<LabelSelector>>,
}

#[derive(Debug)]
struct Binding {
    role: Option<RoleRef>,
    users: Vec<String>,
    groups: Vec<String>,
    namespace: Option<String>,
}

/// The keys of the bindings of a user or group.
#[derive(Debug, Default)]
struct SubjectBindings {
    cluster: BTreeSet<String>,
    namespaced: HashMap<String, BTreeSet<String>>,
}

/// All roles and bindings of a hub.
#[derive(Debug, Default)]
pub struct RbacIndex {
    cluster_roles: BTreeMap<String, ClusterRole>,
    aggregated: HashMap<String, Rules>,
    roles: HashMap<String, HashMap<String, Rules>>,
    bindings: HashMap<String, Binding>,
    users: HashMap<String, SubjectBindings>,
    groups: HashMap<String, SubjectBindings>,
    sizes: HashMap<String, usize>,
    bytes: usize,
}

impl RbacIndex {
    /// Whether a user may make a request for objects.
    #[must_use]
    pub fn allows(&self, subject: &Subject<'_>, request: &RequestAttributes) -> bool {
        let namespace = request.namespace.as_deref();
        self.visit(subject, namespace, &mut |rule| rule.allows(request))
    }

    /// Whether a user may make a request for a path.
    #[must_use]
    pub fn allows_path(&self, subject: &Subject<'_>, verb: &str, path: &str) -> bool {
        self.visit(subject, None, &mut |rule| rule.allows_path(verb, path))
    }

    /// The rules of a user in a namespace, or those that apply everywhere.
    #[must_use]
    pub fn rules(&self, subject: &Subject<'_>, namespace: Option<&str>) -> Vec<Arc<RoleRule>> {
        let mut found = Vec::new();
        self.visit(subject, namespace, &mut |rule| {
            found.push(Arc::clone(rule));
            false
        });
        found
    }

    /// The rules of a role; `None` if there is none of that name.
    #[must_use]
    pub fn rules_of_role(&self, role: &RoleRef) -> Option<&Rules> {
        match role {
            RoleRef::Role { namespace, name } => self.roles.get(namespace)?.get(name),
            RoleRef::ClusterRole { name } => self.rules_of_cluster_role(name),
        }
    }

    /// The rules of the ClusterRoles that gather them from others.
    pub fn aggregated(&self) -> impl Iterator<Item = (&String, &Rules)> {
        self.aggregated.iter()
    }

    /// Whether more objects, and more bytes of them, fit.
    #[must_use]
    pub fn has_capacity(&self, objects: usize, bytes: usize) -> bool {
        self.sizes.len() + objects <= MAX_OBJECTS && self.bytes + bytes <= MAX_BYTES
    }

    fn rules_of_cluster_role(&self, name: &str) -> Option<&Rules> {
        let role = self.cluster_roles.get(name)?;
        Some(self.aggregated.get(name).unwrap_or(&role.rules))
    }

    /// Visits the rules of a user until `found` is true for one.
    fn visit(
        &self,
        subject: &Subject<'_>,
        namespace: Option<&str>,
        found: &mut impl FnMut(&Arc<RoleRule>) -> bool,
    ) -> bool {
        let of_groups = subject.groups.iter().filter_map(|group| self.groups.get(*group));
        let subjects = self.users.get(subject.user).into_iter().chain(of_groups);
        let keys = subjects.flat_map(|bindings| {
            let namespaced = namespace.and_then(|name| bindings.namespaced.get(name));
            bindings.cluster.iter().chain(namespaced.into_iter().flatten())
        });
        let roles = keys.filter_map(|key| self.bindings.get(key)?.role.as_ref());
        let mut rules =
            roles.filter_map(|role| self.rules_of_role(role)).flat_map(|rules| rules.iter());
        rules.any(found)
    }

    /// Takes the new state of a stored object; `None` if it is gone.
    pub fn set(&mut self, key: &str, object: Option<&Value>, bytes: usize) {
        let Some((plural, namespace, name)) = parse_key(key) else { return };
        self.bytes -= self.sizes.remove(key).unwrap_or(0);
        if object.is_some() {
            self.sizes.insert(key.to_owned(), bytes);
            self.bytes += bytes;
        }
        match (plural, namespace) {
            ("clusterroles", None) => {
                match object {
                    Some(object) => {
                        self.cluster_roles.insert(name.to_owned(), ClusterRole::new(object));
                    }
                    None => {
                        self.cluster_roles.remove(name);
                    }
                }
                self.aggregate();
            }
            ("roles", Some(namespace)) => self.set_role(namespace, name, object),
            ("rolebindings" | "clusterrolebindings", namespace) => {
                self.remove_binding(key);
                if let Some(object) = object {
                    self.add_binding(key, Binding::new(object, namespace));
                }
            }
            _ => {}
        }
    }

    fn set_role(&mut self, namespace: &str, name: &str, object: Option<&Value>) {
        let roles = self.roles.entry(namespace.to_owned()).or_default();
        match object {
            Some(object) => {
                roles.insert(name.to_owned(), rules_of(object));
            }
            None => {
                roles.remove(name);
                if roles.is_empty() {
                    self.roles.remove(namespace);
                }
            }
        }
    }

    fn add_binding(&mut self, key: &str, binding: Binding) {
        let namespace = binding.namespace.as_deref();
        for user in &binding.users {
            self.users.entry(user.clone()).or_default().insert(namespace, key);
        }
        for group in &binding.groups {
            self.groups.entry(group.clone()).or_default().insert(namespace, key);
        }
        self.bindings.insert(key.to_owned(), binding);
    }

    fn remove_binding(&mut self, key: &str) {
        let Some(binding) = self.bindings.remove(key) else { return };
        let namespace = binding.namespace.as_deref();
        for (names, map) in [(&binding.users, &mut self.users), (&binding.groups, &mut self.groups)]
        {
            for name in names {
                let Some(bindings) = map.get_mut(name) else { continue };
                if bindings.remove(namespace, key) {
                    map.remove(name);
                }
            }
        }
    }

    /// Gathers the rules of the ClusterRoles with an aggregation rule.
    fn aggregate(&mut self) {
        let gathering = self.cluster_roles.iter().filter_map(|(name, role)| {
            let selected = self.selected_by(name, role.aggregation.as_ref()?);
            Some((name.clone(), selected))
        });
        let gathering: Vec<(String, Vec<String>)> = gathering.collect();
        self.aggregated =
            gathering.iter().map(|(name, _)| (name.clone(), Rules::from(Vec::new()))).collect();
        for _ in 0..MAX_AGGREGATION_DEPTH {
            let next: HashMap<String, Rules> = gathering
                .iter()
                .map(|(name, selected)| (name.clone(), self.union(selected)))
                .collect();
            if next == self.aggregated {
                break;
            }
            self.aggregated = next;
        }
    }

    /// The names of the other ClusterRoles that selectors select, in their order.
    fn selected_by(&self, name: &str, selectors: &[LabelSelector]) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for selector in selectors {
            let roles = self.cluster_roles.iter();
            let roles =
                roles.filter(|(other, role)| *other != name && selector.matches(&role.labels));
            found.extend(roles.map(|(other, _)| other.clone()));
        }
        found
    }

    fn union(&self, roles: &[String]) -> Rules {
        let mut seen = HashSet::new();
        let rules = roles.iter().filter_map(|name| self.rules_of_cluster_role(name));
        let rules = rules.flat_map(|rules| rules.iter());
        let rules = rules.filter(|rule| seen.insert(Arc::clone(rule)));
        rules.take(MAX_AGGREGATED_RULES).cloned().collect()
    }
}

impl SubjectBindings {
    fn insert(&mut self, namespace: Option<&str>, key: &str) {
        match namespace {
            None => self.cluster.insert(key.to_owned()),
            Some(namespace) => {
                self.namespaced.entry(namespace.to_owned()).or_default().insert(key.to_owned())
            }
        };
    }

    /// Removes a binding. Returns whether none is left.
    fn remove(&mut self, namespace: Option<&str>, key: &str) -> bool {
        match namespace {
            None => {
                self.cluster.remove(key);
            }
            Some(namespace) => {
                if let Some(keys) = self.namespaced.get_mut(namespace) {
                    keys.remove(key);
                    if keys.is_empty() {
                        self.namespaced.remove(namespace);
                    }
                }
            }
        }
        self.cluster.is_empty() && self.namespaced.is_empty()
    }
}

impl ClusterRole {
    fn new(object: &Value) -> Self {
        let selectors = object["aggregationRule"]["clusterRoleSelectors"].as_array();
        let is_aggregated = object["aggregationRule"].is_object();
        Self {
            rules: rules_of(object),
            labels: json!({"metadata": {"labels": object["metadata"]["labels"]}}),
            aggregation: is_aggregated.then(|| {
                let selectors = selectors.into_iter().flatten();
                selectors.filter_map(|it| LabelSelector::from_json(it).ok()).collect()
            }),
        }
    }
}

impl Binding {
    fn new(object: &Value, namespace: Option<&str>) -> Self {
        let (mut users, mut groups) = (Vec::new(), Vec::new());
        for subject in object["subjects"].as_array().into_iter().flatten() {
            let name = subject["name"].as_str().unwrap_or_default().to_owned();
            match subject["kind"].as_str() {
                Some("User") => users.push(name),
                Some("Group") => groups.push(name),
                Some("ServiceAccount") => {
                    let own = subject["namespace"].as_str().filter(|text| !text.is_empty());
                    if let Some(own) = own.or(namespace) {
                        users.push(format!("system:serviceaccount:{own}:{name}"));
                    }
                }
                _ => {}
            }
        }
        let role = RoleRef::of_binding(object, namespace);
        Self { role, users, groups, namespace: namespace.map(ToOwned::to_owned) }
    }
}

fn rules_of(role: &Value) -> Rules {
    RoleRule::rules_of(role).into_iter().map(Arc::new).collect()
}

/// Resource, namespace and name of a key.
fn parse_key(key: &str) -> Option<(&str, Option<&str>, &str)> {
    let mut parts = key.strip_prefix(KEY_PREFIX)?.splitn(3, '/');
    let (plural, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
    Some((plural, Some(namespace).filter(|name| *name != "-"), name))
}

#[cfg(test)]
mod tests;
