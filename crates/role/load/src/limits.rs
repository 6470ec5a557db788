//! Bounds of a load, each with its unit and reason.

/// Clients of a load, over all processes: below the 64,512 ports that one address has for one server.
pub const CLIENTS_MAX: u32 = 60_000;

/// Processes: more than any machine has cores.
pub const PROCESSES_MAX: u16 = 256;

/// Planned requests per second: the resolution of microsecond clocks.
pub const RATE_MAX: f64 = 1e6;

/// Longest run, in milliseconds: a day; each of its seconds has a row in memory.
pub const DURATION_MS_MAX: u64 = 86_400_000;

/// Longest time limit for one request, in milliseconds: the largest object of the data-intensive site on a
/// slow link.
pub const REQUEST_MS_MAX: u64 = 600_000;

/// Redirects that are followed for one request.
pub(crate) const REDIRECTS_MAX: u32 = 10;

/// Connections that a client keeps, one for each server to which it was redirected.
pub(crate) const KEPT_CONNECTIONS_MAX: usize = 16;

/// Names whose addresses are cached: more than any cluster has nodes.
pub(crate) const ADDRESSES_MAX: usize = 1_024;

/// Bytes and fields of a response's head: far more than a client needs.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;
pub(crate) const HEAD_FIELDS_MAX: usize = 100;

/// Failures that are described in the result; further ones are only counted.
pub(crate) const EXAMPLES_MAX: usize = 5;

/// Pause of a client of the closed loop after a failure, in milliseconds, so that it does not spin.
pub(crate) const PAUSE_MS: u64 = 20;

/// Delay from which a planned request counts as late, in microseconds: shorter ones are caused by the
/// generator itself.
pub(crate) const LATE_US: u64 = 1_000;

/// Arrivals that wait for the thread of the clients while it does other work.
pub(crate) const ARRIVALS_PENDING_MAX: usize = 1_024;

/// Interval of progress reports during a run, in milliseconds: for a display.
pub(crate) const PROGRESS_MS: u64 = 200;

/// Bytes of a file that are generated and written at a time.
pub(crate) const CHUNK_BYTES: usize = 256 * 1024;

/// Share of a file system that is left free, in percent: full file systems are slow, and other programs write
/// to them, too.
pub(crate) const ROOM_LEFT_PERCENT: u64 = 1;
