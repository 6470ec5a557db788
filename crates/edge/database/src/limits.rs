//! Bounds of what recorders keep in a file, with units and reasons.

/// Samples of a recorder between two looks for those that are too old: a look reads all of its rows.
pub(crate) const TRIM_SAMPLES: u64 = 64;

/// What share of all samples of recorders goes at once when the file is as large as it may be: a
/// part that large takes milliseconds, and makes room for hours.
pub(crate) const TRIM_SHARE: u64 = 16;

/// Rounds of that before one sample is stored, at most: more is left to the next.
pub(crate) const TRIM_ROUNDS_MAX: u32 = 32;

/// Bytes of the log beside a file that SQLite keeps after it was written back; it may be as large as
/// the largest transaction meanwhile.
pub(crate) const LOG_BYTES_MAX: i64 = 1 << 20;
