//! The connections of one port: how many an address may have, and which one is closed for another.
//!
//! An address may use a port alone, as long as nobody else needs it. When most places are taken, an address gets
//! its fair share and no more; when all are taken, the longest idle connection is closed, beginning with the
//! address that has the most. Called by the machine config server and by metrics
//! endpoints.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use machinist_core::serve::enrol::address_block;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The limits of a port.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionLimits {
    /// The maximum number of connections.
    pub total: usize,
    /// From this number on, an address may have only its fair share.
    pub busy: usize,
    /// The fair share of an address on a busy port.
    pub fair_share: usize,
    /// The maximum for one address, if the administrator set one.
    pub per_address: Option<usize>,
}

impl ConnectionLimits {
    /// How many connections an address may have while the port has `open`.
    fn allowed(&self, open: usize) -> usize {
        let share = if open >= self.busy { self.fair_share } else { self.total };
        share.min(self.per_address.unwrap_or(usize::MAX))
    }
}

/// The open connections. A clone shares them.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    limits: ConnectionLimits,
    open: Arc<Mutex<OpenConnections>>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next_id: u64,
    by_id: HashMap<u64, OpenConnection>,
    /// The number of connections by address.
    counts: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct OpenConnection {
    address: IpAddr,
    /// Counts requests and connections: the smallest is the longest idle.
    last_used: u64,
    /// How many requests are in progress.
    requests: usize,
    close: CancellationToken,
}

impl Connections {
    pub(crate) fn new(limits: ConnectionLimits) -> Self {
        Self { limits, open: Arc::default() }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.open.lock().by_id.len()
    }

    /// Admits a connection, if its address has less than its share and a place is free, or can be freed.
    pub(crate) fn admit(&self, address: IpAddr) -> Option<ConnectionGuard> {
        let address = address_block(address);
        let mut open = self.open.lock();
        let count = open.by_id.len();
        let own = open.counts.get(&address).copied().unwrap_or_default();
        if own >= self.limits.allowed(count) {
            return None;
        }
        if count >= self.limits.total {
            let victim = open.idle_victim()?;
            open.remove(victim)?.close.cancel();
        }
        let id = open.next_id;
        open.next_id += 1;
        let close = CancellationToken::new();
        let connection =
            OpenConnection { address, last_used: id, requests: 0, close: close.clone() };
        open.by_id.insert(id, connection);
        *open.counts.entry(address).or_default() += 1;
        Some(ConnectionGuard { all: self.clone(), id, close })
    }
}

impl OpenConnections {
    /// The longest idle connection of the address that has the most connections.
    fn idle_victim(&self) -> Option<u64> {
        let idle = self.by_id.iter().filter(|(_, connection)| connection.requests == 0);
        let rank = |connection: &OpenConnection| {
            let count = self.counts.get(&connection.address).copied().unwrap_or_default();
            (count, std::cmp::Reverse(connection.last_used))
        };
        idle.max_by_key(|(_, connection)| rank(connection)).map(|(id, _)| *id)
    }

    fn remove(&mut self, id: u64) -> Option<OpenConnection> {
        let connection = self.by_id.remove(&id)?;
        if let Some(count) = self.counts.get_mut(&connection.address) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&connection.address);
            }
        }
        Some(connection)
    }
}

/// An open connection. Dropping it frees its place.
#[derive(Debug)]
pub(crate) struct ConnectionGuard {
    all: Connections,
    id: u64,
    close: CancellationToken,
}

impl ConnectionGuard {
    /// Ends when the connection is closed for another one.
    pub(crate) async fn evicted(&self) {
        self.close.cancelled().await;
    }

    /// Marks a request as in progress until the result is dropped: the connection is not idle.
    pub(crate) fn begin_request(&self) -> RequestGuard {
        let mut open = self.all.open.lock();
        let now = open.next_id;
        open.next_id += 1;
        if let Some(connection) = open.by_id.get_mut(&self.id) {
            connection.requests += 1;
            connection.last_used = now;
        }
        drop(open);
        RequestGuard { all: self.all.clone(), id: self.id }
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.all.open.lock().remove(self.id);
    }
}

/// A request in progress.
#[derive(Debug)]
pub(crate) struct RequestGuard {
    all: Connections,
    id: u64,
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        if let Some(connection) = self.all.open.lock().by_id.get_mut(&self.id) {
            connection.requests = connection.requests.saturating_sub(1);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn port(per_address: Option<usize>) -> Connections {
        Connections::new(ConnectionLimits { total: 10, busy: 6, fair_share: 3, per_address })
    }

    #[test]
    fn the_limit_of_an_administrator_applies_always() {
        let all = port(Some(2));
        let first = all.admit(address(1)).unwrap();
        let second = all.admit("::ffff:10.0.0.1".parse().unwrap()).unwrap();
        assert!(all.admit(address(1)).is_none());
        assert!(all.admit(address(2)).is_some());
        drop(first);
        assert!(all.admit(address(1)).is_some());
        drop(second);
        assert_eq!(all.count(), 0);
        assert!(all.open.lock().counts.is_empty());
    }

    #[test]
    fn addresses_of_one_ipv6_network_share() {
        let all = port(Some(1));
        let _first = all.admit("2001:db8::1".parse().unwrap()).unwrap();
        assert!(all.admit("2001:db8::2".parse().unwrap()).is_none());
        assert!(all.admit("2001:db8:0:1::2".parse().unwrap()).is_some());
    }

    #[test]
    fn a_busy_port_is_shared() {
        let all = port(None);
        // Alone, an address may have most of the port, but not all of it.
        let greedy: Vec<_> = std::iter::from_fn(|| all.admit(address(1))).collect();
        assert_eq!(greedy.len(), 6);
        let fair: Vec<_> = std::iter::from_fn(|| all.admit(address(2))).collect();
        assert_eq!(fair.len(), 3);
        assert_eq!(all.count(), 9);
    }

    #[test]
    fn the_longest_idle_connection_is_closed_for_a_new_one() {
        let all = port(None);
        let greedy: Vec<_> = std::iter::from_fn(|| all.admit(address(1))).collect();
        let _others: Vec<_> = [2, 2, 2, 3].map(|it| all.admit(address(it)).unwrap()).into();
        assert_eq!(all.count(), 10);
        // The first is busy, the second was used after the third.
        let _busy = greedy[0].begin_request();
        drop(greedy[1].begin_request());
        let newcomer = all.admit(address(4)).unwrap();
        let closed: Vec<_> = greedy.iter().map(|one| one.close.is_cancelled()).collect();
        assert_eq!(closed, [false, false, true, false, false, false]);
        assert_eq!(all.count(), 10);
        drop(newcomer);
        drop(greedy);
        assert_eq!(all.count(), 4);
    }

    #[test]
    fn a_port_on_which_all_work_admits_nobody() {
        let all = port(None);
        let admitted: Vec<_> = (1..=10).map(|it| all.admit(address(it)).unwrap()).collect();
        let requests: Vec<_> = admitted.iter().map(ConnectionGuard::begin_request).collect();
        assert!(all.admit(address(11)).is_none());
        drop(requests);
        assert!(all.admit(address(11)).is_some());
    }
}
