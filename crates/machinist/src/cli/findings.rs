//! The findings about objects before they are sent or planned: the same as those of `machinist validate`. Called by
//! `apply` and `plan`.

use anyhow::{Result, bail};
use machinist_core::api::names::object::RENDERED_PREFIX;
use machinist_core::api::{MachineConfig, MachineConfigPool};
use machinist_core::lint::{self, LintFinding};
use machinist_core::plan::unselected_message;
use serde_json::Value;

use super::output;

/// The warnings about an object.
///
/// # Errors
/// The object has an error: what would take it refuses it.
pub(super) fn check(object: &Value) -> Result<Vec<LintFinding>> {
    let (errors, warnings): (Vec<LintFinding>, Vec<LintFinding>) =
        lint::object(object).into_iter().partition(LintFinding::is_error);
    if errors.is_empty() {
        return Ok(warnings);
    }
    bail!("{}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
}

/// Prints the warnings about an object.
///
/// # Errors
/// The object has an error.
pub(super) fn check_and_print(name: &str, object: &Value) -> Result<()> {
    for warning in check(object)? {
        output::print_warning(&format!("{name}: {warning}"));
    }
    Ok(())
}

/// Prints which of the MachineConfigs no pool selects.
pub(super) fn print_unselected(configs: &[MachineConfig], pools: &[MachineConfigPool]) {
    let pools: Vec<&MachineConfigPool> = pools.iter().collect();
    for config in configs {
        let name = config.metadata.name.as_deref().unwrap_or_default();
        if name.starts_with(RENDERED_PREFIX) {
            continue;
        }
        if let Some(problem) = unselected_message(config, &pools) {
            output::print_warning(&format!("MachineConfig {name}: {problem}"));
        }
    }
}
