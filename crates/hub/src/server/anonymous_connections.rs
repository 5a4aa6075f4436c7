//! Connections of which nobody knows yet whose they are.
//!
//! There is room for a fixed number of them. When one more comes, the oldest goes: so whoever opens
//! thousands of connections and says nothing keeps nobody out. A connection stops being a guest when
//! a certificate or a token has said who it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The guests of a server.
#[derive(Debug)]
pub(super) struct AnonymousConnections {
    capacity: usize,
    connections: Mutex<ConnectionTable>,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    next_id: u64,
    /// By the order in which they came.
    open: BTreeMap<u64, CancellationToken>,
}

/// A guest; it leaves the book when it is dropped or known.
#[derive(Debug)]
pub(super) struct AnonymousConnection {
    connections: Arc<AnonymousConnections>,
    id: u64,
    eviction: CancellationToken,
}

impl AnonymousConnections {
    pub(super) fn new(room: usize) -> Arc<Self> {
        Arc::new(Self { capacity: room.max(1), connections: Mutex::default() })
    }

    /// Lets one in. Where there is no room the oldest has to go.
    pub(super) fn register(self: &Arc<Self>) -> AnonymousConnection {
        let out = CancellationToken::new();
        let mut book = self.connections.lock();
        let oldest = if book.open.len() >= self.capacity { book.open.pop_first() } else { None };
        let number = book.next_id;
        book.next_id += 1;
        book.open.insert(number, out.clone());
        drop(book);
        if let Some((_, oldest)) = oldest {
            oldest.cancel();
        }
        AnonymousConnection { connections: Arc::clone(self), id: number, eviction: out }
    }

    /// Makes the oldest go; says whether there was one.
    pub(super) fn evict_oldest(&self) -> bool {
        let oldest = self.connections.lock().open.pop_first();
        oldest.inspect(|(_, oldest)| oldest.cancel()).is_some()
    }
}

impl AnonymousConnection {
    /// Somebody known from now on: it stays as long as it likes.
    pub(super) fn mark_authenticated(&self) {
        self.connections.connections.lock().open.remove(&self.id);
    }

    /// Waits until it has to go.
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

    fn present(guests: &[&AnonymousConnection]) -> Vec<bool> {
        guests.iter().map(|guest| !guest.eviction.is_cancelled()).collect()
    }

    #[test]
    fn the_oldest_connection_is_evicted() {
        let guests = AnonymousConnections::new(2);
        let (a, b) = (guests.register(), guests.register());
        let c = guests.register();
        assert_eq!(present(&[&a, &b, &c]), [false, true, true]);
        assert!(guests.evict_oldest());
        assert_eq!(present(&[&a, &b, &c]), [false, false, true]);
    }

    #[test]
    fn authenticated_and_closed_connections_do_not_count() {
        let guests = AnonymousConnections::new(2);
        let (a, b) = (guests.register(), guests.register());
        a.mark_authenticated();
        drop(b);
        let (c, d) = (guests.register(), guests.register());
        assert_eq!(present(&[&a, &c, &d]), [true, true, true]);
        drop((c, d));
        assert!(!guests.evict_oldest());
        assert_eq!(present(&[&a]), [true]);
    }
}
