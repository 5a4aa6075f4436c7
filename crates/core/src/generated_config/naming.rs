//! Names of MachineConfigs that are generated from settings objects:
//! `99-<pool>-generated-<infix>[-N]`.
//!
//! The youngest object for a pool takes precedence. So each object gets a higher number than all
//! older ones, and an annotation keeps that number for the object's lifetime.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::core::ObjectMeta;

use super::{GenerateError, SourceRef, legacy_names};
use crate::api::MachineConfigPool;
use crate::api::names::{MAX_NAME_SUFFIX, annotation};
use crate::api::selector;

/// How the MachineConfigs of one kind are named.
#[derive(Clone, Copy, Debug)]
pub struct ConfigNaming {
    /// The kind.
    pub kind: &'static str,
    /// The part of the name that identifies the kind.
    pub infix: &'static str,
    /// The error message when all numbers are in use.
    pub limit_message: &'static str,
}

/// The parts of an object that its names depend on.
#[derive(Clone, Copy, Debug)]
pub struct NamedSource<'a> {
    /// Its metadata.
    pub metadata: &'a ObjectMeta,
    /// Selects its pools.
    pub selector: Option<&'a LabelSelector>,
}

/// The names of an object's MachineConfigs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignedNames {
    /// The number at the end of its names; may be empty.
    pub suffix: String,
    /// The name for each of its pools, by pool.
    pub by_pool: BTreeMap<String, String>,
}

impl ConfigNaming {
    /// The name for a pool, with a number.
    #[must_use]
    pub fn name(&self, pool: &str, suffix: &str) -> String {
        let dash = if suffix.is_empty() { "" } else { "-" };
        format!("99-{pool}-generated-{}{dash}{suffix}", self.infix)
    }

    /// Whether a name has the form of a generated name.
    #[must_use]
    pub fn is_name(&self, name: &str) -> bool {
        name.starts_with("99-") && name.contains(&format!("-generated-{}", self.infix))
    }

    /// The role of the pool that a generated name is for.
    #[must_use]
    pub fn role_of<'n>(&self, name: &'n str) -> Option<&'n str> {
        let rest = name.strip_prefix("99-")?;
        let (role, _) = rest.rsplit_once(&format!("-generated-{}", self.infix))?;
        Some(role)
    }

    /// Whether a finalizer is the name of a generated MachineConfig, in the present or legacy form.
    #[must_use]
    pub fn is_own_finalizer(&self, finalizer: &str) -> bool {
        self.is_name(finalizer) || legacy_names::is_legacy_name(finalizer, self.infix)
    }

    /// The pools that an object selects. An empty selector selects none, as in MCO.
    ///
    /// # Errors
    /// The selector is missing or invalid, or selects no pool.
    pub fn pools<'p>(
        &self,
        member: &NamedSource<'_>,
        pools: &[&'p MachineConfigPool],
    ) -> Result<Vec<&'p MachineConfigPool>, GenerateError> {
        let name = member.metadata.name.as_deref().unwrap_or_default();
        let error = |message: String, remedy: &str| GenerateError {
            object: SourceRef::new(self.kind, name),
            field: "spec.machineConfigPoolSelector".to_owned(),
            message,
            remedy: remedy.to_owned(),
        };
        let mut selected = Vec::new();
        if let Some(wanted) = member.selector.filter(|selector| !selector::is_empty(selector)) {
            let none = BTreeMap::new();
            for pool in pools {
                let labels = pool.metadata.labels.as_ref().unwrap_or(&none);
                let matches = selector::matches(wanted, labels).map_err(|source| {
                    error(format!("invalid label selector: {source}"), "fix the selector")
                })?;
                if matches {
                    selected.push(*pool);
                }
            }
        }
        if selected.is_empty() {
            let message =
                format!("could not find any MachineConfigPool set for {} {name}", self.kind);
            let remedy = "select a pool by a label that it has, for example pools.operator.machineconfiguration.openshift.io/worker: \"\"";
            return Err(error(message, remedy));
        }
        Ok(selected)
    }

    /// The names for all objects of the kind, in the order of `members`. Numbers are assigned oldest
    /// first. `exists` reports whether there is a MachineConfig of a name.
    pub fn assign(
        &self,
        members: &[NamedSource<'_>],
        pools: &[&MachineConfigPool],
        exists: impl Fn(&str) -> bool,
    ) -> Vec<Result<AssignedNames, GenerateError>> {
        let mut metadata: Vec<ObjectMeta> =
            members.iter().map(|member| member.metadata.clone()).collect();
        let mut order: Vec<usize> = (0..members.len()).collect();
        order.sort_by_key(|at| age_order(&members[*at]));
        let mut named = BTreeMap::new();
        for at in order {
            let all: Vec<NamedSource<'_>> = metadata
                .iter()
                .zip(members)
                .map(|(metadata, member)| NamedSource { metadata, selector: member.selector })
                .collect();
            let names = self.names(&all[at], &all, pools, &exists);
            drop(all);
            if let Ok(names) = &names {
                let annotations = metadata[at].annotations.get_or_insert_default();
                annotations.insert(annotation::MC_NAME_SUFFIX.to_owned(), names.suffix.clone());
            }
            named.insert(at, names);
        }
        named.into_values().collect()
    }

    /// The names of one object's MachineConfigs.
    fn names(
        &self,
        member: &NamedSource<'_>,
        all: &[NamedSource<'_>],
        pools: &[&MachineConfigPool],
        exists: impl Fn(&str) -> bool,
    ) -> Result<AssignedNames, GenerateError> {
        let selected = self.pools(member, pools)?;
        let suffix = match given_suffix(member) {
            Some(suffix) => suffix.to_owned(),
            None => match self.suffix_from_finalizers(member, all, &selected, exists) {
                Some(suffix) => suffix,
                None => self.next_suffix(member, all, &selected)?,
            },
        };
        let named = |pool: &&MachineConfigPool| {
            let pool = pool.metadata.name.clone().unwrap_or_default();
            let name = self.name(&pool, &suffix);
            (pool, name)
        };
        Ok(AssignedNames { by_pool: selected.iter().map(named).collect(), suffix })
    }

    /// The number of an object without the annotation. Older versions recorded the names only in
    /// finalizers.
    fn suffix_from_finalizers(
        &self,
        member: &NamedSource<'_>,
        all: &[NamedSource<'_>],
        pools: &[&MachineConfigPool],
        exists: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let is_younger = |other: &NamedSource<'_>| {
            other.metadata.creation_timestamp > member.metadata.creation_timestamp
        };
        if !all.iter().any(is_younger) {
            return None;
        }
        let finalizers = member.metadata.finalizers.as_deref().unwrap_or_default();
        let suffix = |name: &String| {
            let ours = pools.iter().find_map(|pool| {
                let base = self.name(pool.metadata.name.as_deref().unwrap_or_default(), "");
                name.strip_prefix(&base).map(str::to_owned)
            })?;
            match ours.strip_prefix('-') {
                None if ours.is_empty() => Some((0, String::new())),
                Some(number) => Some((number.parse::<usize>().ok()?, number.to_owned())),
                None => None,
            }
        };
        let found = finalizers.iter().filter(|name| exists(name)).filter_map(suffix);
        found.max().map(|(_, suffix)| suffix)
    }

    /// The next number after all objects that share a pool; empty for the first.
    fn next_suffix(
        &self,
        member: &NamedSource<'_>,
        all: &[NamedSource<'_>],
        pools: &[&MachineConfigPool],
    ) -> Result<String, GenerateError> {
        let is_before = |other: &&NamedSource<'_>| {
            other.metadata.name != member.metadata.name
                && (given_suffix(other).is_some() || age_order(other) < age_order(member))
                && self.pools(other, pools).is_ok()
        };
        let before: Vec<&NamedSource<'_>> = all.iter().filter(is_before).collect();
        if before.is_empty() {
            return Ok(String::new());
        }
        let numbers = before.iter().filter_map(|other| given_suffix(other)?.parse::<usize>().ok());
        let next = numbers.max().unwrap_or_default() + 1;
        if next > MAX_NAME_SUFFIX {
            return Err(GenerateError {
                object: SourceRef::new(
                    self.kind,
                    member.metadata.name.as_deref().unwrap_or_default(),
                ),
                field: "metadata.name".to_owned(),
                message: self.limit_message.to_owned(),
                remedy: "change one of the others instead of adding one".to_owned(),
            });
        }
        Ok(next.to_string())
    }
}

/// The number in an object's annotation.
fn given_suffix<'a>(member: &NamedSource<'a>) -> Option<&'a str> {
    let annotations = member.metadata.annotations.as_ref()?;
    annotations.get(annotation::MC_NAME_SUFFIX).map(String::as_str)
}

/// Oldest first, then by name.
fn age_order(member: &NamedSource<'_>) -> (Option<Time>, Option<String>) {
    (member.metadata.creation_timestamp.clone(), member.metadata.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const FAMILY: ConfigNaming = ConfigNaming {
        kind: "ContainerRuntimeConfig",
        infix: "containerruntime",
        limit_message: "ten",
    };

    fn pool(name: &str) -> MachineConfigPool {
        serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfigPool",
            "metadata": {"name": name, "labels": {"all": "", name: ""}},
            "spec": {},
        }))
        .unwrap()
    }

    /// Objects as (name, day of creation, selected label, number).
    fn assign(objects: &[(&str, u32, &str, Option<&str>)]) -> Vec<String> {
        let metadata = |(name, day, _, suffix): &(&str, u32, &str, Option<&str>)| {
            let annotations: Option<Value> =
                suffix.map(|suffix| json!({annotation::MC_NAME_SUFFIX: suffix}));
            let meta: ObjectMeta = serde_json::from_value(json!({
                "name": name,
                "creationTimestamp": format!("2026-01-{day:02}T00:00:00Z"),
                "annotations": annotations,
            }))
            .unwrap();
            meta
        };
        let metadata: Vec<ObjectMeta> = objects.iter().map(metadata).collect();
        let selectors: Vec<LabelSelector> = objects
            .iter()
            .map(|(_, _, label, _)| {
                serde_json::from_value(json!({"matchLabels": {*label: ""}})).unwrap()
            })
            .collect();
        let members: Vec<NamedSource<'_>> = metadata
            .iter()
            .zip(&selectors)
            .map(|(metadata, selector)| NamedSource { metadata, selector: Some(selector) })
            .collect();
        let pools = [pool("master"), pool("worker")];
        let pools: Vec<&MachineConfigPool> = pools.iter().collect();
        let names = FAMILY.assign(&members, &pools, |_| true);
        let text = |names: &Result<AssignedNames, GenerateError>| match names {
            Ok(names) => names.by_pool.values().cloned().collect::<Vec<_>>().join(" "),
            Err(error) => error.message.clone(),
        };
        names.iter().map(text).collect()
    }

    #[test]
    fn the_role_is_read_from_a_name() {
        for (name, expected) in [
            ("99-worker-generated-containerruntime", Some("worker")),
            ("99-worker-generated-containerruntime-3", Some("worker")),
            ("99-a-generated-b-generated-containerruntime", Some("a-generated-b")),
            ("99-worker-generated-kubelet", None),
            ("99-worker-1234-containerruntime", None),
            ("50-worker-generated-containerruntime", None),
        ] {
            assert_eq!(FAMILY.role_of(name), expected, "{name}");
            assert_eq!(FAMILY.is_name(name), expected.is_some(), "{name}");
        }
    }

    #[test]
    fn each_object_gets_a_higher_number_than_older_ones() {
        let name = |suffix: &str| format!("99-worker-generated-containerruntime{suffix}");
        assert_eq!(assign(&[("a", 1, "worker", None)]), [name("")]);
        // Independent of the input order.
        let two = [("b", 2, "worker", None), ("a", 1, "worker", None)];
        assert_eq!(assign(&two), [name("-1"), name("")]);
        // A number is kept, and not reused while a higher one exists.
        let kept = [("a", 1, "worker", Some("3")), ("b", 9, "worker", None)];
        assert_eq!(assign(&kept), [name("-3"), name("-4")]);
        // Other pools do not count.
        let apart = [("a", 1, "master", None), ("b", 2, "worker", None)];
        assert_eq!(assign(&apart)[1], name(""));
    }

    #[test]
    fn one_number_is_used_for_all_pools_and_never_collides() {
        let names = assign(&[("a", 1, "worker", None), ("b", 2, "all", None)]);
        assert_eq!(names[0], "99-worker-generated-containerruntime");
        assert_eq!(
            names[1],
            "99-master-generated-containerruntime-1 99-worker-generated-containerruntime-1"
        );
    }

    #[test]
    fn an_eleventh_object_and_one_without_pools_are_errors() {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"];
        let objects: Vec<_> =
            names.iter().zip(1..).map(|(name, day)| (*name, day, "worker", None)).collect();
        let found = assign(&objects);
        assert_eq!(found[9], "99-worker-generated-containerruntime-9");
        assert_eq!(found[10], "ten");
        let none = assign(&[("a", 1, "infra", None)]);
        assert_eq!(
            none[0],
            "could not find any MachineConfigPool set for ContainerRuntimeConfig a"
        );
    }
}
