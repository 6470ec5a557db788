//! Bounds and fixed numbers of A/B tests, with units and reasons.

pub use skep_units::ARMS_MAX;

/// Largest weight of an arm, as of a node.
pub const ARM_WEIGHT_MAX: u32 = 256;

/// Bytes of an arm's name, as of other names.
pub const ARM_NAME_BYTES_MAX: usize = skep_units::NAME_BYTES_MAX;

/// Clients that a host table takes in by itself: some 2 MB. A site with more has enough of them that a hash of the
/// address divides them evenly.
pub const CLIENTS_MAX: usize = 1 << 16;

/// Clients of a table with those that other dispatchers have told: tables that were full while they differed by up to so
/// many still become the same. Such that differ by more do not: a client that only one of them has goes by its hash at
/// the other.
pub const MERGED_CLIENTS_MAX: usize = CLIENTS_MAX + CLIENTS_MAX / 4;

/// New clients that wait to be told to other dispatchers; of more, the comparison of digests makes up for it.
pub const UNTOLD_MAX: usize = 1 << 12;

/// Groups of clients, by the hash of their address, whose means are compared to know how much means of an arm differ by
/// chance: as many as buckets in Kohavi, Tang, Xu, *Trustworthy Online Controlled Experiments* (2020), section 18,
/// which need some dozens.
pub const BUCKETS: usize = 64;

/// Bins of times for each power of two: quantiles are off by 6 % at most.
pub const BINS_PER_OCTAVE: usize = 16;

/// Times of this many microseconds and more, 19 hours, count as one.
pub const TIME_US_MAX: u64 = 1 << 36;

/// How often a table is told of to other dispatchers even if nothing is new, in milliseconds.
pub const HEARTBEAT_MS: u64 = 1_000;

/// How long the tables of two dispatchers may differ before one of them is told whole, in milliseconds: what is under way
/// arrives meanwhile.
pub const SETTLE_MS: u64 = 300;

/// Messages of a whole table that leave at a time, and the time between, in milliseconds: 10,000 clients, and 110 KB, a
/// second.
pub const SWEEP_MESSAGES: usize = 5;
pub const SWEEP_MS: u64 = 50;

/// Time between two passes over a full table, in milliseconds: those of dispatchers that were filled apart may never agree.
pub const FULL_PAUSE_MS: u64 = 60_000;

/// Time after which a dispatcher that tells nothing is gone, in milliseconds.
pub const SILENT_MS: u64 = 4 * HEARTBEAT_MS;
