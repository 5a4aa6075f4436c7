//! Deletes the objects of a definition that is deleted.

use serde_json::Value;

use crate::built_in;
use crate::deletion::{self, DeletionStep};
use crate::hub::{Hub, now_rfc3339};
use crate::kind_registry::ResourceKind;
use crate::object;
use crate::request::DeletionPropagation;
use crate::store::{CommitError, Precondition, StoreEntry, StoreOp};

/// Deletes running at a time. The store commits them together.
const CONCURRENT_DELETES: usize = 500;

/// Deletes all objects of a definition as a client would, and returns how many are left: finalizers hold them.
pub(super) async fn delete_objects(hub: &Hub, definition: &Value) -> usize {
    let Some(prefix) = prefix(definition) else { return 0 };
    let Some(kind) = built_in::from_crd(definition).into_iter().next() else { return 0 };
    let entries = hub.store().list(&prefix, None, None).entries;
    for chunk in entries.chunks(CONCURRENT_DELETES) {
        let ops = chunk.iter().filter_map(|entry| deletion(&kind, entry));
        let commits = ops.map(|op| hub.store().commit(vec![op]));
        let done = futures::future::join_all(commits).await;
        let is_failure = |error: &CommitError| !matches!(error, CommitError::Conflict { .. });
        let failure = done.into_iter().filter_map(Result::err).find(is_failure);
        let result = failure.map_or(Ok(()), Err);
        hub.failures().record("delete the objects of a CustomResourceDefinition", "", result);
    }
    hub.store().list(&prefix, None, None).entries.len()
}

/// The prefix of the keys of its objects.
fn prefix(definition: &Value) -> Option<String> {
    let spec = &definition["spec"];
    let (group, plural) = (spec["group"].as_str()?, spec["names"]["plural"].as_str()?);
    (!group.is_empty() && !plural.is_empty()).then(|| format!("/{group}/{plural}/"))
}

fn deletion(kind: &ResourceKind, entry: &StoreEntry) -> Option<StoreOp> {
    let expect = Precondition::Revision(entry.revision);
    let key = entry.key.to_string();
    // What cannot be decoded has no finalizers that anyone could wait for.
    let Ok(object) = object::decode(&entry.value, entry.revision) else {
        return Some(StoreOp::Delete { key, expect });
    };
    if object::is_deleting(&object) {
        return None;
    }
    let propagation = DeletionPropagation::Background;
    match deletion::decide_deletion(kind, &object, propagation, &now_rfc3339()) {
        DeletionStep::Remove => Some(StoreOp::Delete { key, expect }),
        DeletionStep::MarkForDeletion(marked) => {
            object::encode(&marked).ok().map(|value| StoreOp::Put { key, value, expect })
        }
        DeletionStep::NoChange => None,
    }
}
