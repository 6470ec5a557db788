//! Bounds of the adviser, each with its unit and reason.

/// Nodes, at most: as many as can be simulated within seconds.
pub const ADVISED_NODES_MAX: u16 = 1_000;

/// Requests of a window: fewer do not determine a 99th percentile, more take minutes.
pub const WINDOW_REQUESTS_MIN: u64 = 100;
pub const WINDOW_REQUESTS_MAX: u64 = 4_000_000;

/// Windows: an interval needs two, and more than a hundred hardly make it narrower.
pub const REPETITIONS_MIN: u64 = 2;
pub const REPETITIONS_MAX: u64 = 100;

/// Speed relative to the log, at most and at least.
pub const SPEED_MAX: f64 = 1e6;
pub const SPEED_MIN: f64 = 1e-3;

/// Bytes of a node's memory, and of a rate per second, at most: a pebibyte, so that products stay within 64
/// bits.
pub const ADVISED_BYTES_MAX: u64 = 1 << 50;

/// Bytes per second of a link, a disk or an origin, at least: one megabit, below which the largest windows
/// take longer than the virtual clock can count.
pub const ADVISED_RATE_MIN: u64 = 125_000;

/// Segments sent in a window, at most: the simulator needs as long for each as for a request.
pub(crate) const WINDOW_SEGMENTS_MAX: u64 = 1_000_000;

/// Part of a window that warms up caches and is not measured, in percent.
pub(crate) const WARM_UP_PERCENT: u64 = 33;

/// Relative difference below which a change of policy is not recommended.
pub(crate) const WORTH_SHARE: f64 = 0.01;

/// Utilisation from which a link counts as saturated, so that response times grow with the length of the log.
pub(crate) const FULL_SHARE: f64 = 0.97;
