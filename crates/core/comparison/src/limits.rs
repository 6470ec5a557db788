//! Bounds and fixed numbers of A/B tests, with units and reasons.

pub use skep_units::ARMS_MAX;

/// Largest weight of an arm, the same as for nodes.
pub const ARM_WEIGHT_MAX: u32 = 256;

/// Length of an arm's name, in bytes, the same as for other names.
pub const ARM_NAME_BYTES_MAX: usize = skep_units::NAME_BYTES_MAX;

/// Clients that a host table accepts by itself: some 2 MB. A site with more clients has enough of
/// them for a hash of the address to divide them evenly.
pub const CLIENTS_MAX: usize = 1 << 16;

/// Clients of a table including those reported by other dispatchers: full tables that differ by up
/// to this many clients still become equal. If they differ by more, a client that only one of them
/// has is assigned by its hash at the other.
pub const MERGED_CLIENTS_MAX: usize = CLIENTS_MAX + CLIENTS_MAX / 4;

/// New clients waiting to be reported to other dispatchers; beyond that, the comparison of digests
/// covers them.
pub const UNTOLD_MAX: usize = 1 << 12;

/// Groups of clients, by the hash of their address, whose means are compared to estimate how much
/// means of an arm vary by chance: like the buckets in Kohavi, Tang, Xu, *Trustworthy Online
/// Controlled Experiments* (2020), section 18, which should number some dozens.
pub const BUCKETS: usize = 64;

/// Bins of times for each power of two: the error of quantiles is at most 6 %.
pub const BINS_PER_OCTAVE: usize = 16;

/// Longest distinguishable time, in microseconds: 19 hours.
pub const TIME_US_MAX: u64 = 1 << 36;

/// Interval at which a table's digest is sent to other dispatchers even without changes, in
/// milliseconds.
pub const HEARTBEAT_MS: u64 = 1_000;

/// How long the tables of two dispatchers may differ before a whole table is sent, in milliseconds:
/// messages in flight arrive within this time.
pub const SETTLE_MS: u64 = 300;

/// Messages of a whole table that are sent at a time, and the interval, in milliseconds: 10,000
/// clients and 110 KB per second.
pub const SWEEP_MESSAGES: usize = 5;
pub const SWEEP_MS: u64 = 50;

/// Interval between two passes over a full table, in milliseconds: tables that were filled
/// independently may never agree.
pub const FULL_PAUSE_MS: u64 = 60_000;

/// Silence after which a dispatcher is considered gone, in milliseconds.
pub const SILENT_MS: u64 = 4 * HEARTBEAT_MS;
