//! Connections whose handoff has not ended: what must be done for each when its process is gone.
//!
//! The kernel would close a donor's socket in repair mode without sending a packet, and the client
//! would wait forever. Netguard therefore keeps a duplicate of its descriptor, and resets the connection.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use skep_guard::ClientNumber;
use skep_wire::handoff::SocketId;

use crate::limits::{HELD_MS_MAX, ORPHANED_MS_MAX};

#[derive(Debug, Default)]
pub(super) struct HeldConnections {
    by_id: HashMap<SocketId, HeldConnection>,
}

/// One connection.
#[derive(Debug)]
pub(super) struct HeldConnection {
    /// The client that hands it off; `None` if an earlier netguard blocked it.
    pub(super) client: Option<ClientNumber>,
    since: Instant,
    /// The donor's socket, which is in repair mode.
    pub(super) frozen: Option<OwnedFd>,
}

impl HeldConnections {
    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn insert(&mut self, id: SocketId, client: ClientNumber, frozen: Option<OwnedFd>) {
        let held = HeldConnection { client: Some(client), since: Instant::now(), frozen };
        self.by_id.insert(id, held);
    }

    /// Inserts a connection that an earlier netguard blocked.
    pub(super) fn insert_orphan(&mut self, id: SocketId) {
        let since = Instant::now();
        self.by_id.entry(id).or_insert(HeldConnection { client: None, since, frozen: None });
    }

    pub(super) fn remove(&mut self, id: SocketId) -> Option<HeldConnection> {
        self.by_id.remove(&id)
    }

    pub(super) fn has(&self, id: SocketId) -> bool {
        self.by_id.contains_key(&id)
    }

    pub(super) fn has_frozen(&self, id: SocketId) -> bool {
        self.by_id.get(&id).is_some_and(|held| held.frozen.is_some())
    }

    /// Removes and returns the connections that an earlier netguard blocked.
    pub(super) fn take_orphans(&mut self) -> Vec<(SocketId, HeldConnection)> {
        self.take(|held| held.client.is_none())
    }

    /// Removes and returns the connections of a client that is gone.
    pub(super) fn take_of(&mut self, client: ClientNumber) -> Vec<(SocketId, HeldConnection)> {
        self.take(|held| held.client == Some(client))
    }

    /// Removes and returns the connections held longer than any handoff takes.
    pub(super) fn take_old(&mut self) -> Vec<(SocketId, HeldConnection)> {
        self.take(|held| {
            let ms_max = if held.client.is_some() { HELD_MS_MAX } else { ORPHANED_MS_MAX };
            held.since.elapsed() >= Duration::from_millis(ms_max)
        })
    }

    pub(super) fn take_all(&mut self) -> Vec<(SocketId, HeldConnection)> {
        self.take(|_| true)
    }

    fn take(
        &mut self,
        is_taken: impl Fn(&HeldConnection) -> bool,
    ) -> Vec<(SocketId, HeldConnection)> {
        self.by_id.extract_if(|_, held| is_taken(held)).collect()
    }
}
