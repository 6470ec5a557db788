//! Queries of the status of processes in direct dispatch.

use crate::direct::DirectCluster;

impl DirectCluster {
    /// Returns the output of `skep status --json` of a process.
    #[track_caller]
    pub fn whole_status(&self, name: &str) -> serde_json::Value {
        let text = self.control(name, &["status", "--json"]);
        serde_json::from_str(&text).expect("JSON of ours")
    }

    /// Returns the number of packets with this verdict in a machine's XDP program, as last counted by its
    /// process.
    #[track_caller]
    pub fn packets(&self, name: &str, verdict: &str) -> u64 {
        let status = self.whole_status(name);
        let met = status["direct"]["packets"].as_array().expect("a part in direct dispatch");
        let count = met.iter().find(|it| it["verdict"] == verdict);
        count.and_then(|it| it["packets"].as_u64()).unwrap_or(0)
    }

    /// Returns the number of times that these dispatchers have become active so far, including the first at
    /// start.
    pub fn claims(&self, dispatchers: &[String]) -> usize {
        let became =
            |line: &&str| line.contains(" active with epoch ") && !line.contains(" is active");
        let claims = |name: &String| self.log(name).lines().filter(became).count();
        dispatchers.iter().map(claims).sum()
    }

    /// Returns a dispatcher's view of a node: its state, and its last reported number of connections.
    #[track_caller]
    pub fn node_seen(&self, dispatcher: &str, node: &str) -> Option<(String, u64)> {
        let status = self.whole_status(dispatcher);
        let services = status["services"].as_array().expect("a list").iter();
        let mut nodes = services.flat_map(|it| it["nodes"].as_array().expect("a service"));
        let node = nodes.find(|it| it["name"] == node)?;
        let state = node["state"].as_str().expect("a word").to_owned();
        Some((state, node["connections"].as_u64().expect("a number")))
    }
}
