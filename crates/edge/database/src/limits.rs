//! Bounds of what recorders keep in a file, with units and reasons.

/// Samples that a recorder stores between two searches for expired ones: a search reads all of its rows.
pub(crate) const TRIM_SAMPLES: u64 = 64;

/// The divisor of the share of all samples that is deleted at once when the file has reached its maximum
/// size: deleting such a part takes milliseconds and makes room for hours.
pub(crate) const TRIM_SHARE: u64 = 16;

/// Maximum number of such deletions before one sample is stored; the rest is left to the next sample.
pub(crate) const TRIM_ROUNDS_MAX: u32 = 32;

/// Size in bytes to which SQLite truncates the log beside a file after a checkpoint; until then the log may
/// grow to the size of the largest transaction.
pub(crate) const LOG_BYTES_MAX: i64 = 1 << 20;
