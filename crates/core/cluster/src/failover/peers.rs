//! The states of the other dispatchers, from their heartbeats.

use std::collections::BTreeMap;

use skep_units::Now;
use skep_wire::limits::DISPATCHERS_MAX;
use skep_wire::message::{DispatcherHeartbeat, Mac, Name, Stage};
use skep_wire::seal::{PeerId, Stamp};

use crate::arrivals::Arrivals;

/// The rank of a claim to being active: the greatest wins.
pub(super) type ClaimRank = (u64, u32, PeerId);

/// How fit a dispatcher is to take over: whether it has the flows, then its priority.
pub(super) type Fitness = (bool, u32, PeerId);

/// Another dispatcher.
#[derive(Clone, Debug)]
pub(super) struct PeerDispatcher {
    pub(super) heartbeat: DispatcherHeartbeat,
    arrivals: Arrivals,
    /// In listening time.
    heard_at: Now,
}

/// All dispatchers whose heartbeats were ever received, at most [`DISPATCHERS_MAX`].
#[derive(Clone, Debug, Default)]
pub(super) struct Peers(BTreeMap<PeerId, PeerDispatcher>);

impl Peers {
    /// Stores the heartbeat and returns the previous one, or `None` if the heartbeat is older
    /// than one already received, or the table of dispatchers is full.
    pub(super) fn hear(
        &mut self,
        (arrived, listened): (Now, Now),
        heartbeat: &DispatcherHeartbeat,
        from: PeerId,
        stamp: Stamp,
    ) -> Option<Option<PeerDispatcher>> {
        let arrivals = self.0.get(&from).map(|peer| peer.arrivals);
        let is_crowded = self.0.len() >= DISPATCHERS_MAX && arrivals.is_none();
        let arrivals = Arrivals::next(arrivals, stamp, arrived).filter(|_| !is_crowded)?;
        let before = self.0.remove(&from);
        // A heartbeat queued before a pause of this process must not lengthen the silence.
        let heard_at = before.as_ref().map_or(listened, |before| before.heard_at.max(listened));
        let heartbeat = heartbeat.clone();
        self.0.insert(from, PeerDispatcher { heartbeat, arrivals, heard_at });
        Some(before)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, id: PeerId) -> Option<&PeerDispatcher> {
        self.0.get(&id)
    }

    /// The longest interval between two heartbeats of each, in milliseconds.
    pub(super) fn gaps(&self) -> impl Iterator<Item = (&Name, u64)> {
        self.0.values().map(|peer| (&peer.heartbeat.name, peer.arrivals.gap_ms_max))
    }

    pub(super) fn owns(&self, mac: Mac) -> bool {
        self.0.values().any(|peer| peer.heartbeat.mac == mac)
    }

    /// The dispatcher with the latest epoch among those active within the last `ms`, and the time
    /// of its heartbeat.
    pub(super) fn active(&self, listened: Now, ms: u64) -> Option<(PeerId, u64, Now)> {
        let fresh =
            self.0.iter().filter(|(_, peer)| peer.is_active() && peer.is_fresh(listened, ms));
        let best = fresh.max_by_key(|(_, peer)| peer.heartbeat.epoch);
        best.map(|(id, peer)| (*id, peer.heartbeat.epoch, peer.heard_at))
    }

    /// Whether a standby that could take over sent a heartbeat within the last `ms`.
    pub(super) fn has_standby(&self, listened: Now, ms: u64) -> bool {
        let is_standby = |peer: &PeerDispatcher| peer.heartbeat.stage == Stage::Standby;
        self.0.values().any(|peer| is_standby(peer) && peer.is_fresh(listened, ms))
    }

    /// The number of dispatchers alive within the last `ms` that would take over before `own`.
    pub(super) fn fitter(&self, listened: Now, ms: u64, own: Fitness) -> u64 {
        let is_fitter = |(id, peer): &(&PeerId, &PeerDispatcher)| {
            let would = matches!(peer.heartbeat.stage, Stage::Standby | Stage::Joining);
            let fitness = (peer.heartbeat.flows_synced, peer.heartbeat.priority, **id);
            would && peer.is_fresh(listened, ms) && fitness > own
        };
        self.0.iter().filter(is_fitter).count() as u64
    }
}

impl PeerDispatcher {
    pub(super) fn is_active(&self) -> bool {
        self.heartbeat.stage == Stage::Active
    }

    pub(super) fn is_fresh(&self, listened: Now, ms: u64) -> bool {
        listened.since_ms(self.heard_at) <= ms
    }

    /// Time since its last heartbeat, including pauses of this process, in milliseconds.
    pub(super) fn silent_ms(&self, real: Now) -> u64 {
        real.since_ms(self.arrivals.at)
    }
}
