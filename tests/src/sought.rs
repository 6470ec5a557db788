//! Samples of metrics: what became of segments that nodes sought.

/// Got from where they come from.
pub const ORIGIN: &str = "skep_cluster_cache_total{outcome=\"origin\"}";

/// Filled remotely: got from where they come from by a node with more room, and read
/// along.
pub const REMOTE_FILLS: &str = "skep_cluster_cache_total{outcome=\"remote_fill\"}";

/// Got from a node that has them.
pub const PEER: &str = "skep_cluster_cache_total{outcome=\"peer_hit\"}";

/// Got from their owner, for want of a coordinator.
pub const OWNER: &str = "skep_cluster_cache_total{outcome=\"owner\"}";

/// A node broke off, or was not reached.
pub const LOST: &str = "skep_cluster_cache_total{outcome=\"lost\"}";

/// A node said no.
pub const REFUSED: &str = "skep_cluster_cache_total{outcome=\"refused\"}";

/// A node was said to have them, and did not.
pub const DIRECTORY_ERROR: &str = "skep_cluster_cache_total{outcome=\"directory_error\"}";

/// The coordinator did not answer.
pub const SILENT: &str = "skep_cluster_cache_total{outcome=\"silent\"}";

/// All of these: the first one asked gave nothing, and others were asked, in the end the origin.
pub const DOUBTS: [&str; 4] = [LOST, REFUSED, DIRECTORY_ERROR, SILENT];

/// Not got from anywhere.
pub const FAILED: &str = "skep_cluster_cache_total{outcome=\"failed\"}";

/// Bytes from where they come from.
pub const ORIGIN_BYTES: &str = "skep_cluster_cache_bytes_total{from=\"origin\"}";

/// Bytes from other nodes' memories.
pub const PEER_BYTES: &str = "skep_cluster_cache_bytes_total{from=\"peer\"}";
