//! Deletes expired entries, for the loops that expire Events and CSRs.

use crate::hub::Hub;
use crate::store::{Precondition, StoreEntry, StoreOp};

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
        for error in futures::future::join_all(deletes).await.into_iter().filter_map(Result::err) {
            tracing::debug!(%error, "cannot delete an expired object");
        }
    }
}
