//! Bounds of an advice, each with its unit and reason.

/// Nodes: what a simulation of seconds still has time for.
pub const ADVISED_NODES_MAX: u16 = 1_000;

/// Requests of a window: fewer say nothing of a 99th percentile, more take minutes.
pub const WINDOW_REQUESTS_MIN: u64 = 100;
pub const WINDOW_REQUESTS_MAX: u64 = 4_000_000;

/// Windows: an interval needs two, and more than a hundred make it hardly narrower.
pub const REPETITIONS_MIN: u64 = 2;
pub const REPETITIONS_MAX: u64 = 100;

/// How many times as fast as logged at most, and as slow.
pub const SPEED_MAX: f64 = 1e6;
pub const SPEED_MIN: f64 = 1e-3;

/// Bytes of a node's memory, and of a rate in a second: a pebibyte, so that products stay within 64 bits.
pub const ADVISED_BYTES_MAX: u64 = 1 << 50;

/// Bytes a second of a link, a disk or an origin: a megabit, below which the largest windows take longer than the virtual clock
/// counts.
pub const ADVISED_RATE_MIN: u64 = 125_000;

/// Segments that a window sends, at most: each takes the simulator as long as a request.
pub(crate) const WINDOW_SEGMENTS_MAX: u64 = 1_000_000;

/// Part of a window that fills memories and is not measured, in 1/100.
pub(crate) const WARM_UP_PERCENT: u64 = 33;

/// A difference below this share is none that a policy is changed for.
pub(crate) const WORTH_SHARE: f64 = 0.01;

/// The share of its rate from which on a link is full, so that response times grow with the length of the log.
pub(crate) const FULL_SHARE: f64 = 0.97;
