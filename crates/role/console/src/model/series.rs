//! API schemas of requests: over time, and those in progress.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Requests of a process over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrafficSeries {
    /// Length of a step, in seconds.
    pub step_s: u64,
    /// The time that is kept, in seconds.
    pub kept_s: u64,
    /// The steps that are over, the oldest first. One that is not there is not known: the process did not
    /// run, or stood still.
    pub points: Vec<TrafficPoint>,
}

/// What was counted in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrafficPoint {
    /// Its begin, in seconds since 1970.
    pub at_unix_s: u64,
    /// All requests of clients that ended.
    pub requests: u64,
    /// Requests that were sent to servers of pools; one that is tried again counts again.
    pub to_pools: u64,
    /// Of these, those without a whole response.
    pub pool_failures: u64,
    /// Responses of 500 to 599.
    pub responses_5xx: u64,
    /// Bytes sent to clients.
    pub sent_bytes: u64,
}

/// A request that a server of a pool, or a node, has now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestStatus {
    /// The pool, if it is at a server of one.
    pub pool: Option<String>,
    /// The service, if it is at a node.
    pub service: Option<String>,
    /// Name of the server or node.
    pub at: String,
    /// The client's address.
    #[schema(value_type = String)]
    pub client: std::net::IpAddr,
    /// The network of the config that has it, or `other`.
    #[serde(default)]
    pub network: String,
    /// Its method.
    pub method: String,
    /// The beginning of its path, without query and parameters.
    pub path: String,
    /// Time since it was sent there, in milliseconds.
    pub age_ms: u64,
    /// Whether it was upgraded, as to a WebSocket.
    pub is_tunnel: bool,
}
