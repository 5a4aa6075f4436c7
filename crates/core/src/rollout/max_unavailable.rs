//! How many machines of a pool may be unavailable at once.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::api::MachineConfigPool;
use crate::api::names::object::POOL_ARBITER;

/// `spec.maxUnavailable` is neither a number nor a percentage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "MachineConfigPool {pool}: maxUnavailable: invalid value for IntOrString: {problem} (write a whole number, or a percentage as \"10%\")"
)]
pub struct MaxUnavailableError {
    /// The pool.
    pub pool: String,
    /// What is wrong.
    pub problem: String,
}

/// How many of `machines` may be unavailable: 1 by default. A percentage is rounded down, and 0
/// becomes 1. A negative number allows none, as in MCO.
pub fn max_unavailable(
    pool: &MachineConfigPool,
    machines: usize,
) -> Result<i64, MaxUnavailableError> {
    let name = pool.metadata.name.clone().unwrap_or_default();
    if name == POOL_ARBITER {
        return Ok(1);
    }
    let value = match &pool.spec.max_unavailable {
        None => 1,
        Some(IntOrString::Int(number)) => i64::from(*number),
        Some(IntOrString::String(text)) => {
            let percent = percent(text)
                .map_err(|problem| MaxUnavailableError { pool: name.clone(), problem })?;
            let machines = i64::try_from(machines).unwrap_or(i64::MAX);
            percent.saturating_mul(machines).div_euclid(100)
        }
    };
    Ok(if value == 0 { 1 } else { value })
}

fn percent(text: &str) -> Result<i64, String> {
    let Some(digits) = text.strip_suffix('%') else {
        return Err("invalid type: string is not a percentage".to_owned());
    };
    digits.parse().map_err(|_| format!("invalid value {text:?}: not a whole number before the %"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_and_percentages_of_four_machines() {
        for (value, expected) in [
            (json!(null), Some(1)),
            (json!(2), Some(2)),
            (json!(0), Some(1)),
            (json!("50%"), Some(2)),
            (json!("60%"), Some(2)),
            (json!("200%"), Some(8)),
            (json!("0%"), Some(1)),
            (json!(-1), Some(-1)),
            (json!("50 percent"), None),
            (json!("60"), None),
            (json!("40 %"), None),
        ] {
            let spec = json!({"maxUnavailable": value});
            let pool: MachineConfigPool = serde_json::from_value(json!({
                "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
                "metadata": {"name": "worker"}, "spec": spec
            }))
            .unwrap();
            assert_eq!(max_unavailable(&pool, 4).ok(), expected, "{value}");
        }
    }
}
