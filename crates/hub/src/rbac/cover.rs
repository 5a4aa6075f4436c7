//! Whether rules cover other rules: nobody grants rights that they do not have themselves. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::rule::{RoleRule, quoted_list};
use crate::auth::UserInfo;

/// The most single rights that a grant is split into, times the rules that they are compared with. A role may list
/// hundreds of groups, resources and verbs in one rule, and their product must not occupy the hub.
const MAX_COMPARISONS: usize = 20_000_000;
/// The most missing rights that a message names.
const MAX_SHOWN: usize = 50;

/// Why rights may not be granted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EscalationError {
    /// The user does not have all of these rights.
    #[error(
        "user {user} (groups={groups}) is attempting to grant RBAC permissions not currently held:\n{}",
        .missing.join("\n")
    )]
    NotHeld {
        /// The user, quoted.
        user: String,
        /// The groups of the user, quoted.
        groups: String,
        /// The rights that are missing.
        missing: Vec<String>,
    },
    /// The rules are too many to compare.
    #[error(
        "the rules grant too many combinations of groups, resources, names and verbs to compare them with the rights of the user: split the role"
    )]
    TooMany,
}

/// Checks that a user with the rules `held` may grant `granted`.
///
/// # Errors
/// Some rights are missing; the text is that of Kubernetes.
pub fn check_grant(
    user: &UserInfo,
    held: &[&RoleRule],
    granted: &[RoleRule],
) -> Result<(), EscalationError> {
    let count = granted.iter().map(single_right_count).fold(0, usize::saturating_add);
    if count.saturating_mul(held.len().max(1)) > MAX_COMPARISONS {
        return Err(EscalationError::TooMany);
    }
    let rights = granted.iter().flat_map(single_rights);
    let missing: Vec<RoleRule> =
        rights.filter(|right| !held.iter().any(|rule| covers(rule, right))).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let missing: BTreeSet<String> = compact(missing).iter().map(RoleRule::compact_text).collect();
    Err(EscalationError::NotHeld {
        user: crate::schema::quote(&user.user),
        groups: quoted_list(&user.groups),
        missing: missing.into_iter().take(MAX_SHOWN).collect(),
    })
}

/// The rules of `wanted` that `held` does not cover.
#[must_use]
pub fn missing_rules(held: &[RoleRule], wanted: &[RoleRule]) -> Vec<RoleRule> {
    let is_covered = |right: &RoleRule| held.iter().any(|rule| covers(rule, right));
    let missing = wanted.iter().filter(|rule| !single_rights(rule).all(|it| is_covered(&it)));
    missing.cloned().collect()
}

fn single_right_count(rule: &RoleRule) -> usize {
    let names = rule.resource_names.len().max(1);
    let objects = [rule.resources.len(), names, rule.verbs.len()];
    let objects = objects.into_iter().fold(rule.api_groups.len(), usize::saturating_mul);
    objects.saturating_add(rule.non_resource_urls.len().saturating_mul(rule.verbs.len()))
}

/// Splits a rule into rules with one group, resource, name and verb, or with one path and verb.
fn single_rights(rule: &RoleRule) -> impl Iterator<Item = RoleRule> + '_ {
    let names: Vec<Vec<String>> = match rule.resource_names.as_slice() {
        [] => vec![Vec::new()],
        names => names.iter().map(|name| vec![name.clone()]).collect(),
    };
    let objects = rule.api_groups.iter().flat_map(move |group| {
        let names = names.clone();
        rule.resources.iter().flat_map(move |resource| {
            let names = names.clone();
            rule.verbs.iter().flat_map(move |verb| {
                names.clone().into_iter().map(move |resource_names| RoleRule {
                    verbs: vec![verb.clone()],
                    api_groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    resource_names,
                    non_resource_urls: Vec::new(),
                })
            })
        })
    });
    let paths = rule.non_resource_urls.iter().flat_map(move |path| {
        rule.verbs.iter().map(move |verb| RoleRule {
            verbs: vec![verb.clone()],
            non_resource_urls: vec![path.clone()],
            ..RoleRule::default()
        })
    });
    objects.chain(paths)
}

/// Whether a rule covers a single right.
fn covers(rule: &RoleRule, right: &RoleRule) -> bool {
    let all = |own: &[String], wanted: &[String]| {
        own.iter().any(|it| it == "*") || wanted.iter().all(|it| own.contains(it))
    };
    let names = match (rule.resource_names.as_slice(), right.resource_names.as_slice()) {
        ([], _) => true,
        (_, []) => false,
        (own, wanted) => wanted.iter().all(|name| own.contains(name)),
    };
    all(&rule.verbs, &right.verbs)
        && all(&rule.api_groups, &right.api_groups)
        && right.resources.iter().all(|wanted| covers_resource(&rule.resources, wanted))
        && names
        && right
            .non_resource_urls
            .iter()
            .all(|wanted| rule.non_resource_urls.iter().any(|own| covers_path(own, wanted)))
}

fn covers_resource(own: &[String], wanted: &str) -> bool {
    own.iter().any(|it| it == "*" || it == wanted)
        || wanted.split_once('/').is_some_and(|(_, sub)| own.contains(&format!("*/{sub}")))
}

fn covers_path(own: &str, wanted: &str) -> bool {
    own == wanted || (own.ends_with('*') && wanted.starts_with(own.trim_end_matches('*')))
}

/// Joins the verbs of rights on the same resource.
fn compact(rights: Vec<RoleRule>) -> Vec<RoleRule> {
    let mut joined: BTreeMap<[Vec<String>; 3], RoleRule> = BTreeMap::new();
    let mut found = Vec::new();
    for right in rights {
        if !right.non_resource_urls.is_empty() {
            found.push(right);
            continue;
        }
        let key = [&right.api_groups, &right.resources, &right.resource_names].map(Clone::clone);
        match joined.get_mut(&key) {
            Some(rule) => rule.verbs.extend(right.verbs),
            None => {
                joined.insert(key, right);
            }
        }
    }
    found.extend(joined.into_values());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &str, resources: &str) -> RoleRule {
        RoleRule::resources(verbs, "core", resources)
    }

    #[test]
    fn nobody_grants_more_than_they_hold() {
        let user = UserInfo::new("ann", ["devs".to_owned()]);
        let named = RoleRule { resource_names: vec!["a".into()], ..rule("get", "secrets") };
        let all = RoleRule::resources("*", "*", "*");
        let table: [(&[RoleRule], &[RoleRule], bool); 12] = [
            (&[rule("get list", "pods secrets")], &[rule("get", "pods")], true),
            (&[rule("get", "pods"), rule("list", "pods")], &[rule("get list", "pods")], true),
            (&[rule("get", "pods")], &[rule("get list", "pods")], false),
            (&[rule("get", "pods")], &[rule("*", "pods")], false),
            (&[rule("get", "*")], &[rule("get", "pods/status")], true),
            (&[rule("get", "*/status")], &[rule("get", "pods/status")], true),
            (&[rule("get", "*/status")], &[rule("get", "pods")], false),
            (&[rule("get", "secrets")], std::slice::from_ref(&named), true),
            (std::slice::from_ref(&named), &[rule("get", "secrets")], false),
            (&[all], &[RoleRule::paths("get", "/x")], false),
            (&[RoleRule::paths("get", "/x/*")], &[RoleRule::paths("get", "/x/y")], true),
            (&[rule("get", "machineconfigs/outline")], &[rule("get", "machineconfigs")], false),
        ];
        for (held, granted, expected) in table {
            let held: Vec<&RoleRule> = held.iter().collect();
            assert_eq!(
                check_grant(&user, &held, granted).is_ok(),
                expected,
                "{held:?} {granted:?}"
            );
        }
        let error = check_grant(&user, &[], &[rule("get list", "pods")]).unwrap_err().to_string();
        assert_eq!(
            error,
            "user \"ann\" (groups=[\"devs\" \"system:authenticated\"]) is attempting to grant RBAC permissions not \
             currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\" \"list\"]}"
        );
    }

    #[test]
    fn a_huge_product_is_refused_before_it_is_built() {
        let many = |name: &str| (0..2000).map(|n| format!("{name}{n}")).collect::<Vec<_>>();
        let huge = RoleRule {
            verbs: many("v"),
            api_groups: many("g"),
            resources: many("r"),
            resource_names: many("n"),
            non_resource_urls: Vec::new(),
        };
        let user = UserInfo::new("ann", []);
        assert_eq!(check_grant(&user, &[], &[huge]), Err(EscalationError::TooMany));
    }

    #[test]
    fn missing_rules_are_those_that_are_not_covered() {
        let held = [rule("get list", "pods")];
        let wanted = [rule("get", "pods"), rule("get", "secrets")];
        assert_eq!(missing_rules(&held, &wanted), [rule("get", "secrets")]);
    }
}
