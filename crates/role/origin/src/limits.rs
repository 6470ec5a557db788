//! Every bound of this crate, with unit and reason.

/// Addresses of one origin that are tried: a name with more stands for a whole network, and each
/// attempt may take the time to connect.
pub(crate) const ADDRESSES_MAX: usize = 4;

/// Bytes discarded at a time before an offset that is skipped to.
pub(crate) const SKIP_BYTES: usize = 64 * 1024;

/// Bytes of a body that a waiting reader may require within the time below: the growth step of a
/// segment.
pub(crate) const PACE_BYTES: u64 = 256 * 1024;

/// Time for these bytes, in multiples of [`OriginLimits::progress_timeout_ms`]: by default a
/// minute, or 4 KiB/s.
pub(crate) const PACE_STALLS: u64 = 6;

/// Default initial time for which a failed origin is avoided, in milliseconds: a short fault has no
/// longer effect.
pub const AVOID_MS: u64 = 1_000;

/// Bounds of a worker's client of one site's origins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginLimits {
    /// Connections to one address, in use and idle; at least 1.
    pub connections_max: usize,
    /// Time to wait for one of these if all are in use, in milliseconds.
    pub busy_wait_ms: u64,
    /// Time after which an unused connection is closed, in milliseconds.
    pub idle_ms: u64,
    /// Time to resolve an origin's name, and to connect to an address, in milliseconds each.
    pub connect_timeout_ms: u64,
    /// Time from the request to the end of the response's head, in milliseconds.
    pub first_byte_timeout_ms: u64,
    /// Time without any byte of a body after which it counts as stalled, in milliseconds.
    pub progress_timeout_ms: u64,
    /// Requests sent for one [`crate::Origins::open`], over all origins; a kept connection that
    /// turns out to be dead does not count. At least 1.
    pub attempts_max: u32,
    /// Time for which a failed origin is asked only if no other is left, in milliseconds; doubled
    /// with each consecutive failure.
    pub avoid_ms: u64,
    /// Longest such time, in milliseconds.
    pub avoid_ms_max: u64,
    /// Time after which a name is resolved again, in milliseconds; the old addresses are used until
    /// the new ones are available.
    pub names_fresh_ms: u64,
}

impl Default for OriginLimits {
    fn default() -> Self {
        Self {
            // With 8 workers 512 in all, as many as one worker of nginx has by default.
            connections_max: 64,
            // Longer than most responses take, shorter than clients tolerate.
            busy_wait_ms: 1_000,
            // Below nginx's 75 s and above Node.js's 5 s: the check for a dead connection and the
            // retry cover the rest.
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
