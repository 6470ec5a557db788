//! Fixed numbers of the model, with units and reasons.

/// Nanoseconds of a second: the virtual clock counts them, for a small response takes microseconds.
pub(crate) const NS_PER_S: u64 = 1_000_000_000;
pub(crate) const NS_PER_MS: u64 = 1_000_000;
pub(crate) const NS_PER_US: u64 = 1_000;

/// Bytes that a transfer may lack at its end: what rounding of virtual time leaves, which never exceeds a rate times a
/// nanosecond by much.
pub(crate) const BYTES_EPSILON: f64 = 1e-3;

/// Segments that a node fetches ahead of the one that it sends: the design's.
pub(crate) const SEGMENTS_AHEAD: u32 = 2;

/// A node's link and disk, in bytes per second, and a disk's time to its first byte, in microseconds: a gigabit, and one
/// hard disk, as in the measurements of data-intensive sites.
pub(crate) const LINK_BYTES_PER_S: u64 = 125_000_000;
pub(crate) const DISK_BYTES_PER_S: u64 = 120_000_000;
pub(crate) const DISK_LATENCY_US: u64 = 8_000;

/// Time until the first byte of another node's memory arrives, in microseconds: a round trip and its work.
pub(crate) const PEER_LATENCY_US: u64 = 200;

/// Processor time of a request, in microseconds, at speed 1.
pub(crate) const REQUEST_US: u64 = 20;

/// Interval of the load reports that dispatchers get if there are several, in milliseconds.
pub(crate) const REPORT_INTERVAL_MS: u64 = 100;

/// Part of the bytes to clients that counts towards a node's refusal of other nodes, and the bytes at which it refuses:
/// as nodes do.
pub(crate) const CLIENT_BYTES_PART: u64 = 8;
pub(crate) const PEER_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// The longest time without a request of a log, in nanoseconds: everything has come to rest by then, and 4 million such gaps are
/// less than the virtual clock counts.
pub(crate) const LOG_GAP_NS_MAX: u64 = 600 * NS_PER_S;

/// Segments of a site that comes from a log: 24 bytes each of who holds it. 40 TB of large objects.
pub(crate) const SITE_SEGMENTS_MAX: u64 = 10_000_000;

/// Significant digits of response times in histograms.
pub(crate) const RESPONSE_DIGITS: u8 = 3;

/// Size classes of responses: decades of bytes, the last one open.
pub const SIZE_CLASSES: usize = 10;

/// Looks of elasticity's controller between two decisions: as live.
pub(crate) const ELASTIC_SAMPLES: u64 = 10;

/// Interval at which nodes tell coordinators what came into their memories and left them, in milliseconds, and names in a
/// message of those that leave next: as nodes do.
pub(crate) const CHANGES_TICK_MS: u64 = 20;
pub(crate) const TAIL_NAMES: usize = 63;

/// Interval of a lease's renewals, in milliseconds: as nodes have it.
pub(crate) const RENEW_MS: u64 = 500;

/// Time after which a dispatcher gives up connecting to a node and takes the next one, in milliseconds: the default.
pub(crate) const CONNECT_TIMEOUT_MS: u64 = 1_000;

/// Silence after which a node gives up a fetch from another one, in milliseconds, before its first byte and after that: as
/// nodes do.
pub(crate) const PEER_REPLY_MS: u64 = 1_000;
pub(crate) const PEER_CHUNK_MS: u64 = 2_000;

/// How far a window may be from the mean of windows that have settled, in standard deviations of those: of windows that
/// are alike, two in a row are further away once in 100,000.
pub const SETTLED_SIGMAS: f64 = 3.0;

/// How often a segment that no other node has is passed on without being asked for, and bytes of those that wait for it: as
/// nodes do.
pub(crate) const CHANCES: u8 = 2;
pub(crate) const LEAVING_BYTES_MAX: u64 = 4 * skep_units::SEGMENT_BYTES;
