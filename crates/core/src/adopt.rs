//! Checks whether a cluster can be adopted without any effect on its machines: every pool must
//! render to the config name that it already has. Called by `machinist adopt`.

use kube::ResourceExt as _;
use serde::Serialize;

use crate::api::{ControllerConfig, MachineConfig, MachineConfigPool};
use crate::diff::{self, ConfigDiff};
use crate::render::provenance::{ProvenanceItem, ProvenanceKind, provenance};
use crate::render::{ImageSources, RenderError, RenderedPool, render};

/// The result of the check for one pool.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdoptionVerdict {
    /// The pool.
    pub pool: String,
    /// The rendered config that the pool has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
    /// What adopting it would do.
    #[serde(flatten)]
    pub outcome: AdoptionOutcome,
}

/// What adopting a pool would do.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "outcome")]
pub enum AdoptionOutcome {
    /// Nothing: the name is the same.
    Same,
    /// Nothing: it has no rendered config and no MachineConfigs.
    Empty,
    /// The name differs: its machines would be updated.
    Other {
        /// The new name.
        rendered: String,
        /// The differences, as far as they are known.
        differences: Vec<AdoptionDifference>,
    },
    /// The pool cannot be rendered: it would keep its config and become degraded.
    Unrenderable {
        /// The reason.
        problem: String,
    },
}

/// One difference between the current and the new config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdoptionDifference {
    /// What differs, for example `file /etc/chrony.conf`.
    pub what: String,
    /// The MachineConfigs that define it; the last one wins. Empty if that MachineConfig was
    /// deleted.
    pub sources: Vec<String>,
}

impl AdoptionVerdict {
    /// Whether no machine is affected.
    #[must_use]
    pub fn is_safe(&self) -> bool {
        matches!(self.outcome, AdoptionOutcome::Same | AdoptionOutcome::Empty)
    }
}

/// Checks all pools, in the order of their names.
#[must_use]
pub fn check<'a>(
    pools: &'a [MachineConfigPool],
    machine_configs: &[MachineConfig],
    system: impl Into<ImageSources<'a>>,
) -> Vec<AdoptionVerdict> {
    let system = system.into().with_worker_pool(pools);
    let mut verdicts: Vec<AdoptionVerdict> = pools
        .iter()
        .map(|pool| AdoptionVerdict {
            pool: pool.name_any(),
            now: target(pool).map(str::to_owned),
            outcome: outcome(pool, machine_configs, system),
        })
        .collect();
    verdicts.sort_by(|a, b| a.pool.cmp(&b.pool));
    verdicts
}

fn target(pool: &MachineConfigPool) -> Option<&str> {
    let name = pool.spec.configuration.as_ref()?.name.as_deref()?;
    (!name.is_empty()).then_some(name)
}

fn outcome(
    pool: &MachineConfigPool,
    machine_configs: &[MachineConfig],
    system: ImageSources<'_>,
) -> AdoptionOutcome {
    let now = target(pool);
    let rendered = match render(pool, machine_configs, system) {
        Ok(rendered) => rendered,
        Err(RenderError::NothingSelected { .. }) if now.is_none() => return AdoptionOutcome::Empty,
        Err(error) => return AdoptionOutcome::Unrenderable { problem: error.to_string() },
    };
    if now == Some(rendered.name.as_str()) {
        return AdoptionOutcome::Same;
    }
    let old = machine_configs.iter().find(|one| now == Some(one.name_any().as_str()));
    let differences = old.map(|old| differences(old, &rendered, pool, system.controller_config));
    AdoptionOutcome::Other { rendered: rendered.name, differences: differences.unwrap_or_default() }
}

fn differences(
    old: &MachineConfig,
    rendered: &RenderedPool<'_>,
    pool: &MachineConfigPool,
    controller_config: Option<&ControllerConfig>,
) -> Vec<AdoptionDifference> {
    let cc_name = controller_config.map(kube::ResourceExt::name_any);
    let items = provenance(rendered, cc_name.as_deref());
    let Ok(new) = rendered.clone().into_object(pool, controller_config, "") else {
        return Vec::new();
    };
    let Some(change) = diff::parse_both(old, &new) else { return Vec::new() };
    named(&diff::diff(old, &new, &change), &items)
}

/// The entries of a diff, each with the MachineConfigs that define it.
fn named(diff: &ConfigDiff, items: &[ProvenanceItem]) -> Vec<AdoptionDifference> {
    let sources = |kind: ProvenanceKind, name: &str| {
        let item = items.iter().find(|item| item.kind == kind && item.name == name);
        let contributions = item.into_iter().flat_map(|item| &item.contributions);
        contributions.map(|contribution| contribution.source.clone()).collect()
    };
    let difference = |kind: ProvenanceKind, name: &str| AdoptionDifference {
        what: format!("{kind} {name}"),
        sources: sources(kind, name),
    };
    let mut all = Vec::new();
    for (kind, changes) in [
        (ProvenanceKind::File, &diff.files),
        (ProvenanceKind::Unit, &diff.units),
        (ProvenanceKind::Dropin, &diff.dropins),
        (ProvenanceKind::User, &diff.users),
    ] {
        all.extend(changes.iter().map(|change| difference(kind, &change.name)));
    }
    if diff.ssh_keys != diff::ListChange::default() && diff.users.is_empty() {
        all.push(difference(ProvenanceKind::User, "core"));
    }
    for (kind, list) in [
        (ProvenanceKind::KernelArgument, &diff.kernel_arguments),
        (ProvenanceKind::Extension, &diff.extensions),
    ] {
        let names = list.added.iter().chain(&list.removed);
        all.extend(names.map(|name| difference(kind, name)));
        if list.reordered {
            all.push(AdoptionDifference {
                what: format!("order of {kind} entries"),
                sources: Vec::new(),
            });
        }
    }
    all.extend(diff.fields.keys().map(|name| difference(ProvenanceKind::Field, name)));
    let sections = diff.other_sections.iter();
    all.extend(sections.map(|name| AdoptionDifference {
        what: format!("section {name} of the Ignition config"),
        sources: Vec::new(),
    }));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pool(name: &str, target: Option<&str>) -> MachineConfigPool {
        let mut spec = json!({"machineConfigSelector": {"matchLabels": {"role": name}}});
        if let Some(target) = target {
            spec["configuration"] = json!({"name": target});
        }
        let object = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": name}, "spec": spec});
        serde_json::from_value(object).unwrap()
    }

    fn config(name: &str, contents: &str) -> MachineConfig {
        let file = json!({"path": "/etc/a", "mode": 420, "contents": {"source": format!("data:,{contents}")}});
        let ignition: Value =
            json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [file]}});
        let object = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": name, "labels": {"role": "worker"}}, "spec": {"config": ignition}});
        serde_json::from_value(object).unwrap()
    }

    /// A pool that another controller manages: its rendered config exists.
    fn taken_over() -> (MachineConfigPool, Vec<MachineConfig>) {
        let source = config("50-a", "one");
        let pool_without = pool("worker", None);
        let sources = [source];
        let rendered = render(&pool_without, &sources, None).unwrap();
        let object = rendered.clone().into_object(&pool_without, None, "other").unwrap();
        (pool("worker", Some(&rendered.name)), [sources.to_vec(), vec![object]].concat())
    }

    #[test]
    fn a_pool_with_the_same_name_is_safe() {
        let (pool, configs) = taken_over();
        let verdicts = check(&[pool], &configs, None);
        assert_eq!(verdicts[0].outcome, AdoptionOutcome::Same);
        assert!(verdicts[0].is_safe());
    }

    #[test]
    fn an_altered_source_is_named_with_the_file() {
        let (pool, mut configs) = taken_over();
        configs[0] = config("50-a", "two");
        let verdict = check(&[pool], &configs, None).remove(0);
        assert!(!verdict.is_safe());
        let AdoptionOutcome::Other { differences, .. } = verdict.outcome else {
            panic!("{verdict:?}")
        };
        let expected =
            AdoptionDifference { what: "file /etc/a".into(), sources: vec!["50-a".into()] };
        assert_eq!(differences, [expected]);
    }

    #[test]
    fn a_deleted_or_invalid_source_is_reported() {
        let (worker, configs) = taken_over();
        let verdict = check(std::slice::from_ref(&worker), &configs[1..], None).remove(0);
        assert!(matches!(verdict.outcome, AdoptionOutcome::Unrenderable { .. }), "{verdict:?}");
        let bad = serde_json::from_value(
            json!({"metadata": {"name": "60-bad", "labels": {"role": "worker"}},
            "spec": {"config": {"ignition": {"version": "9.9.9"}}}}),
        );
        let configs = [configs, vec![bad.unwrap()]].concat();
        let verdict = check(&[worker], &configs, None).remove(0);
        let AdoptionOutcome::Unrenderable { problem } = verdict.outcome else {
            panic!("{verdict:?}")
        };
        assert!(problem.contains("60-bad"), "{problem}");
        assert_eq!(check(&[pool("empty", None)], &[], None)[0].outcome, AdoptionOutcome::Empty);
    }
}
