//! API schemas of requests: over time, and those in progress.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Requests of a process over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrafficSeries {
    /// Length of a step, in seconds.
    pub step_s: u64,
    /// Period for which steps are kept, in seconds.
    pub kept_s: u64,
    /// The steps that have ended, oldest first. Values of a missing step are unknown: the process was not
    /// running, or was suspended.
    pub points: Vec<TrafficPoint>,
}

/// The counts of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrafficPoint {
    /// Start of the step, in seconds since 1970.
    pub at_unix_s: u64,
    /// All requests of clients that ended.
    pub requests: u64,
    /// Requests sent to servers of pools; each attempt counts.
    pub to_pools: u64,
    /// Of these, those without a complete response.
    pub pool_failures: u64,
    /// Responses with status 500 to 599.
    pub responses_5xx: u64,
    /// Bytes sent to clients.
    pub sent_bytes: u64,
}

/// A request in progress at a server of a pool, or at a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestStatus {
    /// The pool, if it is at a server of a pool.
    pub pool: Option<String>,
    /// The service, if it is at a node.
    pub service: Option<String>,
    /// Name of the server or node.
    pub at: String,
    /// The client's address.
    #[schema(value_type = String)]
    pub client: std::net::IpAddr,
    /// The client's network in the config, or `other`.
    #[serde(default)]
    pub network: String,
    /// The request method.
    pub method: String,
    /// The beginning of the path, without query and parameters.
    pub path: String,
    /// Time since it was sent to the server or node, in milliseconds.
    pub age_ms: u64,
    /// Whether it was upgraded, for example to a WebSocket.
    pub is_tunnel: bool,
}
