//! Writes the roles and bindings that every hub has.

use super::StartError;
use crate::hub::{Hub, new_server_metadata};
use crate::object::{self, metadata_str};
use crate::rbac::bootstrap::{BootstrapInputs, objects, reconcile};
use crate::store::{CommitError, Precondition, StoreError, StoreOp};

/// Adds what is missing, in one transaction.
pub(super) async fn write(
    hub: &Hub,
    hidden_from_viewers: &[(String, String)],
) -> Result<(), StartError> {
    let redactions = hub.inner.viewer_redactions.iter();
    let outlined: Vec<(String, String)> =
        redactions.map(|it| (it.group.clone(), it.resource.clone())).collect();
    let kinds = hub.inner.kinds.read();
    let inputs = BootstrapInputs {
        registry: &kinds.registry,
        rules: hub.inner.authorizer.rules(),
        hidden_from_viewers,
        outlined: &outlined,
    };
    let mut ops = Vec::new();
    for wanted in objects(&inputs) {
        let Some(kind) = kinds.kind_of(&wanted) else { continue };
        let name = metadata_str(&wanted, "name");
        let key = object::storage_key(kind, None, name);
        let stored = hub.inner.store.get(&key);
        // One that cannot be decoded is replaced.
        let old = stored.as_ref().and_then(|it| object::decode(&it.value, it.revision).ok());
        let mut new = match &old {
            None => wanted,
            Some(old) => match reconcile(old, &wanted) {
                None => continue,
                Some(new) => new,
            },
        };
        if metadata_str(&new, "uid").is_empty() {
            object::prepare_create(kind, &mut new, &new_server_metadata());
        }
        let value = object::encode(&new).map_err(|error| StartError::InvalidDefinition {
            name: metadata_str(&new, "name").to_owned(),
            reason: error.to_string(),
        })?;
        let expect = stored.map_or(Precondition::Absent, |it| Precondition::Revision(it.revision));
        ops.push(StoreOp::Put { key, value, expect });
    }
    if ops.is_empty() {
        return Ok(());
    }
    let key = ops.first().map(|op| op.key().to_owned()).unwrap_or_default();
    match hub.inner.store.commit(ops).await {
        Ok(_) => Ok(()),
        // Administrators need no role to free space.
        Err(CommitError::Store(error @ StoreError::DiskFull { .. })) => {
            tracing::warn!(%error, "cannot write the roles of viewers and controllers; free space and restart the hub");
            Ok(())
        }
        Err(source) => Err(StartError::Write { key, source }),
    }
}
