//! Failure detector: decides by their heartbeats which nodes are alive.
//!
//! A node is alive from its first heartbeat until it has been silent for `missed_max` intervals and
//! a half, counting only time in which this process was listening. A node that reports that it is
//! leaving stays alive, but receives no new flows.
//!
//! While no node's heartbeats arrive, no node is declared dead: this machine is assumed to be cut
//! off.

use std::collections::BTreeMap;

use skep_units::Now;
use skep_wire::limits::PEERS_MAX;
use skep_wire::message::{Name, NodeHeartbeat};
use skep_wire::seal::Stamp;

use crate::arrivals::Arrivals;
use crate::listening::Listening;

/// Consecutive heartbeats of all nodes that may be lost before this machine counts as cut off.
const DEAF_HEARTBEATS: u64 = 3;

/// Silence after which a machine is considered dead, in milliseconds: half an interval more than
/// the heartbeats that may be missed, so that the last of them may be late.
pub fn silence_ms(interval_ms: u64, missed_max: u32) -> u64 {
    interval_ms * u64::from(missed_max) + interval_ms / 2
}

/// Settings of the failure detector: when a node counts as dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureDetectorSettings {
    /// Interval of a node's heartbeats, in milliseconds.
    pub interval_ms: u64,
    /// Consecutive missed heartbeats after which it is dead.
    pub missed_max: u32,
}

impl Default for FailureDetectorSettings {
    /// Dead after 525 ms, so that it is out of the tables within a second; in a network that loses
    /// every fifth datagram, a false detection happens once in 10^7 heartbeats.
    fn default() -> Self {
        Self { interval_ms: 50, missed_max: 10 }
    }
}

/// Liveness of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// No heartbeat was ever received.
    Unheard,
    /// Alive, and accepts flows.
    Alive,
    /// Alive, and completes its current work.
    Leaving,
    /// Was alive before, and is silent.
    Dead,
}

/// Detects the failure of nodes: a node whose heartbeats stop is declared dead after some time.
///
/// Invariant: knows at most [`PEERS_MAX`] nodes.
#[derive(Clone, Debug)]
pub struct FailureDetector {
    settings: FailureDetectorSettings,
    listening: Listening,
    /// Time of the last heartbeat of any node.
    heard_at: Option<Now>,
    nodes: BTreeMap<Name, Monitored>,
}

/// A node whose heartbeats were received, alive or dead.
#[derive(Clone, Debug)]
struct Monitored {
    heartbeat: NodeHeartbeat,
    arrivals: Arrivals,
    /// In listening time.
    heard_at: Now,
    is_alive: bool,
}

impl FailureDetector {
    /// A detector that monitors no node yet.
    pub fn new(settings: FailureDetectorSettings) -> Self {
        assert!(settings.interval_ms > 0 && settings.missed_max > 0, "{settings:?}");
        let listening = Listening::new(settings.interval_ms);
        Self { settings, listening, heard_at: None, nodes: BTreeMap::new() }
    }

    /// Interval of a node's heartbeats, in milliseconds.
    pub fn interval_ms(&self) -> u64 {
        self.settings.interval_ms
    }

    /// Silence after which a node is dead, in milliseconds.
    pub fn silence_ms(&self) -> u64 {
        silence_ms(self.settings.interval_ms, self.settings.missed_max)
    }

    /// Whether this process has been listening for longer than a node may be silent, so that nodes
    /// whose heartbeats were not received are dead.
    pub fn has_settled(&self) -> bool {
        self.listening.total_ms() > self.silence_ms()
    }

    /// Records a heartbeat that is authentic and fresh and was received at `arrived`. Returns false
    /// if a later one of the same node was received before, or if there would be too many nodes.
    pub fn heard(&mut self, arrived: Now, heartbeat: NodeHeartbeat, stamp: Stamp) -> bool {
        self.listened(arrived);
        let heard_at = self.listening.of(arrived);
        let known = self.nodes.get(&heartbeat.name);
        let arrivals = Arrivals::next(known.map(|node| node.arrivals), stamp, arrived);
        let is_crowded = known.is_none() && self.nodes.len() >= PEERS_MAX;
        let Some(arrivals) = arrivals.filter(|_| !is_crowded) else { return false };
        // Heartbeats queued during a pause of this process must not lengthen the silence.
        let heard_at = known.map_or(heard_at, |node| node.heard_at.max(heard_at));
        self.heard_at = self.heard_at.max(Some(arrived));
        let name = heartbeat.name.clone();
        self.nodes.insert(name, Monitored { heartbeat, arrivals, heard_at, is_alive: true });
        true
    }

    /// Advances the time; returns the nodes that are dead now. No node is declared dead just after
    /// a pause of this process, since its heartbeats may have arrived meanwhile.
    pub fn tick(&mut self, now: Now) -> Vec<Name> {
        let (listened, silence_ms) = (self.listened(now), self.silence_ms());
        let mut dead = Vec::new();
        if !self.listening.is_awake() {
            return dead;
        }
        for (name, node) in &mut self.nodes {
            if node.is_alive && listened.since_ms(node.heard_at) > silence_ms {
                node.is_alive = false;
                dead.push(name.clone());
            }
        }
        dead
    }

    /// Whether no heartbeat has arrived for longer than two lost heartbeats explain.
    pub fn hears_nobody(&self, now: Now) -> bool {
        let deaf_ms = DEAF_HEARTBEATS * self.settings.interval_ms;
        self.heard_at.is_none_or(|at| now.since_ms(at) > deaf_ms)
    }

    fn listened(&mut self, now: Now) -> Now {
        match self.hears_nobody(now) {
            true => self.listening.deaf_at(now),
            false => self.listening.at(now),
        }
    }

    /// Liveness of a node.
    pub fn life(&self, name: &Name) -> Liveness {
        match self.nodes.get(name) {
            None => Liveness::Unheard,
            Some(node) if !node.is_alive => Liveness::Dead,
            Some(node) if node.heartbeat.is_leaving => Liveness::Leaving,
            Some(_) => Liveness::Alive,
        }
    }

    /// The last heartbeat of a node, dead or alive.
    pub fn heartbeat(&self, name: &Name) -> Option<&NodeHeartbeat> {
        self.nodes.get(name).map(|node| &node.heartbeat)
    }

    /// The last heartbeats of live nodes.
    pub fn living(&self) -> impl Iterator<Item = &NodeHeartbeat> {
        self.nodes.values().filter(|node| node.is_alive).map(|node| &node.heartbeat)
    }

    /// The longest interval between two heartbeats of each node's process, in milliseconds.
    pub fn heartbeat_gaps(&self) -> impl Iterator<Item = (&Name, u64)> {
        self.nodes.iter().map(|(name, node)| (name, node.arrivals.gap_ms_max))
    }

    /// Forgets all other nodes.
    pub fn retain(&mut self, mut is_wanted: impl FnMut(&Name) -> bool) {
        self.nodes.retain(|name, _| is_wanted(name));
    }
}
