//! API schemas of all nodes of a cluster together, and of orders to all of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::pools::{MissingNode, NewServer, ServerStatus};
use super::series::RequestStatus;

/// A change of a server of a pool at all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerCommand {
    /// Adds a new server.
    Add(Box<NewServer>),
    /// Removes the server; its requests have this many milliseconds to end.
    Remove { timeout_ms: u64 },
    /// Stops new requests.
    Drain,
    /// Allows new requests again.
    Resume,
    /// Sets another share of the work.
    Weight(u32),
}

/// The result of an order concerning a server of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServerOrdered {
    /// Whether the order was carried out by this process and by every node that is linked with a dispatcher.
    pub complete: bool,
    /// The result at each node of the config.
    pub nodes: Vec<OrderedNode>,
}

/// The result of an order at a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OrderedNode {
    /// Name of the node.
    pub node: String,
    /// Whether the node has carried out the order.
    pub done: bool,
    /// Why not; or, if it is `away`, why it could not be asked.
    pub why: Option<String>,
    /// Whether it could not be asked. It carries out the order when it links with a dispatcher that has the
    /// order, or receives it from another node.
    pub away: bool,
    /// The server as the node sees it afterwards; absent if it is gone or never existed there.
    pub server: Option<ServerStatus>,
}

/// The requests that all nodes currently have at servers of pools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterRequests {
    /// The requests, oldest first, at most 1,000 per node.
    pub requests: Vec<NodeRequest>,
    /// The number of requests by pool and by network of their clients.
    pub by_network: BTreeMap<String, BTreeMap<String, u64>>,
    /// Nodes whose requests are unknown.
    pub missing: Vec<MissingNode>,
}

/// A request, and the process that forwarded it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeRequest {
    /// Name of the node; or of the dispatcher, if it forwarded the request to a node.
    pub from: String,
    #[serde(flatten)]
    pub request: RequestStatus,
}

/// Requests of all nodes over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterSeries {
    /// Length of a step, in seconds.
    pub step_s: u64,
    /// Period for which steps are kept, in seconds.
    pub kept_s: u64,
    /// The nodes whose requests are included.
    pub nodes: Vec<String>,
    /// Nodes whose requests are unknown.
    pub missing: Vec<MissingNode>,
    /// The steps that have ended at one node at least, oldest first.
    pub points: Vec<ClusterPoint>,
}

/// The counts of nodes in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterPoint {
    /// Start of the step, in seconds since 1970.
    pub at_unix_s: u64,
    /// The number of nodes that have this step; the others were not running, or were suspended.
    pub nodes: u64,
    /// All requests that ended.
    pub requests: u64,
    /// Requests sent to servers of pools; each attempt counts.
    pub to_pools: u64,
    /// Of these, those without a complete response.
    pub pool_failures: u64,
    /// Responses with status 500 to 599.
    pub responses_5xx: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
}
