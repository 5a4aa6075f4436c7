//! Changes of the latency profile. From one extreme to the other the change has to pass through the
//! medium profile, or the control plane would treat slow kubelets as failed.

use serde_json::Value;

use super::base::{KubeletSources, base_configuration, status_update_seconds};
use super::settings_file::settings_of;
use crate::api::MachineConfig;
use crate::api::config::NodeConfig;
use crate::api::names::object;
use crate::generated_config::{GenerateError, SourceRef};

const SLOW: &str = "LowUpdateSlowReaction";
/// The field of kubelet.conf with the interval of status updates.
const FREQUENCY: &str = "nodeStatusUpdateFrequency";
/// In nanoseconds.
const SECOND: i64 = 1_000_000_000;

/// A change that skips the medium profile.
#[derive(Debug, Clone, PartialEq)]
pub struct RefusedLatencyChange {
    /// The Node config with the profile that stays in effect.
    pub in_effect: NodeConfig,
    /// MCO's event message.
    pub message: String,
}

impl RefusedLatencyChange {
    /// The error for the pool's status.
    #[must_use]
    pub fn generate_error(&self) -> GenerateError {
        GenerateError {
            object: SourceRef::new("Node", object::CLUSTER),
            field: "spec.workerLatencyProfile".to_owned(),
            message: self.message.clone(),
            remedy: "set MediumUpdateAverageReaction first, and wait until the pool is updated"
                .to_owned(),
        }
    }
}

/// Whether the requested latency profile is too far from the present one. `present` is the
/// MachineConfig (97) with the profile of the workers.
#[must_use]
pub fn refused_latency_change(
    sources: &KubeletSources<'_>,
    present: Option<&MachineConfig>,
) -> Option<RefusedLatencyChange> {
    let node = sources.node?;
    let present = frequency(&settings_of(present?)?);
    if base_configuration(sources, object::POOL_WORKER)
        .is_ok_and(|wanted| wanted.decoded().is_some_and(|it| frequency(&it) == present))
    {
        return None;
    }
    let is_present =
        |profile: &&str| status_update_seconds(profile).map(|it| it * SECOND) == Some(present);
    let known = ["Default", "MediumUpdateAverageReaction", SLOW];
    let mut in_effect = node.clone();
    in_effect.spec.worker_latency_profile = known.into_iter().find(is_present).map(str::to_owned);
    let message = check_latency_change(&in_effect, node).err()?;
    Some(RefusedLatencyChange { in_effect, message })
}

fn frequency(config: &Value) -> i64 {
    config[FREQUENCY].as_i64().unwrap_or_default()
}

/// Checks a change of the latency profile.
///
/// # Errors
/// The change skips the medium profile. Contains the event message.
pub fn check_latency_change(old: &NodeConfig, new: &NodeConfig) -> Result<(), String> {
    let profile = |node: &NodeConfig| node.spec.worker_latency_profile.clone().unwrap_or_default();
    let (from, to) = (profile(old), profile(new));
    let is_quick = |profile: &str| matches!(profile, "" | "Default");
    if (from == SLOW && is_quick(&to)) || (to == SLOW && is_quick(&from)) {
        let name = new.metadata.name.as_deref().unwrap_or_default();
        return Err(format!(
            "Skipping the Update Node event, name: {name}, transition not allowed from old \
             WorkerLatencyProfile: \"{from}\" to new WorkerLatencyProfile: \"{to}\""
        ));
    }
    Ok(())
}

/// MCO's event message about a Node config that is not named `cluster`.
#[must_use]
pub fn wrong_name_message(name: &str) -> Option<String> {
    (name != object::CLUSTER).then(|| {
        format!(
            "The node.config.openshift.io \"{name}\" is invalid: metadata.name Invalid value: \
             \"{name}\" : must be \"cluster\""
        )
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::kubelet::node_config;
    use crate::template::{TemplateInputs, builtin_templates};

    const MEDIUM: &str = "MediumUpdateAverageReaction";

    fn node(profile: &str) -> NodeConfig {
        let mut node = NodeConfig::new("cluster", crate::api::config::NodeConfigSpec::default());
        node.spec.worker_latency_profile = (!profile.is_empty()).then(|| profile.to_owned());
        node
    }

    #[test]
    fn the_latency_profile_changes_one_step_at_a_time() {
        let facts = json!({"metadata": {"name": "machine-config-controller"}, "spec":
            {"infra": {"status": {"platformStatus": {"type": "None"}}}}});
        let controller_config = serde_json::from_value(facts).unwrap();
        let (templates, gates) =
            (builtin_templates(crate::profile::TemplateProfile::Kubernetes), BTreeMap::new());
        let inputs = TemplateInputs {
            controller_config: &controller_config,
            pull_secret: None,
            api_server: None,
        };
        for (from, to, allowed) in [
            ("", MEDIUM, true),
            ("Default", "", true),
            (MEDIUM, SLOW, true),
            (SLOW, MEDIUM, true),
            (SLOW, SLOW, true),
            ("", SLOW, false),
            ("Default", SLOW, false),
            (SLOW, "Default", false),
            (SLOW, "", false),
        ] {
            let (old, new) = (node(from), node(to));
            assert_eq!(check_latency_change(&old, &new).is_ok(), allowed, "{from} {to}");
            let none = KubeletSources { templates: &templates, inputs, gates: &gates, node: None };
            let before = KubeletSources { node: Some(&old), ..none };
            let made = node_config(&before, "worker", &[]).unwrap().machine_config;
            let wanted = KubeletSources { node: Some(&new), ..none };
            let refused = refused_latency_change(&wanted, Some(&made));
            assert_eq!(refused.is_none(), allowed, "{from} {to}: {refused:?}");
            if let Some(refused) = refused {
                // The profile in effect gives the previous MachineConfig, byte for byte.
                let in_effect = KubeletSources { node: Some(&refused.in_effect), ..none };
                let again = node_config(&in_effect, "worker", &[]).unwrap();
                assert_eq!(again.machine_config, made, "{from} {to}");
                assert!(
                    refused.generate_error().to_string().contains("(set Medium"),
                    "{refused:?}"
                );
            }
            // The first Node config of a cluster is not a change.
            assert_eq!(refused_latency_change(&wanted, None), None);
        }
    }

    #[test]
    fn only_the_node_config_named_cluster_is_valid() {
        assert_eq!(wrong_name_message("cluster"), None);
        assert!(wrong_name_message("mine").unwrap().ends_with("must be \"cluster\""));
    }
}
