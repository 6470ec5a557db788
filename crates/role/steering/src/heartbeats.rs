//! Selects the nodes to which each heartbeat of this dispatcher is sent.
//!
//! Dispatchers send each other heartbeats often, so that a takeover is quick. Nodes only report which
//! dispatchers' heartbeats they receive: in a large cluster each gets a part of the heartbeats, so
//! that their cost is bounded.

use skep_wire::message::{DispatcherHeartbeat, Stage};

/// Heartbeats that a dispatcher sends to nodes per second, at most: some hundredths of a core. By
/// default, with one every 20 ms, 500 nodes get all of them, and each of 1,024 every other one.
const NODE_HEARTBEATS_PER_S_MAX: u64 = 25_000;

/// Rotates through the nodes.
#[derive(Debug, Default)]
pub struct HeartbeatTurns {
    turn: usize,
    /// Stage and epoch in the last heartbeat.
    said: Option<(Stage, u64)>,
}

impl HeartbeatTurns {
    /// The nodes, by index among `nodes`, to which this heartbeat is sent; `interval_ms` is the
    /// heartbeat interval. A new stage or term is sent to all.
    pub fn next(
        &mut self,
        heartbeat: &DispatcherHeartbeat,
        nodes: usize,
        interval_ms: u64,
    ) -> impl Iterator<Item = usize> + use<> {
        let said = Some((heartbeat.stage, heartbeat.epoch));
        let is_news = std::mem::replace(&mut self.said, said) != said;
        let turns = if is_news { 1 } else { turns(nodes, interval_ms) };
        self.turn = self.turn.wrapping_add(1);
        (self.turn % turns..nodes).step_by(turns)
    }
}

/// Number of heartbeats until each node has received one.
fn turns(nodes: usize, interval_ms: u64) -> usize {
    let per_heartbeat_max = NODE_HEARTBEATS_PER_S_MAX * interval_ms / 1000;
    nodes.div_ceil(usize::try_from(per_heartbeat_max).unwrap_or(usize::MAX).max(1)).max(1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use skep_units::NODES_MAX;
    use skep_wire::message::Name;
    use skep_wire::table::TableVersion;

    use super::*;

    fn heartbeat(epoch: u64) -> DispatcherHeartbeat {
        DispatcherHeartbeat {
            name: Name::new("d1").unwrap(),
            stage: Stage::Active,
            epoch,
            priority: 100,
            flows_synced: true,
            table: TableVersion::default(),
            hears: None,
            mac: [2; 6],
        }
    }

    #[test]
    fn all_nodes_get_their_turn_and_news_at_once() {
        for (nodes, interval_ms, turns) in
            [(0, 20, 1), (500, 20, 1), (501, 20, 2), (NODES_MAX, 20, 3), (NODES_MAX, 50, 1)]
        {
            let mut heartbeats = HeartbeatTurns::default();
            let mut next = |epoch| -> Vec<usize> {
                heartbeats.next(&heartbeat(epoch), nodes, interval_ms).collect()
            };
            let all: Vec<usize> = (0..nodes).collect();
            assert_eq!(next(8), all, "the first");
            let mut seen: Vec<usize> = (0..turns).flat_map(|_| next(8)).collect();
            seen.sort_unstable();
            assert_eq!(seen, all, "each once in {turns} of {nodes}");
            assert_eq!(next(16), all, "a new term");
        }
    }
}
