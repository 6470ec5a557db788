//! Failure detector: decides by heartbeats which nodes are alive.
//!
//! A node is alive from its first heartbeat until `missed_max` intervals and a half have
//! passed in silence, counting only time in which this process was listening. A node that reports
//! that it is leaving stays alive, but receives no new flows.
//!
//! While no heartbeats arrive from any node, no node is declared dead: then this machine is cut off.

use std::collections::BTreeMap;

use skep_units::Now;
use skep_wire::limits::PEERS_MAX;
use skep_wire::message::{Name, NodeHeartbeat};
use skep_wire::seal::Stamp;

use crate::arrivals::Arrivals;
use crate::listening::Listening;

/// Heartbeats in a row that may be lost of all nodes before the silence is this machine's.
const DEAF_HEARTBEATS: u64 = 3;

/// Silence after which a machine is taken for dead, in milliseconds: half an interval more than the
/// heartbeats that may be missed, so that the last of them may be late.
pub fn silence_ms(interval_ms: u64, missed_max: u32) -> u64 {
    interval_ms * u64::from(missed_max) + interval_ms / 2
}

/// Settings of the failure detector: when a node counts as dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureDetectorSettings {
    /// Time from one heartbeat of a node to the next, in milliseconds.
    pub interval_ms: u64,
    /// Heartbeats missed in a row after which it is dead.
    pub missed_max: u32,
}

impl Default for FailureDetectorSettings {
    /// Dead after 525 ms, so that it is out of the tables within a second; in a
    /// network that loses every fifth datagram once in 10^7 heartbeats by mistake.
    fn default() -> Self {
        Self { interval_ms: 50, missed_max: 10 }
    }
}

/// Liveness of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Never heard.
    Unheard,
    /// Lives and takes flows.
    Alive,
    /// Alive, and completes its current work.
    Leaving,
    /// Was heard before, and is silent.
    Dead,
}

/// Detects the failure of nodes: a node whose heartbeats stop counts as dead after a while.
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

/// A node that was heard, alive or dead.
#[derive(Clone, Debug)]
struct Monitored {
    heartbeat: NodeHeartbeat,
    arrivals: Arrivals,
    /// In time spent listening.
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

    /// Time from one heartbeat of a node to the next, in milliseconds.
    pub fn interval_ms(&self) -> u64 {
        self.settings.interval_ms
    }

    /// Silence after which a node is dead, in milliseconds.
    pub fn silence_ms(&self) -> u64 {
        silence_ms(self.settings.interval_ms, self.settings.missed_max)
    }

    /// Whether this process has been listening for as long as a node may be silent, so
    /// that a node that was not heard is dead.
    pub fn has_settled(&self) -> bool {
        self.listening.total_ms() > self.silence_ms()
    }

    /// Keeps a heartbeat that is authentic and fresh, and came at `arrived`. False if it came after a later
    /// one of the same node, or is from one node more than can be.
    pub fn heard(&mut self, arrived: Now, heartbeat: NodeHeartbeat, stamp: Stamp) -> bool {
        self.listened(arrived);
        let heard_at = self.listening.of(arrived);
        let known = self.nodes.get(&heartbeat.name);
        let arrivals = Arrivals::next(known.map(|node| node.arrivals), stamp, arrived);
        let is_crowded = known.is_none() && self.nodes.len() >= PEERS_MAX;
        let Some(arrivals) = arrivals.filter(|_| !is_crowded) else { return false };
        // What was in the queue in a pause of this process does not make the silence longer.
        let heard_at = known.map_or(heard_at, |node| node.heard_at.max(heard_at));
        self.heard_at = self.heard_at.max(Some(arrived));
        let name = heartbeat.name.clone();
        self.nodes.insert(name, Monitored { heartbeat, arrivals, heard_at, is_alive: true });
        true
    }

    /// Advances the time; returns the nodes that are dead now. None is declared dead just after a pause: a
    /// node that was silent before may send again.
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

    /// Whether no heartbeat has arrived for longer than one or two lost heartbeats explain.
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

    /// The last heartbeats of those that live.
    pub fn living(&self) -> impl Iterator<Item = &NodeHeartbeat> {
        self.nodes.values().filter(|node| node.is_alive).map(|node| &node.heartbeat)
    }

    /// The longest time between two heartbeats of each node's process, in milliseconds.
    pub fn heartbeat_gaps(&self) -> impl Iterator<Item = (&Name, u64)> {
        self.nodes.iter().map(|(name, node)| (name, node.arrivals.gap_ms_max))
    }

    /// Forgets all nodes but these.
    pub fn retain(&mut self, mut is_wanted: impl FnMut(&Name) -> bool) {
        self.nodes.retain(|name, _| is_wanted(name));
    }
}
