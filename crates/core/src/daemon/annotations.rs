//! What the daemon writes on its Node. Only what changes is written; a value of none takes an
//! annotation away.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::api::names::annotation::{self, machinist};
use crate::api::names::state;
use crate::node::NodeView;

/// The most characters of a reason.
const MAX_REASON_CHARS: usize = 2000;

/// Annotations to write; those without a value go.
pub type NodeAnnotationPatch = BTreeMap<String, Option<String>>;

fn patch_of<const N: usize>(pairs: [(&str, Option<&str>); N]) -> NodeAnnotationPatch {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.map(str::to_owned))).collect()
}

/// The part of the annotations that a Node does not have so.
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

/// What a machine says about itself when its Node does not say what it has: what it was given for
/// its first boot, else what is on its disk, else that it has nothing.
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
        // Which config it is to have is the controller's to say.
        (None, Some(disk)) => patch_of([(annotation::CURRENT_CONFIG, Some(disk))]),
        (None, None) => patch_of([
            (annotation::CURRENT_CONFIG, Some(empty)),
            (annotation::DESIRED_CONFIG, Some(empty)),
            (annotation::STATE, Some(state::DONE)),
        ]),
    }
}

/// The machine works on a change. One that is degraded says so until it is done, so that its state
/// does not flap.
#[must_use]
pub fn working(node: &Node) -> NodeAnnotationPatch {
    if NodeView(node).is_degraded() {
        return NodeAnnotationPatch::new();
    }
    patch_of([(annotation::STATE, Some(state::WORKING))])
}

/// The machine has the config, and the image of its pool's own, if there is one.
#[must_use]
pub fn done(config: &str, image: Option<&str>) -> NodeAnnotationPatch {
    let done = patch_of([
        (annotation::CURRENT_IMAGE, image),
        (annotation::CURRENT_CONFIG, Some(config)),
        (annotation::STATE, Some(state::DONE)),
        (annotation::REASON, Some("")),
        (machinist::REBOOT_PENDING, None),
        (machinist::REBOOT_APPROVED, None),
    ]);
    let none = image.is_none().then(|| (annotation::DESIRED_IMAGE.to_owned(), None));
    done.into_iter().chain(none).collect()
}

/// The machine could not change.
#[must_use]
pub fn failed(state: &str, reason: &str) -> NodeAnnotationPatch {
    let reason: String = reason.chars().take(MAX_REASON_CHARS).collect();
    patch_of([(annotation::STATE, Some(state)), (annotation::REASON, Some(&reason))])
}

/// The machine asks to be emptied.
#[must_use]
pub fn request_drain(config: &str) -> NodeAnnotationPatch {
    patch_of([(annotation::DESIRED_DRAIN, Some(&format!("drain-{config}")))])
}

/// The machine asks for work.
#[must_use]
pub fn request_uncordon(config: &str) -> NodeAnnotationPatch {
    patch_of([(annotation::DESIRED_DRAIN, Some(&format!("uncordon-{config}")))])
}

/// Whether the machine has been given work again since it has this config.
#[must_use]
pub fn is_uncordoned(node: &Node, config: &str) -> bool {
    let applied = NodeView(node).annotation(annotation::LAST_APPLIED_DRAIN).unwrap_or_default();
    applied.strip_prefix("uncordon-") == Some(config)
}

/// Whether a change that wants it can do without a request: the machine is empty already for the
/// sake of this config, or is never emptied.
#[must_use]
pub fn needs_no_drain(node: &Node, config: &str) -> bool {
    let view = NodeView(node);
    super::next_step::is_drained_for(view, config) || !super::next_step::supports_drain(view)
}

/// Whether machines like this one are ever emptied.
#[must_use]
pub fn supports_drain(node: &Node) -> bool {
    super::next_step::supports_drain(NodeView(node))
}

/// Whether the machine has to wait with a restart for a permission.
#[must_use]
pub fn defers_reboot(node: &Node) -> bool {
    NodeView(node).annotation(machinist::REBOOT) == Some("deferred")
}

/// The machine needs a restart for a config, and waits for the permission.
#[must_use]
pub fn reboot_pending(config: &str) -> NodeAnnotationPatch {
    patch_of([(machinist::REBOOT_PENDING, Some(config))])
}

/// The wish to try a config once more has been heard.
#[must_use]
pub fn clear_retry() -> NodeAnnotationPatch {
    patch_of([(machinist::RETRY, None)])
}

/// The machine is about to restart, or has restarted.
#[must_use]
pub fn rebooting(is: bool) -> NodeAnnotationPatch {
    let value = if is { state::REBOOTING } else { "" };
    patch_of([(annotation::POST_CONFIG_ACTION, Some(value))])
}

/// Why the operating system that was staged was not put in place at the last restart, if it was not.
#[must_use]
pub fn finalize_failure(failure: Option<&str>) -> NodeAnnotationPatch {
    let failure: String = failure.unwrap_or_default().chars().take(MAX_REASON_CHARS).collect();
    patch_of([(annotation::OSTREE_FINALIZE_STAGED_FAILURE, Some(&failure))])
}

/// What all that somebody else may write about a machine says: a failure is worth another attempt at
/// once when it has changed.
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
    fn only_what_differs_is_written() {
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
    fn what_a_machine_says_first() {
        let given = BTreeMap::from([(annotation::CURRENT_CONFIG.to_owned(), "x".to_owned())]);
        let keys = |annotations: NodeAnnotationPatch| annotations.into_keys().count();
        let some = |text: &str| Some(text.to_owned());
        let found = initial_annotations(Some(&given), Some("disk"), "empty");
        assert_eq!(found[annotation::CURRENT_CONFIG], some("x"));
        let found = initial_annotations(None, Some("disk"), "empty");
        assert_eq!(found[annotation::CURRENT_CONFIG], some("disk"));
        assert_eq!(keys(found), 1);
        let found = initial_annotations(None, None, "empty");
        assert_eq!(found[annotation::DESIRED_CONFIG], some("empty"));
    }

    #[test]
    fn a_degraded_machine_says_so_until_it_is_done() {
        for state in ["Degraded", "Unreconcilable"] {
            assert!(working(&node(&json!({annotation::STATE: state}))).is_empty());
        }
        assert_eq!(working(&node(&json!({annotation::STATE: "Done"}))).len(), 1);
        let long = failed("Degraded", &"ä".repeat(3000));
        assert_eq!(long[annotation::REASON].as_ref().unwrap().chars().count(), 2000);
    }

    #[test]
    fn a_change_that_is_the_daemons_own_is_no_reason_to_try_again() {
        let before = node(&json!({annotation::DESIRED_CONFIG: "b"}));
        let own = node(&json!({annotation::DESIRED_CONFIG: "b", annotation::STATE: "Degraded"}));
        let told = node(&json!({annotation::DESIRED_CONFIG: "b", machinist::REBOOT_APPROVED: "b"}));
        assert_eq!(external_inputs(&before), external_inputs(&own));
        assert_ne!(external_inputs(&before), external_inputs(&told));
    }
}
