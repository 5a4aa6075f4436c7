//! The drain request of a machine: its daemon writes `drain-<config>` or `uncordon-<config>`, and the
//! controller copies the value to another annotation when it is done.

use k8s_openapi::api::core::v1::Node;

use crate::api::names::annotation::machinist::MODE;
use crate::api::names::annotation::{DESIRED_DRAIN, LAST_APPLIED_DRAIN};
use crate::node::{NodeView, excerpt};

/// How much of a request an error repeats: machines write what they like.
const MAX_SHOWN_CHARS: usize = 100;

/// What a machine requests. The value has to be written to [`LAST_APPLIED_DRAIN`] when it is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrainRequest {
    /// Nothing, or nothing new.
    None,
    /// To be cordoned and drained.
    Drain {
        /// The request as written.
        value: String,
    },
    /// To be uncordoned.
    Uncordon {
        /// The request as written.
        value: String,
    },
}

/// An invalid request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DrainError {
    /// Neither `drain` nor `uncordon`.
    #[error("node {node}: non-recognized drain verb detected {verb}")]
    UnknownVerb {
        /// The machine.
        node: String,
        /// The text before the first `-`.
        verb: String,
    },
}

/// The request of a machine that is not done yet. A machine that an administrator holds is not drained, but it
/// may get its pods back.
pub fn pending_request(node: &Node) -> Result<DrainRequest, DrainError> {
    let view = NodeView(node);
    let desired = view.annotation(DESIRED_DRAIN).unwrap_or_default();
    if desired == view.annotation(LAST_APPLIED_DRAIN).unwrap_or_default() {
        return Ok(DrainRequest::None);
    }
    let verb = desired.split('-').next().unwrap_or_default();
    let value = desired.to_owned();
    match verb {
        "drain" if view.held().is_some() => Ok(DrainRequest::None),
        "drain" => Ok(DrainRequest::Drain { value }),
        "uncordon" => Ok(DrainRequest::Uncordon { value }),
        verb => {
            let verb = excerpt(verb, MAX_SHOWN_CHARS).to_owned();
            Err(DrainError::UnknownVerb { node: view.name().to_owned(), verb })
        }
    }
}

/// The answer to a person who uncordoned a machine during its drain.
#[must_use]
pub fn cordoned_again_message(node: &Node) -> String {
    let view = NodeView(node);
    let (name, config) = (view.name(), view.desired_config());
    format!(
        "Node {name} was uncordoned during its drain for {config} and is cordoned again. To stop the update, give its pool another config (machinist rollback POOL) or set the annotation {MODE}=observe on the Node"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node(desired: &Value, applied: &Value) -> Node {
        let mut annotations = json!({});
        for (key, value) in [(DESIRED_DRAIN, desired), (LAST_APPLIED_DRAIN, applied)] {
            if !value.is_null() {
                annotations[key] = value.clone();
            }
        }
        serde_json::from_value(json!({"metadata": {"name": "n1", "annotations": annotations}}))
            .unwrap()
    }

    #[test]
    fn requests_are_parsed() {
        let drain = |value: &str| Ok(DrainRequest::Drain { value: value.to_owned() });
        let uncordon = |value: &str| Ok(DrainRequest::Uncordon { value: value.to_owned() });
        let unknown =
            |verb: &str| Err(format!("node n1: non-recognized drain verb detected {verb}"));
        for (desired, applied, expected) in [
            (json!(null), json!(null), Ok(DrainRequest::None)),
            (json!(""), json!(null), Ok(DrainRequest::None)),
            (json!("drain-a"), json!("drain-a"), Ok(DrainRequest::None)),
            (json!("drain-rendered-a"), json!("uncordon-rendered-0"), drain("drain-rendered-a")),
            (json!("drain-b"), json!("drain-a"), drain("drain-b")),
            (json!("drain-a"), json!(null), drain("drain-a")),
            (json!("uncordon-a"), json!("drain-a"), uncordon("uncordon-a")),
            (json!("restart-x"), json!("drain-a"), unknown("restart")),
            (json!(null), json!("drain-a"), unknown("")),
            (json!("x".repeat(100_000)), json!(null), unknown(&"x".repeat(100))),
        ] {
            let found =
                pending_request(&node(&desired, &applied)).map_err(|error| error.to_string());
            assert_eq!(found, expected, "{desired} {applied}");
        }
    }
}
