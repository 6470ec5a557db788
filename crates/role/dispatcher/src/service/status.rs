//! The displayed state of a service and its nodes: `skep status`, `skep node list`, the admin API.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// The state of a service at one moment.
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

/// The state of a node at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    pub name: String,
    /// The dispatchers' address of it.
    pub address: SocketAddr,
    /// Host and port that a redirect names.
    pub public_address: String,
    /// `joining`, `up`, `draining`, `drained`, `down` or `removing`.
    pub state: String,
    /// The reason for that state, where there is one.
    pub reason: Option<String>,
    /// How long it has been in that state, in milliseconds.
    pub since_ms: u64,
    /// The source of its entry.
    pub source: NodeSource,
    /// Its share of the work under weighted policies.
    pub weight: u32,
    /// Thousandths of its share that it gets now: below 1000 during slow start, 0 while it gets no
    /// new requests.
    pub share_permille: u16,
    /// Connections in use: requests and tunnels.
    pub connections: u32,
    /// Requests sent to it and not yet answered in full.
    pub outstanding_requests: u32,
    /// Bytes of announced reply bodies that have not arrived yet.
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

/// The source of a node's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeSource {
    /// The config file.
    Config,
    /// The admin API; stays through reloads until it is removed.
    Api,
}
