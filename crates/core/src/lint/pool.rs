//! Lints MachineConfigPools.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;

use crate::api::names::annotation::machinist::NODE_NAMES;
use crate::api::names::label;
use crate::api::selector::{is_empty, matches};
use crate::api::{MachineConfigPool, NodeNamePatterns};

use super::LintFinding;
use crate::on_change::OnChangeRules;

/// The findings about a pool by itself.
#[must_use]
pub fn pool(pool: &MachineConfigPool) -> Vec<LintFinding> {
    let mut findings = Vec::new();
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    if name.is_empty() {
        findings.push(LintFinding::error("metadata.name", "is missing", "give the pool a name"));
    }
    let selector = pool.spec.machine_config_selector.as_ref();
    if selector.is_none_or(is_empty) {
        findings.push(LintFinding::error(
            "spec.machineConfigSelector",
            "is empty: a non-empty selector is required",
            format!("select by label, for example {}: {name}", label::ROLE),
        ));
    }
    let names = NodeNamePatterns::of_pool(pool);
    if let Err(error) = &names {
        let field = format!("metadata.annotations: {NODE_NAMES}");
        findings.push(LintFinding::error(field, error.to_string(), ""));
    }
    if names == Ok(None) && pool.spec.node_selector.as_ref().is_none_or(is_empty) {
        findings.push(LintFinding::warning(
            "spec.nodeSelector",
            "is empty: the pool has no machines",
            format!("select by label, for example node-role.kubernetes.io/{name}: \"\""),
        ));
    }
    for (field, selector) in [
        ("spec.machineConfigSelector", selector),
        ("spec.nodeSelector", pool.spec.node_selector.as_ref()),
    ] {
        if let Some(Err(error)) = selector.map(|selector| matches(selector, &BTreeMap::new())) {
            findings.push(LintFinding::error(field, error.to_string(), ""));
        }
    }
    findings.extend(OnChangeRules::of_pool(pool).err().map(|error| super::on_change(&error)));
    findings.extend(max_unavailable(pool.spec.max_unavailable.as_ref()));
    findings
}

fn max_unavailable(value: Option<&IntOrString>) -> Option<LintFinding> {
    let IntOrString::String(text) = value? else { return None };
    let percent = text.strip_suffix('%').and_then(|digits| digits.parse::<i32>().ok());
    if percent.is_some_and(|percent| percent >= 0) {
        return None;
    }
    Some(LintFinding::error(
        "spec.maxUnavailable",
        format!("{text:?} is neither an integer nor a percentage"),
        "use 1, or \"10%\"",
    ))
}
