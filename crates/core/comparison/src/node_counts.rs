//! Nodes' counts of arms, for cases in which nodes answer without the dispatcher: `handoff`.
//!
//! Each node reports sums since it began to count, so that messages may be lost. The sums here
//! cover what nodes have counted since this test began: for a node that began earlier, counting
//! starts at its first report.

use std::collections::BTreeMap;

use skep_wire::message::ArmCounts;
use skep_wire::seal::PeerId;

use crate::tally::ArmTally;

/// The sums of all nodes, including those that have left.
#[derive(Clone, Debug)]
pub struct NodeCounts {
    tallies: Vec<ArmTally>,
    /// The last reports. Bounded by nodes and arms.
    last: BTreeMap<(PeerId, u8), LastCounts>,
}

#[derive(Clone, Debug)]
struct LastCounts {
    session: u64,
    counted_ms: u64,
    cells: Vec<u64>,
}

impl NodeCounts {
    pub fn new(arms: usize) -> Self {
        Self { tallies: vec![ArmTally::default(); arms], last: BTreeMap::new() }
    }

    /// Adds a report of `node` about this test, which has run here for `counted_ms`.
    pub fn hear(&mut self, node: PeerId, told: &ArmCounts, counted_ms: u64) {
        let Some(tally) = self.tallies.get_mut(usize::from(told.arm)) else { return };
        if told.cells.len() != ArmTally::CELLS {
            return;
        }
        let last = self.last.get(&(node, told.arm));
        let known = last.filter(|last| last.session == told.session);
        if known.is_some_and(|known| told.counted_ms < known.counted_ms) {
            // Overtaken by a later report.
            return;
        }
        let began_before = last.is_none() && told.counted_ms > counted_ms;
        if !began_before {
            for (cell, count) in told.cells.iter().enumerate() {
                let before = known.map_or(0, |known| known.cells[cell]);
                tally.add(cell, count.saturating_sub(before));
            }
        }
        let ArmCounts { session, counted_ms, ref cells, .. } = *told;
        let heard = LastCounts { session, counted_ms, cells: cells.clone() };
        self.last.insert((node, told.arm), heard);
    }

    /// Adds the counts of an arm to `tally`.
    pub fn add_to(&self, arm: usize, tally: &mut ArmTally) {
        if let Some(own) = self.tallies.get(arm) {
            tally.merge(own);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ArmEvent, ClientId, record};

    /// A node's counts, with `failures` failures of arm 1.
    fn told(session: u64, counted_ms: u64, failures: u64) -> ArmCounts {
        let mut cells = vec![0; ArmTally::CELLS];
        for _ in 0..failures {
            record(ClientId(1), &ArmEvent::Failed, |cell, count| cells[cell] += count);
        }
        ArmCounts { test: 7, arm: 1, session, counted_ms, cells }
    }

    fn failures(counts: &NodeCounts) -> u64 {
        let mut tally = ArmTally::default();
        counts.add_to(1, &mut tally);
        tally.failures()
    }

    #[test]
    fn sums_of_nodes_are_added_whatever_is_lost_late_or_begun_anew() {
        let mut counts = NodeCounts::new(2);
        let (one, other) = (PeerId(1), PeerId(2));
        counts.hear(one, &told(5, 1_000, 3), 1_000);
        counts.hear(one, &told(5, 3_000, 4), 3_000);
        counts.hear(one, &told(5, 2_000, 9), 3_100);
        assert_eq!(failures(&counts), 4, "the last was overtaken");
        counts.hear(other, &told(5, 1_000, 10), 3_200);
        assert_eq!(failures(&counts), 14);
        // The node has restarted.
        counts.hear(one, &told(6, 100, 2), 4_000);
        assert_eq!(failures(&counts), 16);
        // This node has counted for longer than the test has run here: only later events belong to
        // it.
        counts.hear(PeerId(3), &told(5, 9_000, 50), 5_000);
        counts.hear(PeerId(3), &told(5, 10_000, 51), 6_000);
        assert_eq!(failures(&counts), 17);
        for wrong in [
            ArmCounts { arm: 2, ..told(5, 1, 1) },
            ArmCounts { cells: vec![1; 3], ..told(5, 20_000, 1) },
        ] {
            counts.hear(one, &wrong, 6_000);
        }
        assert_eq!(failures(&counts), 17);
    }
}
