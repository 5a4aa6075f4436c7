//! Deletes expired entries, for the loops that expire Events and CSRs.

use crate::hub::Hub;
use crate::store::{CommitError, Precondition, StoreEntry, StoreOp};

/// Deletes running at a time. The store commits them together.
const CONCURRENT_DELETES: usize = 500;

/// Deletes entries unless they changed. Each is a transaction of its own: an entry that a client
/// rewrites all the time must not keep the others.
pub(crate) async fn delete_entries(hub: &Hub, entries: &[StoreEntry]) {
    for chunk in entries.chunks(CONCURRENT_DELETES) {
        let deletes = chunk.iter().map(|entry| {
            let expect = Precondition::Revision(entry.revision);
            let op = StoreOp::Delete { key: entry.key.to_string(), expect };
            hub.store().commit(vec![op])
        });
        let deleted = futures::future::join_all(deletes).await;
        let is_failure = |error: &CommitError| !matches!(error, CommitError::Conflict { .. });
        let failure = deleted.into_iter().filter_map(Result::err).find(is_failure);
        hub.failures().record("delete expired objects", "", failure.map_or(Ok(()), Err));
    }
}
