//! Limits the connections of clients that are not authenticated yet, and those of each machine and token.
//!
//! Each of these groups has a fixed number. One more evicts the oldest of the same group, so a client that opens
//! thousands of connections locks out nobody but itself. A connection begins in the anonymous group and moves once a
//! certificate or a token authenticates it. Called by the accept loop.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::limits::ConnectionLimits;
use crate::auth::UserInfo;

/// The open connections of a server that count in a group.
#[derive(Debug)]
pub(super) struct OpenConnections {
    limits: ConnectionLimits,
    table: Mutex<ConnectionTable>,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    next_id: u64,
    groups: HashMap<ConnectionGroup, ConnectionsByAge>,
}

/// The connections of a group by order of arrival.
type ConnectionsByAge = BTreeMap<u64, CancellationToken>;

/// Whose connections are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum ConnectionGroup {
    Anonymous,
    Machine(String),
    Token(String),
    /// Administrators and controllers are not counted.
    Unlimited,
}

impl ConnectionGroup {
    fn of(user: &UserInfo) -> Self {
        if user.is_privileged() {
            Self::Unlimited
        } else if let Some(name) = user.node_name() {
            Self::Machine(name.to_owned())
        } else {
            Self::Token(user.user.clone())
        }
    }
}

/// An open connection. Dropping it frees its place.
#[derive(Debug)]
pub(super) struct OpenConnection {
    connections: Arc<OpenConnections>,
    id: u64,
    group: Mutex<ConnectionGroup>,
    eviction: CancellationToken,
}

impl OpenConnections {
    pub(super) fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, table: Mutex::default() })
    }

    fn capacity(&self, group: &ConnectionGroup) -> usize {
        let limits = &self.limits;
        let capacity = match group {
            ConnectionGroup::Anonymous => limits.max_anonymous_connections,
            ConnectionGroup::Machine(_) => limits.max_machine_connections,
            ConnectionGroup::Token(_) => limits.max_token_connections,
            ConnectionGroup::Unlimited => return usize::MAX,
        };
        capacity.min(limits.max_connections).max(1)
    }

    /// Registers a connection whose client is not known yet.
    pub(super) fn register(self: &Arc<Self>) -> OpenConnection {
        let eviction = CancellationToken::new();
        let mut table = self.table.lock();
        let id = table.next_id;
        table.next_id += 1;
        drop(table);
        let group = ConnectionGroup::Anonymous;
        self.insert(&group, id, eviction.clone());
        OpenConnection { connections: Arc::clone(self), id, group: Mutex::new(group), eviction }
    }

    /// Adds a connection to a group. Evicts the oldest of the group if there are too many.
    fn insert(&self, group: &ConnectionGroup, id: u64, eviction: CancellationToken) {
        if *group == ConnectionGroup::Unlimited {
            return;
        }
        let mut table = self.table.lock();
        let open = table.groups.entry(group.clone()).or_default();
        let is_full = open.len() >= self.capacity(group);
        let oldest = if is_full { open.pop_first() } else { None };
        open.insert(id, eviction);
        drop(table);
        if let Some((_, oldest)) = oldest {
            oldest.cancel();
        }
    }

    fn remove(&self, group: &ConnectionGroup, id: u64) {
        let mut table = self.table.lock();
        let Some(open) = table.groups.get_mut(group) else { return };
        open.remove(&id);
        if open.is_empty() {
            table.groups.remove(group);
        }
    }

    /// Evicts the oldest anonymous connection; without one, the oldest of the group with the most. Returns whether
    /// there was one.
    pub(super) fn evict_oldest(&self) -> bool {
        let mut table = self.table.lock();
        let groups = &mut table.groups;
        let largest = || groups.iter().max_by_key(|(_, open)| open.len()).map(|(group, _)| group);
        let group = if groups.contains_key(&ConnectionGroup::Anonymous) {
            Some(ConnectionGroup::Anonymous)
        } else {
            largest().cloned()
        };
        let Some(group) = group else { return false };
        let Some(open) = groups.get_mut(&group) else { return false };
        let oldest = open.pop_first();
        if open.is_empty() {
            groups.remove(&group);
        }
        drop(table);
        oldest.inspect(|(_, oldest)| oldest.cancel()).is_some()
    }
}

impl OpenConnection {
    /// The client is authenticated: the connection counts as one of this user from now on. The first user decides.
    pub(super) fn authenticated_as(&self, user: &UserInfo) {
        let mut group = self.group.lock();
        if *group != ConnectionGroup::Anonymous || self.eviction.is_cancelled() {
            return;
        }
        self.connections.remove(&group, self.id);
        *group = ConnectionGroup::of(user);
        self.connections.insert(&group, self.id, self.eviction.clone());
    }

    /// Ends the connection.
    pub(super) fn evict(&self) {
        self.eviction.cancel();
    }

    /// Waits for the eviction.
    pub(super) async fn evicted(&self) {
        self.eviction.cancelled().await;
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.connections.remove(&self.group.lock(), self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::BOOTSTRAP_GROUP;

    fn connections() -> Arc<OpenConnections> {
        OpenConnections::new(ConnectionLimits {
            max_anonymous_connections: 2,
            max_machine_connections: 2,
            max_token_connections: 3,
            ..ConnectionLimits::default()
        })
    }

    fn present(connections: &[&OpenConnection]) -> Vec<bool> {
        connections.iter().map(|connection| !connection.eviction.is_cancelled()).collect()
    }

    fn open_as(connections: &Arc<OpenConnections>, user: &UserInfo) -> OpenConnection {
        let connection = connections.register();
        connection.authenticated_as(user);
        connection
    }

    #[test]
    fn the_oldest_connection_is_evicted() {
        let connections = connections();
        let (a, b) = (connections.register(), connections.register());
        let c = connections.register();
        assert_eq!(present(&[&a, &b, &c]), [false, true, true]);
        assert!(connections.evict_oldest());
        assert_eq!(present(&[&a, &b, &c]), [false, false, true]);
    }

    #[test]
    fn each_identity_evicts_only_its_own() {
        let connections = connections();
        let token = UserInfo::new("t", [BOOTSTRAP_GROUP.to_owned()]);
        for (user, capacity) in [(UserInfo::node("a"), 2), (token, 3), (UserInfo::admin(), 5)] {
            let other = open_as(&connections, &UserInfo::node("other"));
            let own: Vec<_> = (0..5).map(|_| open_as(&connections, &user)).collect();
            let kept = own.iter().filter(|one| !one.eviction.is_cancelled()).count();
            assert_eq!(kept, capacity, "{user:?}");
            assert_eq!(present(&[&own[4], &other]), [true, true], "the newest stays, and others");
        }
        assert!(connections.table.lock().groups.is_empty(), "closed connections are forgotten");
    }

    #[test]
    fn authenticated_and_closed_connections_are_not_anonymous() {
        let connections = connections();
        let (a, b) = (connections.register(), connections.register());
        a.authenticated_as(&UserInfo::admin());
        a.authenticated_as(&UserInfo::node("a"));
        drop(b);
        let (c, d) = (connections.register(), connections.register());
        assert_eq!(present(&[&a, &c, &d]), [true, true, true]);
        drop((c, d));
        assert!(!connections.evict_oldest());
        assert_eq!(present(&[&a]), [true]);
    }

    #[test]
    fn without_anonymous_connections_the_largest_group_gives_one() {
        let connections = connections();
        let single = open_as(&connections, &UserInfo::node("a"));
        let (b, c) = (
            open_as(&connections, &UserInfo::node("b")),
            open_as(&connections, &UserInfo::node("b")),
        );
        assert!(connections.evict_oldest());
        assert_eq!(present(&[&single, &b, &c]), [true, false, true]);
    }
}
