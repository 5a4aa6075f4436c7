//! Which Events a machine may write: those about itself, and those it reports.
//!
//! Events say why a machine rebooted. In Kubernetes every node may write every Event; here one machine cannot forge or
//! overwrite what Events say about another.

use serde_json::Value;

use crate::auth::UserInfo;
use crate::kind_registry::ResourceKind;
use crate::object::metadata_str;
use crate::status::ApiError;

/// Kinds whose objects have the name of their machine.
const KINDS_OF_MACHINES: &[&str] = &["Node", "MachineConfigNode"];

/// Rejects an Event that a machine writes about another one. `old` is null for a new object.
pub(crate) fn check_machine_event(
    kind: &ResourceKind,
    user: &UserInfo,
    old: &Value,
    new: &Value,
) -> Result<(), ApiError> {
    let Some(machine) = user.node_name().filter(|_| kind.built_in && kind.kind == "Event") else {
        return Ok(());
    };
    if user.is_privileged() || ((old.is_null() || is_from(old, machine)) && is_from(new, machine)) {
        return Ok(());
    }
    let reason = format!(
        "user \"{}\" may only write events about its own Node (involvedObject) or with its name as source.host or reportingInstance",
        user.user
    );
    Err(ApiError::forbidden_because(kind, metadata_str(new, "name"), &reason))
}

/// Whether an Event is about a machine or reported by it, in either form of the API.
fn is_from(event: &Value, machine: &str) -> bool {
    let object = |name: &str| {
        let object = &event[name];
        KINDS_OF_MACHINES.iter().any(|kind| object["kind"] == *kind) && object["name"] == machine
    };
    let reporters =
        [&event["source"]["host"], &event["deprecatedSource"]["host"], &event["reportingInstance"]];
    // A recorder of another component has no host, or the one it runs on.
    let reported = reporters.iter().any(|reporter| **reporter == machine);
    reported || object("involvedObject") || object("regarding")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_machine_writes_only_its_own_events() {
        let kinds = crate::built_in::kinds();
        let kind = kinds.iter().find(|kind| kind.kind == "Event").unwrap();
        let about =
            |kind: &str, name: &str| json!({"involvedObject": {"kind": kind, "name": name}});
        let from = |host: &str| json!({"involvedObject": {"kind": "Pod", "name": "p"}, "source": {"host": host}});
        let null = Value::Null;
        for (old, new, expected) in [
            (null.clone(), about("Node", "a"), Ok(())),
            (null.clone(), about("MachineConfigNode", "a"), Ok(())),
            (null.clone(), about("Node", "b"), Err(403)),
            (null.clone(), about("MachineConfigPool", "a"), Err(403)),
            (null.clone(), from("a"), Ok(())),
            (null.clone(), json!({"regarding": {"kind": "Node", "name": "a"}}), Ok(())),
            (null.clone(), json!({"reportingInstance": "a"}), Ok(())),
            (null, from(""), Err(403)),
            (about("Node", "a"), about("Node", "a"), Ok(())),
            (about("Node", "b"), about("Node", "a"), Err(403)),
            (about("Node", "a"), about("Node", "b"), Err(403)),
        ] {
            let checked = check_machine_event(kind, &UserInfo::node("a"), &old, &new);
            assert_eq!(checked.map_err(|error| error.code), expected, "{old} -> {new}");
            assert_eq!(check_machine_event(kind, &UserInfo::admin(), &old, &new), Ok(()));
        }
    }
}
