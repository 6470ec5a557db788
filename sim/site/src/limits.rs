//! Fixed numbers of the model, with units and reasons.

/// Nanoseconds per second: the virtual clock counts nanoseconds, since a small response takes microseconds.
pub(crate) const NS_PER_S: u64 = 1_000_000_000;
pub(crate) const NS_PER_MS: u64 = 1_000_000;
pub(crate) const NS_PER_US: u64 = 1_000;

/// Bytes that a transfer may lack at its end: the rounding error of virtual time, which hardly exceeds a rate
/// times one nanosecond.
pub(crate) const BYTES_EPSILON: f64 = 1e-3;

/// Segments that a node fetches ahead of the one that it sends, as in the design.
pub(crate) const SEGMENTS_AHEAD: u32 = 2;

/// Rates of a node's link and disk, in bytes per second, and a disk's time to the first byte, in
/// microseconds: gigabit Ethernet and one hard disk, as in the measurements of data-intensive sites.
pub(crate) const LINK_BYTES_PER_S: u64 = 125_000_000;
pub(crate) const DISK_BYTES_PER_S: u64 = 120_000_000;
pub(crate) const DISK_LATENCY_US: u64 = 8_000;

/// Time until the first byte of another node's memory arrives, in microseconds: a round trip and its work.
pub(crate) const PEER_LATENCY_US: u64 = 200;

/// Processor time of a request, in microseconds, at speed 1.
pub(crate) const REQUEST_US: u64 = 20;

/// Interval of load reports to dispatchers, if there are several, in milliseconds.
pub(crate) const REPORT_INTERVAL_MS: u64 = 100;

/// Divisor of the part of the bytes to clients that counts towards a node's refusal of other nodes, and the
/// bytes above which it refuses: as in live nodes.
pub(crate) const CLIENT_BYTES_PART: u64 = 8;
pub(crate) const PEER_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Maximum time without a request in a log, in nanoseconds: everything is idle by then, and 4 million such
/// gaps are within the range of the virtual clock.
pub(crate) const LOG_GAP_NS_MAX: u64 = 600 * NS_PER_S;

/// Maximum number of segments of a site from a log: the list of holders takes 24 bytes each. 40 TB of large
/// objects.
pub(crate) const SITE_SEGMENTS_MAX: u64 = 10_000_000;

/// Significant digits of response times in histograms.
pub(crate) const RESPONSE_DIGITS: u8 = 3;

/// Number of size classes of responses: decades of bytes, the last one open.
pub const SIZE_CLASSES: usize = 10;

/// Samples of elasticity's controller per decision, as live.
pub(crate) const ELASTIC_SAMPLES: u64 = 10;

/// Interval at which nodes report changes of their memories to coordinators, in milliseconds, and the number
/// of names in a message about the segments to be evicted next: as in live nodes.
pub(crate) const CHANGES_TICK_MS: u64 = 20;
pub(crate) const TAIL_NAMES: usize = 63;

/// Interval of a lease's renewals, in milliseconds, as in live nodes.
pub(crate) const RENEW_MS: u64 = 500;

/// Timeout after which a dispatcher tries the next node, in milliseconds: the default.
pub(crate) const CONNECT_TIMEOUT_MS: u64 = 1_000;

/// Timeouts after which a node abandons a fetch from another node, in milliseconds, before its first byte and
/// after it: as in live nodes.
pub(crate) const PEER_REPLY_MS: u64 = 1_000;
pub(crate) const PEER_CHUNK_MS: u64 = 2_000;

/// Maximum distance of a window from the mean of settled windows, in standard deviations of those: of equal
/// windows, two in a row are further away once in 100,000.
pub const SETTLED_SIGMAS: f64 = 3.0;

/// How often a segment that no other node has is passed on without being asked for, and bytes of those that wait for it: as
/// nodes do.
pub(crate) const CHANCES: u8 = 2;
pub(crate) const LEAVING_BYTES_MAX: u64 = 4 * skep_units::SEGMENT_BYTES;
