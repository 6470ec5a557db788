//! API schemas of A/B tests of policies.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Policies to compare in one service.
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
    /// Its share of the clients, against the other arms' weights; 1 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 256)]
    pub weight: Option<u32>,
    /// Its group of nodes, which no other arm has; none: all nodes, for all arms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
}

/// An A/B test of a service, as this dispatcher counts it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PolicyComparison {
    /// Name of the service.
    pub service: String,
    /// How long it has been counting, in milliseconds.
    pub counted_ms: u64,
    /// Whether the host table is full: further clients get an arm by the hash of their address.
    pub table_full: bool,
    /// Whether all clients do, since nodes decide: then there is no host table, and clients are not counted.
    pub by_hash: bool,
    /// The arms; differences are to the first.
    pub arms: Vec<ComparedArm>,
}

/// An arm and its counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ComparedArm {
    /// Name of the arm.
    pub name: String,
    /// Its policy.
    pub policy: String,
    /// Its share of the clients.
    pub weight: u32,
    /// Its group of nodes; none: all.
    pub nodes: Vec<String>,
    /// Its clients in the host table, including those reported by other dispatchers.
    pub clients: u64,
    /// Requests that ended: answered or failed.
    pub requests: u64,
    /// Of these, those without a whole response, or with one of 500 to 599.
    pub failures: u64,
    /// Requests that were redirected to a node; what happened there is not known.
    pub redirected: u64,
    /// Requests that no node of the group could take, so that one outside did; they are in no other count.
    pub strayed: u64,
    /// Bytes of bodies of responses.
    pub bytes: u64,
    /// Responses that say that they came from memory.
    pub hits: u64,
    /// Responses that say whether they did.
    pub lookups: u64,
    /// Time to the head of the response, of those that did not fail.
    pub first_byte: Option<ArmTimes>,
    /// Time to the end of the response.
    pub total: Option<ArmTimes>,
    /// By how much the first byte is later than in the first arm; null for that, and with too few clients.
    pub first_byte_difference: Option<TimeDifference>,
    /// The same of the end.
    pub total_difference: Option<TimeDifference>,
}

/// A time of an arm's requests, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ArmTimes {
    pub mean_us: f64,
    /// Half of the 95 % interval of the mean, over clients; null with too few of them.
    pub half_width_us: Option<f64>,
    /// Standard deviation of requests.
    pub deviation_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

/// The difference of two means, in microseconds, with its 95 % interval (Welch).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TimeDifference {
    pub mean_us: f64,
    pub low_us: f64,
    pub high_us: f64,
    /// Whether the interval leaves out zero.
    pub significant: bool,
}
