//! What a machine may put into the metadata of its own objects: no finalizers, and few owners.
//!
//! A finalizer holds an object until its owner removes it. A machine that puts one on its Node could
//! keep an administrator from ever deleting it, so only controllers and administrators add them. An
//! owner lets a machine tie its objects to others; a kubelet needs that only for its Lease, which
//! its own Node owns.

use serde_json::Value;

use crate::auth::{BOOTSTRAP_GROUP, NODE_GROUP, UserInfo};
use crate::kind_registry::ResourceKind;
use crate::object::{finalizers, metadata_str};
use crate::status::ApiError;

/// Owners of an object that a machine has written.
const MAX_OWNERS: usize = 4;

/// Rejects finalizers and owners that a machine or a bootstrap token adds. `old` is null for a new object.
/// `own_node_uid` returns the UID of the machine's Node; with another one it could tie its object to anything.
pub(crate) fn check_machine_metadata(
    kind: &ResourceKind,
    user: &UserInfo,
    own_node_uid: impl FnOnce() -> Option<String>,
    old: &Value,
    new: &Value,
) -> Result<(), ApiError> {
    let is_machine = user.is_in_group(NODE_GROUP) || user.is_in_group(BOOTSTRAP_GROUP);
    if user.is_privileged() || !is_machine {
        return Ok(());
    }
    let forbidden =
        |reason: String| Err(ApiError::forbidden_because(kind, metadata_str(new, "name"), &reason));
    let before = finalizers(old);
    if let Some(added) = finalizers(new).into_iter().find(|name| !before.contains(name)) {
        return forbidden(format!(
            "user \"{}\" may not add the finalizer \"{added}\" (metadata.finalizers): only administrators and controllers add finalizers",
            user.user
        ));
    }
    let (before, owners) = (owners(old), owners(new));
    let added: Vec<&Value> = owners.iter().filter(|owner| !before.contains(owner)).collect();
    let uid = if added.is_empty() { None } else { own_node_uid() };
    if let Some(owner) = added.iter().find(|owner| !is_own_node(owner, user, uid.as_deref())) {
        return forbidden(format!(
            "user \"{}\" may not add the owner {} \"{}\" (metadata.ownerReferences): a machine only adds its own Node, with its UID",
            user.user,
            owner["kind"].as_str().unwrap_or_default(),
            owner["name"].as_str().unwrap_or_default()
        ));
    }
    if owners.len() > MAX_OWNERS.max(before.len()) {
        return forbidden(format!("metadata.ownerReferences has more than {MAX_OWNERS} owners"));
    }
    Ok(())
}

/// Rejects writes of annotations that say what machines run, by all but administrators and controllers: the right to write
/// the object is not enough. It is enough to remove them.
pub(crate) fn check_protected_annotations(
    kind: &ResourceKind,
    user: &UserInfo,
    protected: &[String],
    old: &Value,
    new: &Value,
) -> Result<(), ApiError> {
    if user.is_privileged() {
        return Ok(());
    }
    let of = |object: &Value, key: &str| object["metadata"]["annotations"][key].clone();
    let is_written = |key: &&String| {
        let value = of(new, key);
        !value.is_null() && value != of(old, key)
    };
    protected.iter().find(is_written).map_or(Ok(()), |key| {
        let reason = format!(
            "user \"{}\" may not write the annotation {key}: an administrator does, with machinist upgrade",
            user.user
        );
        Err(ApiError::forbidden_because(kind, metadata_str(new, "name"), &reason))
    })
}

fn owners(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"].as_array().map_or(&[], Vec::as_slice)
}

fn is_own_node(owner: &Value, user: &UserInfo, uid: Option<&str>) -> bool {
    owner["apiVersion"] == "v1"
        && owner["kind"] == "Node"
        && user.node_name().is_some_and(|name| owner["name"] == name)
        && uid.is_some_and(|uid| owner["uid"] == uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(user: &UserInfo, old: Value, new: Value) -> Result<(), u16> {
        let kinds = crate::built_in::kinds();
        let kind = kinds.iter().find(|kind| kind.kind == "Node").unwrap();
        let object = |metadata: Value| json!({"metadata": metadata});
        let uid = || Some("u".to_owned());
        check_machine_metadata(kind, user, uid, &object(old), &object(new))
            .map_err(|error| error.code)
    }

    #[test]
    fn a_machine_adds_no_finalizers() {
        let machine = UserInfo::node("a");
        let held = json!({"finalizers": ["x.io/f"]});
        assert_eq!(check(&machine, json!({}), held.clone()), Err(403));
        assert_eq!(check(&machine, held.clone(), held.clone()), Ok(()), "a controller added it");
        assert_eq!(check(&machine, held.clone(), json!({})), Ok(()));
        assert_eq!(check(&UserInfo::admin(), json!({}), held.clone()), Ok(()));
        let bootstrap = UserInfo::new("t", [BOOTSTRAP_GROUP.to_owned()]);
        assert_eq!(check(&bootstrap, json!({}), held), Err(403));
    }

    #[test]
    fn only_administrators_choose_what_machines_run() {
        let kinds = crate::built_in::kinds();
        let node = kinds.iter().find(|kind| kind.kind == "Node").unwrap();
        let lease = kinds.iter().find(|kind| kind.kind == "Lease").unwrap();
        let with = |value: Value| json!({"metadata": {"name": "a", "annotations": {"x/upgrade": value, "y": "1"}}});
        let (none, one, two) = (with(Value::Null), with(json!("1")), with(json!("2")));
        let protected = ["x/upgrade".to_owned()];
        let check = |kind, user: &UserInfo, old: &Value, new: &Value| {
            check_protected_annotations(kind, user, &protected, old, new).map_err(|e| e.code)
        };
        let machine = UserInfo::node("a");
        for (old, new, expected) in [
            (&none, &one, Err(403)),
            (&Value::Null, &one, Err(403)),
            (&one, &two, Err(403)),
            (&one, &one, Ok(())),
            (&one, &none, Ok(())),
        ] {
            assert_eq!(check(node, &machine, old, new), expected, "{old} {new}");
            assert_eq!(check(node, &UserInfo::admin(), old, new), Ok(()));
            assert_eq!(check(lease, &machine, old, new), expected, "whatever the object is");
        }
        // Rights on an object do not include it.
        let operator = UserInfo::new("ops", []);
        assert_eq!(check(node, &operator, &none, &one), Err(403));
    }

    #[test]
    fn a_machine_adds_only_its_own_node_as_owner() {
        let machine = UserInfo::node("a");
        let owner = |kind: &str, name: &str, uid: &str| json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid});
        let with = |owners: Vec<Value>| json!({"ownerReferences": owners});
        let own = owner("Node", "a", "u");
        for (new, expected) in [
            (vec![own.clone()], Ok(())),
            (vec![owner("Node", "b", "u")], Err(403)),
            (vec![owner("ConfigMap", "a", "u")], Err(403)),
            (vec![owner("Node", "a", "the UID of a pool")], Err(403)),
            (vec![own.clone(); 4], Ok(())),
            (vec![own.clone(); 5], Err(403)),
        ] {
            assert_eq!(check(&machine, json!({}), with(new.clone())), expected, "{new:?}");
        }
        let foreign = with(vec![owner("Pool", "p", "u")]);
        assert_eq!(check(&machine, foreign.clone(), foreign), Ok(()), "a controller added it");
    }
}
