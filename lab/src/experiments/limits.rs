//! Every limit of the experiments, with its unit and its reason.

/// Maximum length of a request's head that the origin reads, in bytes.
pub(super) const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Maximum number of fields in a request's head that the origin reads.
pub(super) const FIELDS_MAX: usize = 64;

/// Bytes of a body that the origin writes at once: the granularity of its rate.
pub(super) const CHUNK_BYTES: u64 = 16 * 1024;

/// What a stream of the origin makes up for where each client has a rate of its own, in
/// milliseconds: its timers have a grain of 1 ms, and it may have to wait for a core.
pub(super) const CATCH_UP_MS: u64 = 20;

/// Longest object that the origin has, in bytes: what a pattern's seed leaves
/// room for.
pub(super) const OBJECT_BYTES_MAX: u64 = 1 << 34;

/// Timeout for the start of a server, in milliseconds. Servers take tens of milliseconds; one that takes that
/// long never starts.
pub(super) const READY_MS: u64 = 20_000;

/// Interval at which a condition is polled, in milliseconds.
pub(super) const POLL_MS: u64 = 20;

/// Timeout for the origin's answers about itself, in milliseconds.
pub(super) const ASK_MS: u64 = 5_000;

/// Maximum length of a warm-up, in milliseconds: longer means that nothing gets through.
pub(super) const WARM_UP_MS: u64 = 120_000;
