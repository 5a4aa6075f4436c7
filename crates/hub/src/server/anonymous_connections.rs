//! Limits connections whose client is not authenticated yet.
//!
//! Their number is fixed. One more evicts the oldest, so a client that opens thousands of silent
//! connections locks nobody out. A connection stops counting once a certificate or token
//! authenticates it. Called by the accept loop.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The anonymous connections of a server.
#[derive(Debug)]
pub(super) struct AnonymousConnections {
    capacity: usize,
    connections: Mutex<ConnectionTable>,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    next_id: u64,
    /// By order of arrival.
    open: BTreeMap<u64, CancellationToken>,
}

/// An anonymous connection. Dropping or authenticating it frees its slot.
#[derive(Debug)]
pub(super) struct AnonymousConnection {
    connections: Arc<AnonymousConnections>,
    id: u64,
    eviction: CancellationToken,
}

impl AnonymousConnections {
    pub(super) fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self { capacity: capacity.max(1), connections: Mutex::default() })
    }

    /// Registers a connection. Evicts the oldest if there are too many.
    pub(super) fn register(self: &Arc<Self>) -> AnonymousConnection {
        let eviction = CancellationToken::new();
        let mut table = self.connections.lock();
        let oldest = if table.open.len() >= self.capacity { table.open.pop_first() } else { None };
        let id = table.next_id;
        table.next_id += 1;
        table.open.insert(id, eviction.clone());
        drop(table);
        if let Some((_, oldest)) = oldest {
            oldest.cancel();
        }
        AnonymousConnection { connections: Arc::clone(self), id, eviction }
    }

    /// Evicts the oldest connection. Returns whether there was one.
    pub(super) fn evict_oldest(&self) -> bool {
        let oldest = self.connections.lock().open.pop_first();
        oldest.inspect(|(_, oldest)| oldest.cancel()).is_some()
    }
}

impl AnonymousConnection {
    /// The client is authenticated: the connection no longer counts.
    pub(super) fn mark_authenticated(&self) {
        self.connections.connections.lock().open.remove(&self.id);
    }

    /// Waits for the eviction.
    pub(super) async fn evicted(&self) {
        self.eviction.cancelled().await;
    }
}

impl Drop for AnonymousConnection {
    fn drop(&mut self) {
        self.mark_authenticated();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn present(connections: &[&AnonymousConnection]) -> Vec<bool> {
        connections.iter().map(|connection| !connection.eviction.is_cancelled()).collect()
    }

    #[test]
    fn the_oldest_connection_is_evicted() {
        let connections = AnonymousConnections::new(2);
        let (a, b) = (connections.register(), connections.register());
        let c = connections.register();
        assert_eq!(present(&[&a, &b, &c]), [false, true, true]);
        assert!(connections.evict_oldest());
        assert_eq!(present(&[&a, &b, &c]), [false, false, true]);
    }

    #[test]
    fn authenticated_and_closed_connections_do_not_count() {
        let connections = AnonymousConnections::new(2);
        let (a, b) = (connections.register(), connections.register());
        a.mark_authenticated();
        drop(b);
        let (c, d) = (connections.register(), connections.register());
        assert_eq!(present(&[&a, &c, &d]), [true, true, true]);
        drop((c, d));
        assert!(!connections.evict_oldest());
        assert_eq!(present(&[&a]), [true]);
    }
}
