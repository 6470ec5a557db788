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

/// What came of an order about a server of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServerOrdered {
    /// Whether every node has done it that is linked with a dispatcher, or is this process.
    pub complete: bool,
    /// The nodes of the config.
    pub nodes: Vec<OrderedNode>,
}

/// A node, and an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OrderedNode {
    /// Name of the node.
    pub node: String,
    /// Whether it has done it.
    pub done: bool,
    /// Why not; or, if it is `away`, why it was not asked.
    pub why: Option<String>,
    /// It could not be asked. It does it when it links with a dispatcher that has the order, or gets it from another
    /// node.
    pub away: bool,
    /// The server as it sees it afterwards; nothing: it is gone, or never was there.
    pub server: Option<ServerStatus>,
}

/// Requests that all nodes have at servers of pools now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterRequests {
    /// The oldest first, at most 1,000 of each node.
    pub requests: Vec<NodeRequest>,
    /// How many there are, by pool, and by network of their clients.
    pub by_network: BTreeMap<String, BTreeMap<String, u64>>,
    /// The nodes whose requests are not known.
    pub missing: Vec<MissingNode>,
}

/// A request, and who has sent it on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeRequest {
    /// Name of the node; of a dispatcher, for a request that it has at a node.
    pub from: String,
    #[serde(flatten)]
    pub request: RequestStatus,
}

/// Requests of all nodes over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterSeries {
    /// Length of a step, in seconds.
    pub step_s: u64,
    /// The time that is kept, in seconds.
    pub kept_s: u64,
    /// The nodes whose requests these are.
    pub nodes: Vec<String>,
    /// The nodes whose requests are not known.
    pub missing: Vec<MissingNode>,
    /// The steps that are over at some node, the oldest first.
    pub points: Vec<ClusterPoint>,
}

/// What nodes have counted in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterPoint {
    /// Its begin, in seconds since 1970.
    pub at_unix_s: u64,
    /// How many nodes know this step; the others did not run, or stood still.
    pub nodes: u64,
    /// All requests that ended.
    pub requests: u64,
    /// Requests that were sent to servers of pools; one that is tried again counts again.
    pub to_pools: u64,
    /// Of these, those without a whole response.
    pub pool_failures: u64,
    /// Responses of 500 to 599.
    pub responses_5xx: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
}
