//! Which machines of a pool would refuse its config because it is not for their hosts. The controller and the commands
//! that repeat its decision leave these machines out of a rollout; a machine reports its host itself, so a wrong report
//! keeps only that machine from its config.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;

use crate::api::MachineConfig;
use crate::api::names::annotation::machinist;
use crate::apply::empty_config;
use crate::node::NodeView;
use crate::os::abilities::HostAbilities;

/// The machines that would refuse the config `target`, and why. `find` returns the configs that they have.
#[must_use]
pub fn host_refusals<'a>(
    nodes: &[&Node],
    target: Option<&MachineConfig>,
    find: impl Fn(&str) -> Option<&'a MachineConfig>,
) -> BTreeMap<String, String> {
    let Some(target) = target else { return BTreeMap::new() };
    let nothing = empty_config();
    // Most machines of a pool have the same host and the same config.
    let mut known: BTreeMap<(&str, &str), Option<String>> = BTreeMap::new();
    let mut refused = BTreeMap::new();
    for node in nodes {
        let view = NodeView(node);
        let Some(report) = view.annotation(machinist::HOST) else { continue };
        let reason = known.entry((report, view.current_config())).or_insert_with(|| {
            let host = HostAbilities::parse(report)?;
            // Without the old config, everything in the new one counts as new.
            let old = find(view.current_config()).unwrap_or(&nothing);
            host.profile_refusal(old, target)
        });
        if let Some(reason) = reason {
            refused.insert(view.name().to_owned(), reason.clone());
        }
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::MachineConfigPool;
    use crate::api::names::annotation::{CURRENT_CONFIG, DESIRED_CONFIG, STATE};
    use crate::rollout::{RolloutPolicy, WaitReason, decide_rollout, rollout_blocks};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    fn node(name: &str, installer: &str) -> Node {
        let host = json!({"images": "plain", "installer": installer}).to_string();
        serde_json::from_value(json!({
            "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {
                CURRENT_CONFIG: "a", DESIRED_CONFIG: "a", STATE: "Done", machinist::HOST: host}},
            "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap()
    }

    #[test]
    fn a_machine_that_would_refuse_the_config_does_not_get_it_and_holds_nobody_back() {
        let config: MachineConfig = serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": "b", "annotations": {machinist::PROFILE: "kubernetes"}}, "spec": {},
        }))
        .unwrap();
        let nodes = [node("n1", "kubeadm"), node("n2", "machinist"), node("n3", "gke")];
        let nodes: Vec<&Node> = nodes.iter().collect();
        let refused = host_refusals(&nodes, Some(&config), |_| None);
        assert_eq!(refused.keys().collect::<Vec<_>>(), ["n1", "n3"]);
        assert!(host_refusals(&nodes, None, |_| None).is_empty());
        let pool: MachineConfigPool = serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": "worker"}, "spec": {"configuration": {"name": "b"}},
        }))
        .unwrap();
        let policy = RolloutPolicy { refused, ..RolloutPolicy::default() };
        let now = Time("2026-01-01T12:00:00Z".parse().unwrap());
        let decision = decide_rollout(&pool, &nodes, &policy, 1, &now);
        assert_eq!(decision.next, ["n2"]);
        let is_refused =
            |name: &str| matches!(decision.waiting.get(name), Some(WaitReason::Refused { .. }));
        assert!(is_refused("n1") && is_refused("n3"), "{decision:?}");
        let found = rollout_blocks(&nodes, &decision, &BTreeMap::new(), &now);
        assert_eq!(found.blocks[0].reason, "ConfigRefused");
        assert!(found.blocks[0].message.contains("this machine was made by kubeadm"), "{found:?}");
    }
}
