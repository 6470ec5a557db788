//! What is shown of a service and its nodes: `skep status`, `skep node list`,
//! the admin API.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// A service at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceStatus {
    pub name: String,
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    /// `proxy` or `redirect`.
    pub dispatch: String,
    /// Name of the policy in force.
    pub policy: String,
    /// Its nodes, the oldest first.
    pub nodes: Vec<NodeStatus>,
}

/// A node at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    pub name: String,
    /// Where dispatchers reach it.
    pub address: SocketAddr,
    /// Host and port that a redirect names.
    pub public_address: String,
    /// `joining`, `up`, `draining`, `drained`, `down` or `removing`.
    pub state: String,
    /// Why it is in that state, where there is something to say.
    pub reason: Option<String>,
    /// How long it has been in that state, in milliseconds.
    pub since_ms: u64,
    /// Where it comes from.
    pub source: NodeSource,
    /// Its share of the work under weighted policies.
    pub weight: u32,
    /// Thousandths of its share that it takes now: below 1000 while it warms
    /// up, 0 while it gets no new requests.
    pub share_permille: u16,
    /// Connections that carry something now: requests and tunnels.
    pub connections: u32,
    /// Requests sent to it and not yet answered in full.
    pub outstanding_requests: u32,
    /// Bytes of announced reply bodies that did not come yet.
    pub outstanding_bytes: u64,
    /// Upgraded connections, such as WebSockets.
    pub tunnels: u32,
    /// Requests that were sent or redirected to it.
    pub requests: u64,
    /// Requests to it that did not end with a whole reply.
    pub failures: u64,
    /// Bytes of its reply bodies.
    pub bytes: u64,
    /// Moving average of its time to answer, in microseconds; 0: none yet.
    pub latency_us: u64,
}

/// Where a node comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeSource {
    /// The config file.
    Config,
    /// The admin API; stays through reloads until it is removed.
    Api,
}
