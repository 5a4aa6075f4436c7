//! Reads and writes the records of machines. [`crate::auth::machine`] decides what they say.
//!
//! Used by the signer, and by the router when Nodes are written and certificates checked.

use serde_json::Value;

use crate::auth::machine::{MACHINE_KEY_PREFIX, MachineRecord, roles_of};
use crate::store::{Precondition, Store, StoreOp};

/// Key prefix of Nodes in the store.
pub(crate) const NODE_KEY_PREFIX: &str = "/core/nodes/-/";

/// A record as it was read.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoredMachine {
    /// The record; the default one if there is none.
    pub(crate) record: MachineRecord,
    /// Its revision; `None` if there is no record.
    revision: Option<u64>,
}

impl StoredMachine {
    /// Reads the record of a machine. A damaged record gives no roles.
    pub(crate) fn read(store: &Store, name: &str) -> Self {
        let Some(entry) = store.get(&key(name)) else { return Self::default() };
        let record = serde_json::from_slice(&entry.value).unwrap_or_else(|error| {
            tracing::error!(%error, name, "the record of a machine is damaged");
            MachineRecord::default()
        });
        Self { record, revision: Some(entry.revision) }
    }

    /// Whether there is a record.
    pub(crate) fn exists(&self) -> bool {
        self.revision.is_some()
    }

    /// The write of a new record, which fails if another write intervened; `None` if nothing changes.
    pub(crate) fn replace_with(&self, name: &str, new: &MachineRecord) -> Option<StoreOp> {
        if self.exists() && self.record == *new {
            return None;
        }
        let value = serde_json::to_vec(new).ok()?;
        let expect = self.revision.map_or(Precondition::Absent, Precondition::Revision);
        Some(StoreOp::Put { key: key(name), value: value.into(), expect })
    }
}

/// The names of the machines that have a certificate which is still valid, at a time in seconds since 1970. They accept
/// only the CA that issued it.
#[must_use]
pub fn machines_with_certificates(store: &Store, now: i64) -> Vec<String> {
    let page = store.list(MACHINE_KEY_PREFIX, None, None);
    let has_certificate = |value: &[u8]| {
        let record = serde_json::from_slice::<MachineRecord>(value);
        record.is_ok_and(|record| record.not_after.is_some_and(|end| end > now))
    };
    let valid = page.entries.iter().filter(|entry| has_certificate(&entry.value));
    valid
        .filter_map(|entry| entry.key.strip_prefix(MACHINE_KEY_PREFIX))
        .map(str::to_owned)
        .collect()
}

/// What a machine was given. The Node of an earlier version, which has no record, shows its roles: a machine cannot
/// change them.
pub(crate) fn granted(store: &Store, name: &str) -> MachineRecord {
    let stored = StoredMachine::read(store, name);
    if stored.exists() {
        return stored.record;
    }
    let node = store.get(&format!("{NODE_KEY_PREFIX}{name}"));
    let node: Option<Value> = node.and_then(|entry| serde_json::from_slice(&entry.value).ok());
    let roles = node.map(|node| roles_of(&node)).unwrap_or_default();
    MachineRecord { roles, ..stored.record }
}

fn key(name: &str) -> String {
    format!("{MACHINE_KEY_PREFIX}{name}")
}
