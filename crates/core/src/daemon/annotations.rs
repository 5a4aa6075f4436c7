//! What the daemon writes to its Node. Only changes are written; `None` removes an annotation.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::identity_claim::IdentityClaim;
use crate::api::names::annotation::{self, machinist};
use crate::api::names::{DRAIN_PREFIX, UNCORDON_PREFIX, state};
use crate::node::{DriftedPath, MAX_REASON_CHARS, NodeView, format_drifted};
use crate::os::abilities::HostAbilities;

/// Annotations to write; `None` removes one.
pub type NodeAnnotationPatch = BTreeMap<String, Option<String>>;

fn patch_of<const N: usize>(pairs: [(&str, Option<&str>); N]) -> NodeAnnotationPatch {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.map(str::to_owned))).collect()
}

/// The annotations that the Node does not have yet.
#[must_use]
pub fn changed_only(node: &Node, wanted: NodeAnnotationPatch) -> NodeAnnotationPatch {
    let view = NodeView(node);
    wanted.into_iter().filter(|(key, value)| view.annotation(key) != value.as_deref()).collect()
}

/// A merge patch that writes them.
#[must_use]
pub fn merge_patch(annotations: &NodeAnnotationPatch) -> Value {
    json!({"metadata": {"annotations": annotations}})
}

/// The annotations of a Node that does not name its current config: those of the first boot, otherwise the
/// config on disk, otherwise that there is none.
#[must_use]
pub fn initial_annotations(
    first_boot: Option<&BTreeMap<String, String>>,
    disk: Option<&str>,
    empty: &str,
) -> NodeAnnotationPatch {
    match (first_boot, disk) {
        (Some(given), _) => {
            given.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect()
        }
        // The Node was lost. The controller assigns another config to a machine that is done with the one it has.
        (None, Some(disk)) => patch_of([
            (annotation::CURRENT_CONFIG, Some(disk)),
            (annotation::DESIRED_CONFIG, Some(disk)),
        ]),
        (None, None) => patch_of([
            (annotation::CURRENT_CONFIG, Some(empty)),
            (annotation::DESIRED_CONFIG, Some(empty)),
            (annotation::STATE, Some(state::DONE)),
        ]),
    }
}

/// The machine has another current config than its Node claimed.
#[must_use]
pub fn current_config(on_disk: &str) -> NodeAnnotationPatch {
    patch_of([(annotation::CURRENT_CONFIG, Some(on_disk))])
}

/// This machine acts under its identity, and no other one.
#[must_use]
pub fn identity_claim(claim: &IdentityClaim) -> NodeAnnotationPatch {
    patch_of([(machinist::IDENTITY_CLAIM, Some(&claim.to_string()))])
}

/// The machine works on a change. A degraded machine stays degraded until it is done, so that its state
/// does not flap.
#[must_use]
pub fn working(node: &Node) -> NodeAnnotationPatch {
    if NodeView(node).is_degraded() {
        return NodeAnnotationPatch::new();
    }
    patch_of([(annotation::STATE, Some(state::WORKING))])
}

/// The machine has the config, and the layered image if there is one.
#[must_use]
pub fn done(config: &str, image: Option<&str>) -> NodeAnnotationPatch {
    let done = patch_of([
        (annotation::CURRENT_IMAGE, image),
        (annotation::CURRENT_CONFIG, Some(config)),
        (annotation::STATE, Some(state::DONE)),
        (annotation::REASON, Some("")),
        (machinist::REBOOT_PENDING, None),
        (machinist::REBOOT_APPROVED, None),
        (machinist::FAILED_CONFIG, None),
        (machinist::DRIFTED, None),
        (machinist::HEAL, None),
    ]);
    let none = image.is_none().then(|| (annotation::DESIRED_IMAGE.to_owned(), None));
    done.into_iter().chain(none).collect()
}

/// The machine has the config, but an earlier change left something wrong that the config does not touch.
#[must_use]
pub fn done_but_degraded(config: &str, image: Option<&str>, reason: &str) -> NodeAnnotationPatch {
    let failed = failed(state::DEGRADED, reason, config, &[]);
    done(config, image).into_iter().chain(failed).collect()
}

/// The machine cannot go on, whatever config it should have.
#[must_use]
pub fn stalled(reason: &str) -> NodeAnnotationPatch {
    patch_of([(annotation::STATE, Some(state::DEGRADED)), (annotation::REASON, Some(reason))])
}

/// The machine failed while `desired` was its desired config. `drifted` are the paths that others have changed.
#[must_use]
pub fn failed(
    state: &str,
    reason: &str,
    desired: &str,
    drifted: &[DriftedPath],
) -> NodeAnnotationPatch {
    let reason: String = reason.chars().take(MAX_REASON_CHARS).collect();
    patch_of([
        (annotation::STATE, Some(state)),
        (annotation::REASON, Some(&reason)),
        (machinist::FAILED_CONFIG, Some(desired)),
        (machinist::DRIFTED, format_drifted(drifted).as_deref()),
    ])
}

/// The request to heal the machine is answered.
#[must_use]
pub fn clear_heal() -> NodeAnnotationPatch {
    patch_of([(machinist::HEAL, None)])
}

/// A reboot that the machine cannot do is not asked for any more.
#[must_use]
pub fn clear_reboot_request() -> NodeAnnotationPatch {
    patch_of([(machinist::REBOOT_REQUESTED, None)])
}

/// The machine asks to be drained.
#[must_use]
pub fn request_drain(config: &str) -> NodeAnnotationPatch {
    patch_of([(annotation::DESIRED_DRAIN, Some(&format!("{DRAIN_PREFIX}{config}")))])
}

/// The machine asks to be uncordoned.
#[must_use]
pub fn request_uncordon(config: &str) -> NodeAnnotationPatch {
    patch_of([(annotation::DESIRED_DRAIN, Some(&format!("{UNCORDON_PREFIX}{config}")))])
}

/// Whether the machine was uncordoned with this config.
#[must_use]
pub fn is_uncordoned(node: &Node, config: &str) -> bool {
    let applied = NodeView(node).annotation(annotation::LAST_APPLIED_DRAIN).unwrap_or_default();
    applied.strip_prefix(UNCORDON_PREFIX) == Some(config)
}

/// Whether the machine has requested a drain that is not complete.
#[must_use]
pub fn is_draining(view: NodeView<'_>) -> bool {
    let desired = view.annotation(annotation::DESIRED_DRAIN).unwrap_or_default();
    desired.starts_with(DRAIN_PREFIX)
        && view.annotation(annotation::LAST_APPLIED_DRAIN) != Some(desired)
}

/// Whether a change needs no drain request: the machine is already drained for this config, or is never
/// drained.
#[must_use]
pub fn needs_no_drain(node: &Node, config: &str) -> bool {
    let view = NodeView(node);
    super::next_step::is_drained_for(view, config) || !super::next_step::supports_drain(view)
}

/// Whether machines like this one are ever drained.
#[must_use]
pub fn supports_drain(node: &Node) -> bool {
    super::next_step::supports_drain(NodeView(node))
}

/// Whether a reboot of the machine needs an approval.
#[must_use]
pub fn defers_reboot(node: &Node) -> bool {
    NodeView(node).annotation(machinist::REBOOT) == Some("deferred")
}

/// The machine needs a reboot for a config, and waits for the approval.
#[must_use]
pub fn reboot_pending(config: &str) -> NodeAnnotationPatch {
    patch_of([(machinist::REBOOT_PENDING, Some(config))])
}

/// What the host of the machine can do.
#[must_use]
pub fn host(abilities: &HostAbilities) -> NodeAnnotationPatch {
    patch_of([(machinist::HOST, Some(&abilities.to_report()))])
}

/// The machine was started to be observed only.
#[must_use]
pub fn observe_only() -> NodeAnnotationPatch {
    patch_of([(machinist::MODE, Some("observe"))])
}

/// What the pool's config would change on a machine that is observed.
#[must_use]
pub fn observation(text: &str) -> NodeAnnotationPatch {
    patch_of([(machinist::OBSERVATION, Some(text))])
}

/// The request to retry a config was accepted.
#[must_use]
pub fn clear_retry() -> NodeAnnotationPatch {
    patch_of([(machinist::RETRY, None)])
}

/// The machine is about to reboot, or has rebooted.
#[must_use]
pub fn rebooting(is: bool) -> NodeAnnotationPatch {
    let value = if is { state::REBOOTING } else { "" };
    patch_of([(annotation::POST_CONFIG_ACTION, Some(value))])
}

/// Why the staged OS was not deployed at the last reboot; empty if it was.
#[must_use]
pub fn finalize_failure(failure: Option<&str>) -> NodeAnnotationPatch {
    let failure: String = failure.unwrap_or_default().chars().take(MAX_REASON_CHARS).collect();
    patch_of([(annotation::OSTREE_FINALIZE_STAGED_FAILURE, Some(&failure))])
}

/// The annotations that others write. When one of them changes, a failed attempt is retried immediately.
#[must_use]
pub fn external_inputs(node: &Node) -> Vec<Option<String>> {
    let keys = [
        annotation::DESIRED_CONFIG,
        annotation::DESIRED_IMAGE,
        annotation::LAST_APPLIED_DRAIN,
        machinist::REBOOT,
        machinist::REBOOT_APPROVED,
        machinist::RETRY,
        machinist::DRIFT,
        machinist::DRIFT_CONFLICT,
        machinist::IDENTITY_CLAIM,
        machinist::HOLD,
        machinist::HEAL,
        machinist::REBOOT_REQUESTED,
        machinist::MODE,
        machinist::OBSERVED_CONFIG,
    ];
    keys.into_iter().map(|key| NodeView(node).annotation(key).map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(annotations: &Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n", "annotations": annotations}}))
            .unwrap()
    }

    #[test]
    fn only_differences_are_written() {
        let seen = node(&json!({annotation::CURRENT_CONFIG: "b", annotation::STATE: "Working"}));
        let patch = merge_patch(&changed_only(&seen, done("b", None)));
        let expected = json!({annotation::STATE: "Done", annotation::REASON: ""});
        assert_eq!(patch["metadata"]["annotations"], expected);
        let layered = node(&json!({annotation::CURRENT_IMAGE: "i", annotation::DESIRED_IMAGE: ""}));
        let left = changed_only(&layered, done("b", None));
        assert_eq!(
            (&left[annotation::CURRENT_IMAGE], &left[annotation::DESIRED_IMAGE]),
            (&None, &None)
        );
        let waiting = node(&json!({machinist::REBOOT_PENDING: "b"}));
        assert_eq!(changed_only(&waiting, done("b", None))[machinist::REBOOT_PENDING], None);
    }

    #[test]
    fn a_machine_with_a_quarantined_path_has_its_config_and_is_degraded() {
        let patch = done_but_degraded("b", None, "why");
        let text = |key: &str| patch[key].as_deref();
        assert_eq!(text(annotation::CURRENT_CONFIG), Some("b"));
        assert_eq!(
            (text(annotation::STATE), text(annotation::REASON)),
            (Some("Degraded"), Some("why"))
        );
    }

    #[test]
    fn the_first_annotations_of_a_machine() {
        let given = BTreeMap::from([(annotation::CURRENT_CONFIG.to_owned(), "x".to_owned())]);
        let keys = |annotations: NodeAnnotationPatch| annotations.into_keys().count();
        let some = |text: &str| Some(text.to_owned());
        let found = initial_annotations(Some(&given), Some("disk"), "empty");
        assert_eq!(found[annotation::CURRENT_CONFIG], some("x"));
        let found = initial_annotations(None, Some("disk"), "empty");
        assert_eq!(found[annotation::CURRENT_CONFIG], some("disk"));
        assert_eq!(found[annotation::DESIRED_CONFIG], some("disk"));
        assert_eq!(keys(found), 2);
        let found = initial_annotations(None, None, "empty");
        assert_eq!(found[annotation::DESIRED_CONFIG], some("empty"));
    }

    #[test]
    fn a_degraded_machine_stays_degraded_until_it_is_done() {
        for state in ["Degraded", "Unreconcilable"] {
            assert!(working(&node(&json!({annotation::STATE: state}))).is_empty());
        }
        assert_eq!(working(&node(&json!({annotation::STATE: "Done"}))).len(), 1);
        let long = failed("Degraded", &"ä".repeat(3000), "b", &[]);
        assert_eq!(long[annotation::REASON].as_ref().unwrap().chars().count(), 2000);
    }

    #[test]
    fn annotations_of_the_daemon_are_no_reason_to_retry() {
        let before = node(&json!({annotation::DESIRED_CONFIG: "b"}));
        let own = node(&json!({annotation::DESIRED_CONFIG: "b", annotation::STATE: "Degraded"}));
        let approved =
            node(&json!({annotation::DESIRED_CONFIG: "b", machinist::REBOOT_APPROVED: "b"}));
        assert_eq!(external_inputs(&before), external_inputs(&own));
        assert_ne!(external_inputs(&before), external_inputs(&approved));
    }
}
