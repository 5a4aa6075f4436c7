//! Whether a machine is changed, or only compared with its pool's config. An administrator says so on
//! the pool, on a Node, or when the daemon is started; the Node comes before the pool.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::NodeView;
use crate::api::names::annotation::machinist::{MODE, OBSERVED_CONFIG};

/// Whether a machine is changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum MachineMode {
    /// It gets its pool's config.
    #[default]
    Enforce,
    /// It reports what its pool's config would change, and nothing is written to it.
    Observe,
}

/// The text is not a mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not a mode: write observe or enforce")]
pub struct MachineModeError {
    /// The text.
    pub value: String,
}

impl FromStr for MachineMode {
    type Err = MachineModeError;

    fn from_str(text: &str) -> Result<Self, MachineModeError> {
        match text {
            "enforce" => Ok(Self::Enforce),
            "observe" => Ok(Self::Observe),
            other => Err(MachineModeError { value: other.to_owned() }),
        }
    }
}

impl fmt::Display for MachineMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Enforce => "enforce",
            Self::Observe => "observe",
        })
    }
}

impl MachineMode {
    /// The mode of a machine of a pool. A mode that cannot be parsed is the one that does no harm.
    #[must_use]
    pub fn of_machine(node: NodeView<'_>, pool: Self) -> Self {
        match node.annotation(MODE) {
            None => pool,
            Some(text) => text.parse().unwrap_or(Self::Observe),
        }
    }

    /// The mode as the daemon of a machine sees it, which does not see the pool: the controller names
    /// the config to compare with if the pool is observed.
    #[must_use]
    pub fn for_daemon(node: NodeView<'_>, otherwise: Self) -> Self {
        let pool = match node.annotation(OBSERVED_CONFIG) {
            Some(_) => Self::Observe,
            None => otherwise,
        };
        Self::of_machine(node, pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;
    use serde_json::{Value, json};

    #[test]
    fn the_node_comes_before_the_pool_and_an_unknown_mode_does_no_harm() {
        use MachineMode::{Enforce, Observe};
        for (annotations, pool, of_machine, for_daemon) in [
            (json!({}), Enforce, Enforce, Enforce),
            (json!({}), Observe, Observe, Observe),
            (json!({MODE: "enforce"}), Observe, Enforce, Enforce),
            (json!({MODE: "observe"}), Enforce, Observe, Observe),
            (json!({MODE: "Enforce"}), Enforce, Observe, Observe),
            (json!({OBSERVED_CONFIG: "c"}), Enforce, Enforce, Observe),
            (json!({OBSERVED_CONFIG: "c", MODE: "enforce"}), Enforce, Enforce, Enforce),
        ] {
            let annotations: Value = annotations;
            let node: Node =
                serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap();
            let view = NodeView(&node);
            assert_eq!(MachineMode::of_machine(view, pool), of_machine, "{annotations}");
            assert_eq!(MachineMode::for_daemon(view, pool), for_daemon, "{annotations}");
        }
    }

    #[test]
    fn a_mode_is_written_as_it_is_read() {
        for mode in [MachineMode::Enforce, MachineMode::Observe] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        let error = "later".parse::<MachineMode>().unwrap_err().to_string();
        assert_eq!(error, "\"later\" is not a mode: write observe or enforce");
    }
}
