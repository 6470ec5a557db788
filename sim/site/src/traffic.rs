//! The messages of a cluster cache's coordinator, by the rules of live nodes: a question for each segment
//! that a node lacks and is not fetching; the end of each fill; the changes of a memory during a tick, in one
//! message; and for a nearly full memory the segments to be evicted next.
//!
//! Counted for one coordinator. Standby coordinators receive the same, but no questions. Not counted:
//! keepalives, heads of an origin's objects (one more question each), purges, messages at the start of a
//! link.

use skep_wire::cache::ReplicaStatus;
use skep_wire::cache::frame::FRAME_HEAD_BYTES;
use skep_wire::cache::{CoordinatorAnswer, Held, LeaseId, SegmentName, ToCoordinator, ToNode};

use crate::limits::{CHANGES_TICK_MS, NS_PER_MS, TAIL_NAMES};

/// Messages and entries over the measured part of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoordinatorTraffic {
    /// Requests of clients in that time.
    pub requests: u64,
    /// Questions about the location of a segment; as many answers.
    pub look_ups: u64,
    /// Completed fills, and renewals of their leases.
    pub fills_ended: u64,
    pub renewals: u64,
    /// Segments added to memories, and removed from them.
    pub added: u64,
    pub removed: u64,
    /// Messages with those changes.
    pub deltas: u64,
    /// Messages with the segments to be evicted next; as many answers.
    pub tails: u64,
    /// The maximum number of segments at nodes, over the whole run.
    pub holdings_most: u64,
}

/// Counts the messages.
pub(crate) struct TrafficMeter {
    pub(crate) traffic: CoordinatorTraffic,
    holdings: u64,
    /// For each node, the tick of its last message with changes.
    ticks: Vec<u64>,
}

/// A change of a node's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryChange {
    pub(crate) added: u64,
    pub(crate) removed: u64,
    /// Whether it is so full that the node asks which segments may be evicted.
    pub(crate) is_nearly_full: bool,
}

impl CoordinatorTraffic {
    /// The number of messages to the coordinator.
    pub fn messages(&self) -> u64 {
        self.look_ups + self.fills_ended + self.renewals + self.deltas + self.tails
    }

    /// The number of messages from the coordinator.
    pub fn answers(&self) -> u64 {
        self.look_ups + self.tails
    }

    /// The number of names that the coordinator looks up or changes.
    pub fn entries(&self) -> u64 {
        let tails = self.tails * TAIL_NAMES as u64;
        self.look_ups + self.fills_ended + self.renewals + self.added + self.removed + tails
    }

    /// Bytes of these messages including frames, to the coordinator and from it, by the codec of live links.
    pub fn link_bytes(&self) -> [f64; 2] {
        let name = SegmentName([0x5a; 16]);
        let segment_bytes = skep_units::SEGMENT_BYTES as u32;
        let (ask, lease) = (1 << 24, LeaseId(u64::MAX / 3));
        let frame = |payload: Vec<u8>| (FRAME_HEAD_BYTES + payload.len()) as f64;
        let delta = |added: usize, removed: usize| {
            let held = Held { name, bytes: segment_bytes };
            let delta =
                ToCoordinator::Delta { added: vec![held; added], removed: vec![name; removed] };
            frame(delta.encode())
        };
        let empty = delta(0, 0);
        let question = ToCoordinator::Ask { ask, name, bytes: segment_bytes };
        let tail = ToCoordinator::Tail { names: vec![name; TAIL_NAMES] };
        let to = self.look_ups as f64 * frame(question.encode())
            + self.fills_ended as f64
                * frame(ToCoordinator::Ended { lease, is_held: true }.encode())
            + self.renewals as f64 * frame(ToCoordinator::Renew { lease }.encode())
            + self.deltas as f64 * empty
            + self.added as f64 * (delta(1, 0) - empty)
            + self.removed as f64 * (delta(0, 1) - empty)
            + self.tails as f64 * frame(tail.encode());
        let answer = CoordinatorAnswer::Have { holders: vec![500, 501] };
        let statuses = ToNode::Tail {
            names: vec![name; TAIL_NAMES],
            replica_statuses: vec![ReplicaStatus::Redundant; TAIL_NAMES],
            roomiest: Some(500),
        };
        let from = self.look_ups as f64 * frame(ToNode::Answer { ask, answer }.encode())
            + self.tails as f64 * frame(statuses.encode());
        [to, from]
    }
}

impl TrafficMeter {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { traffic: CoordinatorTraffic::default(), holdings: 0, ticks: vec![u64::MAX; nodes] }
    }

    /// Restarts the counts: what was counted so far is not measured.
    pub(crate) fn restart(&mut self) {
        let holdings_most = self.traffic.holdings_most;
        self.traffic = CoordinatorTraffic { holdings_most, ..CoordinatorTraffic::default() };
    }

    /// Records a change of a node's memory.
    pub(crate) fn changed(&mut self, now: u64, node: u32, change: MemoryChange) {
        let MemoryChange { added, removed, is_nearly_full } = change;
        self.holdings = self.holdings + added - removed;
        self.traffic.holdings_most = self.traffic.holdings_most.max(self.holdings);
        self.traffic.added += added;
        self.traffic.removed += removed;
        let tick = now / (CHANGES_TICK_MS * NS_PER_MS);
        let last = std::mem::replace(&mut self.ticks[node as usize], tick);
        if (added > 0 || removed > 0) && last != tick {
            self.traffic.deltas += 1;
            self.traffic.tails += u64::from(is_nearly_full);
        }
    }

    /// Records that a node's link ended, and with it the coordinator's record of its memory.
    pub(crate) fn forget(&mut self, holdings: u64) {
        self.holdings -= holdings;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_a_tick_are_one_message() {
        let mut meter = TrafficMeter::new(2);
        let change = MemoryChange { added: 1, removed: 0, is_nearly_full: false };
        let ms = |ms: u64| ms * NS_PER_MS;
        for (at, node) in [(ms(1), 0), (ms(19), 0), (ms(19), 1), (ms(20), 0), (ms(400), 1)] {
            meter.changed(at, node, change);
        }
        meter.changed(ms(401), 1, MemoryChange { removed: 3, is_nearly_full: true, ..change });
        meter.changed(ms(421), 1, MemoryChange { added: 0, removed: 1, is_nearly_full: true });
        let CoordinatorTraffic { added, removed, deltas, tails, holdings_most, .. } = meter.traffic;
        assert_eq!((added, removed, deltas, tails, holdings_most), (6, 4, 5, 1, 5));
    }

    #[test]
    fn bytes_are_those_of_frames() {
        let one = CoordinatorTraffic { look_ups: 1, ..CoordinatorTraffic::default() };
        let [to, from] = one.link_bytes();
        assert!((30.0..40.0).contains(&to) && (14.0..24.0).contains(&from), "{to} {from}");
        let delta = CoordinatorTraffic { deltas: 1, added: 10, ..CoordinatorTraffic::default() };
        assert!((delta.link_bytes()[0] - 11.0 - 200.0).abs() < 1.0, "{:?}", delta.link_bytes());
    }
}
