//! Metric samples: the outcomes of segment lookups by nodes.

/// Read from the origin or the disk.
pub const ORIGIN: &str = "skep_cluster_cache_total{outcome=\"origin\"}";

/// Filled remotely: a node with more free memory read the segment from the origin, and this node streamed it
/// from there.
pub const REMOTE_FILLS: &str = "skep_cluster_cache_total{outcome=\"remote_fill\"}";

/// Read from a node that has the segment.
pub const PEER: &str = "skep_cluster_cache_total{outcome=\"peer_hit\"}";

/// Read from the segment's owner, as no coordinator was available.
pub const OWNER: &str = "skep_cluster_cache_total{outcome=\"owner\"}";

/// A node broke the connection off, or was unreachable.
pub const LOST: &str = "skep_cluster_cache_total{outcome=\"lost\"}";

/// A node refused.
pub const REFUSED: &str = "skep_cluster_cache_total{outcome=\"refused\"}";

/// A node did not have a segment that the directory listed for it.
pub const DIRECTORY_ERROR: &str = "skep_cluster_cache_total{outcome=\"directory_error\"}";

/// The coordinator did not answer.
pub const SILENT: &str = "skep_cluster_cache_total{outcome=\"silent\"}";

/// All failures of the first source, after which others were tried, in the end the origin.
pub const DOUBTS: [&str; 4] = [LOST, REFUSED, DIRECTORY_ERROR, SILENT];

/// Not available from any source.
pub const FAILED: &str = "skep_cluster_cache_total{outcome=\"failed\"}";

/// Bytes read from the origin or the disk.
pub const ORIGIN_BYTES: &str = "skep_cluster_cache_bytes_total{from=\"origin\"}";

/// Bytes read from the memory of other nodes.
pub const PEER_BYTES: &str = "skep_cluster_cache_bytes_total{from=\"peer\"}";
