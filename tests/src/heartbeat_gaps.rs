//! Measures how close the machines of a cluster come to their heartbeat timeouts.

use std::collections::BTreeMap;

use crate::direct::DirectCluster;

impl DirectCluster {
    /// Returns the longest times between two heartbeats that a dispatcher received, from another dispatcher
    /// and from a node, in milliseconds.
    #[track_caller]
    pub fn heartbeat_gaps_ms(&self, dispatcher: &str) -> (u64, u64) {
        let text = self.metrics(dispatcher);
        let of = |line: &str| {
            let line = line.strip_prefix("skep_direct_heartbeat_gap_seconds_max{peer=\"")?;
            let (peer, seconds) = line.split_once("\"} ")?;
            Some((peer.to_owned(), (seconds.parse::<f64>().ok()? * 1_000.0).round() as u64))
        };
        let gaps: BTreeMap<String, u64> = text.lines().filter_map(of).collect();
        let peers = self.names().len() - 1;
        assert_eq!(gaps.len(), peers, "{dispatcher} has heard all others:\n{text}");
        let dispatchers = self.dispatcher_names();
        let (of_dispatchers, of_nodes): (Vec<_>, Vec<_>) =
            gaps.into_iter().partition(|(peer, _)| dispatchers.contains(peer));
        let most = |gaps: Vec<(String, u64)>| gaps.into_iter().map(|(_, ms)| ms).max();
        (most(of_dispatchers).unwrap_or(0), most(of_nodes).unwrap_or(0))
    }
}
