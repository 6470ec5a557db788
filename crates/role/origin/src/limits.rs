//! Every bound of this crate, with unit and reason.

/// Addresses of one origin that are tried: more is a name for a whole network,
/// and each may cost the time to connect.
pub(crate) const ADDRESSES_MAX: usize = 4;

/// Bytes thrown away at once on the way to an offset that was not asked for.
pub(crate) const SKIP_BYTES: usize = 64 * 1024;

/// Bytes of a body that a waiting reader may require within the time below: the growth step of
/// a segment.
pub(crate) const PACE_BYTES: u64 = 256 * 1024;

/// Time for them, in times of [`OriginLimits::progress_timeout_ms`]: at its default
/// a minute, or 4 KiB/s.
pub(crate) const PACE_STALLS: u64 = 6;

/// Milliseconds for which an origin that failed is avoided at first, by default: a
/// short fault costs no more than that.
pub const AVOID_MS: u64 = 1_000;

/// Bounds of a worker's client of one site's origins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginLimits {
    /// Connections to one address, in use and idle; at least 1.
    pub connections_max: usize,
    /// Milliseconds to wait for one of these where all are in use.
    pub busy_wait_ms: u64,
    /// Milliseconds after which an unused connection is closed.
    pub idle_ms: u64,
    /// Milliseconds to find an origin's addresses, and to connect to one.
    pub connect_timeout_ms: u64,
    /// Milliseconds from the request to the end of the response's head.
    pub first_byte_timeout_ms: u64,
    /// Milliseconds without any byte of a body after which it counts as stalled.
    pub progress_timeout_ms: u64,
    /// Requests sent for one [`crate::Origins::open`], over all origins; a
    /// kept connection that turns out to be dead costs none. At least 1.
    pub attempts_max: u32,
    /// Milliseconds for which an origin that failed is asked only if no other
    /// is left; doubled with each failure that follows.
    pub avoid_ms: u64,
    /// Most milliseconds of avoidance.
    pub avoid_ms_max: u64,
    /// Milliseconds after which a name is looked up again; the old addresses
    /// serve until the new ones are there.
    pub names_fresh_ms: u64,
}

impl Default for OriginLimits {
    fn default() -> Self {
        Self {
            // With 8 workers as many as a default nginx has for all: 512.
            connections_max: 64,
            // Longer than most answers take, shorter than a client's patience.
            busy_wait_ms: 1_000,
            // Below nginx' 75 s and above Node's 5 s: the check for a dead
            // connection and the retry cover the rest.
            idle_ms: 60_000,
            connect_timeout_ms: 3_000,
            first_byte_timeout_ms: 30_000,
            progress_timeout_ms: 10_000,
            attempts_max: 3,
            avoid_ms: AVOID_MS,
            avoid_ms_max: 60_000,
            names_fresh_ms: 30_000,
        }
    }
}
