//! Bounds of a load, each with its unit and reason.

/// Clients of a load, over all processes: below the 64,512 ports that an address has towards one server.
pub const CLIENTS_MAX: u32 = 60_000;

/// Processes: more than any machine has cores.
pub const PROCESSES_MAX: u16 = 256;

/// Planned requests in a second: what clocks of microseconds still tell apart.
pub const RATE_MAX: f64 = 1e6;

/// Longest run, in milliseconds: a day, of which each second has a row in memory.
pub const DURATION_MS_MAX: u64 = 86_400_000;

/// Longest time for one request, in milliseconds: the largest object of the data-intensive site on a slow link.
pub const REQUEST_MS_MAX: u64 = 600_000;

/// Redirects that are followed for one request.
pub(crate) const REDIRECTS_MAX: u32 = 10;

/// Connections that a client keeps, one for each server that it was redirected to.
pub(crate) const KEPT_CONNECTIONS_MAX: usize = 16;

/// Names whose addresses are kept: more than any cluster has nodes.
pub(crate) const ADDRESSES_MAX: usize = 1_024;

/// Bytes of a response's head, and its fields: far more than a client needs.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;
pub(crate) const HEAD_FIELDS_MAX: usize = 100;

/// Failures that are told in words; further ones are counted.
pub(crate) const EXAMPLES_MAX: usize = 5;

/// Pause of a client of the closed loop after a failure, in milliseconds: it must not spin.
pub(crate) const PAUSE_MS: u64 = 20;

/// From here on a planned request began late, in microseconds: below it is the work of the generator itself.
pub(crate) const LATE_US: u64 = 1_000;

/// Arrivals that wait to be taken by the thread of the clients: what comes while that does other work.
pub(crate) const ARRIVALS_PENDING_MAX: usize = 1_024;

/// Interval of what is told of a run while it goes on, in milliseconds: what eyes follow.
pub(crate) const PROGRESS_MS: u64 = 200;

/// Bytes of a file that are made and written at a time.
pub(crate) const CHUNK_BYTES: usize = 256 * 1024;

/// Share of a file system that is left free, in 1/100: file systems that are full are slow, and others write to them, too.
pub(crate) const ROOM_LEFT_PERCENT: u64 = 1;
