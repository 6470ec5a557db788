//! API schemas of A/B tests of policies.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Policies to be compared in a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewComparison {
    /// The arms: two or more.
    #[schema(min_items = 2, max_items = 8)]
    pub arms: Vec<NewArm>,
}

/// An arm: a policy for a part of the clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewArm {
    /// Name of the arm.
    #[schema(max_length = 64)]
    pub name: String,
    /// Name of its policy, such as `round-robin`.
    pub policy: String,
    /// Its share of the clients, relative to the weights of the other arms; 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 256)]
    pub weight: Option<u32>,
    /// Its group of nodes, which no other arm may contain; empty: all nodes, for all arms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
}

/// An A/B test of a service, as counted by this dispatcher.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PolicyComparison {
    /// Name of the service.
    pub service: String,
    /// Duration of counting, in milliseconds.
    pub counted_ms: u64,
    /// Whether the host table is full: the arm of further clients is determined by the hash of their
    /// address.
    pub table_full: bool,
    /// Whether that applies to all clients, because nodes make the choice: there is no host table, and
    /// clients are not counted.
    pub by_hash: bool,
    /// The arms; differences are relative to the first.
    pub arms: Vec<ComparedArm>,
}

/// An arm and its figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ComparedArm {
    /// Name of the arm.
    pub name: String,
    /// Its policy.
    pub policy: String,
    /// Its share of the clients.
    pub weight: u32,
    /// Its group of nodes; empty: all nodes.
    pub nodes: Vec<String>,
    /// Its clients in the host table, including those reported by other dispatchers.
    pub clients: u64,
    /// Requests that ended, answered or failed.
    pub requests: u64,
    /// Of these, requests without a complete response, or with status 500 to 599.
    pub failures: u64,
    /// Requests redirected to a node; their results are unknown.
    pub redirected: u64,
    /// Requests that no node of the group could accept, so that another node did; they are not included in
    /// other counts.
    pub strayed: u64,
    /// Bytes of response bodies.
    pub bytes: u64,
    /// Responses that report a cache hit.
    pub hits: u64,
    /// Responses that report a hit or a miss.
    pub lookups: u64,
    /// Time to the head of the response, for requests that did not fail.
    pub first_byte: Option<ArmTimes>,
    /// Time to the end of the response.
    pub total: Option<ArmTimes>,
    /// How much later the first byte arrives than in the first arm; null for the first arm, and if there are
    /// too few clients.
    pub first_byte_difference: Option<TimeDifference>,
    /// The same for the end of the response.
    pub total_difference: Option<TimeDifference>,
}

/// A response time of an arm, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ArmTimes {
    pub mean_us: f64,
    /// Half of the width of the mean's 95 % confidence interval, over clients; null if there are too few.
    pub half_width_us: Option<f64>,
    /// Standard deviation over requests.
    pub deviation_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

/// The difference of two means, in microseconds, with its 95 % confidence interval (Welch).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TimeDifference {
    pub mean_us: f64,
    pub low_us: f64,
    pub high_us: f64,
    /// Whether the interval excludes zero.
    pub significant: bool,
}
