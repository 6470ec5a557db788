//! Bounds of workloads, each with its unit and reason.

/// Largest scale: ten thousand times World Cup would exceed [`FILES_MAX`].
pub const SCALE_MAX: f64 = 1_000.0;

/// Files of a workload: their shares take 24 bytes of memory each, and file systems handle more
/// files badly.
pub const FILES_MAX: usize = 10_000_000;

/// Files per folder: few enough for tools to list.
pub(crate) const FILES_PER_FOLDER: usize = 1_000;

/// Length of a log line, in bytes: the longest request line of servers, plus three fields of the
/// same length.
pub const LOG_LINE_BYTES_MAX: usize = 32 * 1024;

/// Largest body in a log, in bytes: a tebibyte, so that sums of all stay within 64 bits.
pub(crate) const LOG_BODY_BYTES_MAX: u64 = 1 << 40;

/// Requests of a log that are kept, of 32 bytes each: an hour of a busy site.
pub(crate) const LOG_REQUESTS_MAX: usize = 4_000_000;

/// Different paths in a log: 100 bytes each for numbers and sizes, plus the paths themselves.
pub(crate) const LOG_OBJECTS_MAX: usize = 1_000_000;

/// Total length of all paths in a log, in bytes.
pub(crate) const LOG_PATHS_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Clients in a log that are distinguished, at 32 bytes each. Further clients share their numbers.
pub(crate) const LOG_CLIENTS_MAX: usize = 1_000_000;

/// Malformed lines that are listed: more would add nothing.
pub(crate) const LOG_MALFORMED_NAMED_MAX: usize = 5;
