//! Which config a machine has whose `currentconfig` is empty or damaged. Nothing else on the disk names it, so the daemon
//! tries the likeliest configs in turn and takes the first that the disk matches. Called by `daemon/agent/rebuild_config`
//! in the shell, which reads the configs and compares them with the disk.

use k8s_openapi::api::core::v1::Node;

use super::PendingChange;
use crate::api::MachineConfig;
use crate::node::NodeView;

/// A config that the machine may have.
#[derive(Debug, Clone, PartialEq)]
pub enum CandidateConfig {
    /// A config that is at hand.
    Known(Box<MachineConfig>),
    /// One that the API server has.
    Named(String),
}

impl CandidateConfig {
    /// The name of the config.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Known(config) => config.metadata.name.as_deref().unwrap_or_default(),
            Self::Named(name) => name,
        }
    }
}

/// The configs that the machine may have, the likeliest first: what an incomplete change leads to or came from, then what
/// the Node says. `empty` is the config of a machine that has none, which no API server has.
#[must_use]
pub fn candidate_configs(
    node: &Node,
    pending: Option<&PendingChange>,
    empty: &MachineConfig,
) -> Vec<CandidateConfig> {
    let named = |name: &str| match empty.metadata.name.as_deref() == Some(name) {
        true => CandidateConfig::Known(Box::new(empty.clone())),
        false => CandidateConfig::Named(name.to_owned()),
    };
    let mut candidates = Vec::new();
    if let Some(pending) = pending {
        candidates.push(named(&pending.config));
        candidates.push(CandidateConfig::Known(Box::new(pending.previous.clone())));
    }
    let node = NodeView(node);
    candidates.extend([node.current_config(), node.desired_config()].map(named));
    let mut names: Vec<String> = Vec::new();
    candidates.retain(|candidate| {
        let name = candidate.name().to_owned();
        let is_new = !name.is_empty() && !names.contains(&name);
        names.push(name);
        is_new
    });
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::annotation;
    use crate::apply::{EMPTY_CONFIG_NAME, empty_config};
    use serde_json::json;

    fn names(current: &str, desired: &str, pending: Option<&PendingChange>) -> Vec<String> {
        let annotations =
            json!({annotation::CURRENT_CONFIG: current, annotation::DESIRED_CONFIG: desired});
        let node = serde_json::from_value(json!({"metadata": {"annotations": annotations}}));
        let candidates = candidate_configs(&node.unwrap(), pending, &empty_config());
        candidates.iter().map(|candidate| candidate.name().to_owned()).collect()
    }

    #[test]
    fn an_incomplete_change_is_likelier_than_what_the_node_says() {
        let config = |name: &str| {
            let mut config = empty_config();
            config.metadata.name = Some(name.to_owned());
            config
        };
        let pending = PendingChange::new(&config("a"), &config("b"), Vec::new(), "boot", None);
        assert_eq!(names("a", "b", Some(&pending)), ["b", "a"]);
        assert_eq!(names("x", "y", Some(&pending)), ["b", "a", "x", "y"]);
        assert_eq!(names("a", "b", None), ["a", "b"]);
        assert_eq!(names("a", "a", None), ["a"]);
        assert_eq!(names("", "", None), [""; 0]);
    }

    #[test]
    fn the_empty_config_needs_no_api_server() {
        let annotations = json!({annotation::CURRENT_CONFIG: EMPTY_CONFIG_NAME});
        let node = serde_json::from_value(json!({"metadata": {"annotations": annotations}}));
        let candidates = candidate_configs(&node.unwrap(), None, &empty_config());
        assert_eq!(candidates, [CandidateConfig::Known(Box::new(empty_config()))]);
    }
}
