//! What a machine sees of what it may read: the objects that concern it.
//!
//! [`crate::auth::node_graph`] decides. Called by the read and watch handlers.

use serde_json::Value;

use super::response;
use crate::auth::UserInfo;
use crate::auth::node_graph::NodeRelation;
use crate::hub::Hub;
use crate::kind_registry::ResourceKind;
use crate::machines;
use crate::object;
use crate::store::{Store, StoreEntry};

/// Replaces the contents of an object.
pub(super) type Redaction = fn(&mut Value);

/// The objects that concern a machine.
#[derive(Debug, Clone)]
pub(super) struct NodeFilter {
    store: Store,
    machine: String,
    relation: NodeRelation,
}

impl NodeFilter {
    /// The filter for a user; `None` if the user is not a machine.
    pub(super) fn new(hub: &Hub, user: &UserInfo, relation: NodeRelation) -> Option<Self> {
        let machine = user.node_name()?.to_owned();
        Some(Self { store: hub.inner.store.clone(), machine, relation })
    }

    /// Whether the object of a name concerns the machine.
    pub(super) fn allows_name(
        &self,
        kind: &ResourceKind,
        namespace: Option<&str>,
        name: &str,
    ) -> bool {
        let entry = self.store.get(&object::storage_key(kind, namespace, name));
        let object = entry.and_then(|entry| response::decode_entry(&entry).ok());
        let machine = machines::granted(&self.store, &self.machine);
        self.relation.holds(&machine, name, object.as_ref())
    }

    /// Whether a stored object concerns the machine. The record is read each time: a watch must notice a move to another
    /// pool.
    pub(super) fn allows(&self, entry: &StoreEntry) -> bool {
        let Ok(object) = response::decode_entry(entry) else { return false };
        let machine = machines::granted(&self.store, &self.machine);
        self.relation.holds(&machine, object::metadata_str(&object, "name"), Some(&object))
    }
}
