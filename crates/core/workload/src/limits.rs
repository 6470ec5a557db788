//! Bounds of workloads, each with its unit and reason.

/// Largest scale: ten thousand World Cups would not fit below [`FILES_MAX`].
pub const SCALE_MAX: f64 = 1_000.0;

/// Files of a workload: their shares take 24 bytes of memory each, and file systems suffer from more.
pub const FILES_MAX: usize = 10_000_000;

/// Files of one folder: what tools still list at once.
pub(crate) const FILES_PER_FOLDER: usize = 1_000;

/// Bytes of a line of a log: what servers take as a request line, with three fields as long beside it.
pub const LOG_LINE_BYTES_MAX: usize = 32 * 1024;

/// Bytes of a body of a log: a tebibyte, so that sums of all stay within 64 bits.
pub(crate) const LOG_BODY_BYTES_MAX: u64 = 1 << 40;

/// Requests of a log that are kept, of 32 bytes each: what an hour of a busy site has.
pub(crate) const LOG_REQUESTS_MAX: usize = 4_000_000;

/// Different paths of a log: with their numbers and sizes 100 bytes each, and the paths themselves.
pub(crate) const LOG_OBJECTS_MAX: usize = 1_000_000;

/// Bytes of all paths of a log.
pub(crate) const LOG_PATHS_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Clients of a log that are told apart: by 32 bytes each. Further ones share numbers with these.
pub(crate) const LOG_CLIENTS_MAX: usize = 1_000_000;

/// Malformed lines that are named: more say nothing new.
pub(crate) const LOG_MALFORMED_NAMED_MAX: usize = 5;
