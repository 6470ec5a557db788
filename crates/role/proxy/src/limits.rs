//! Every bound of this crate, with unit and reason.

use std::time::Duration;

/// Bytes queued for a member above which no more of the client's body is read. Below it, the head and the
/// first bytes of the body are sent together.
pub(crate) const UPLOAD_BYTES_WAITING: u64 = 16 * 1024;

/// Time that a request waits for the disk of the spool before it takes a slot at a member with the part of
/// its body that is there: many times what a disk takes that is not overloaded.
pub(crate) const SPOOL_WAIT: Duration = Duration::from_secs(10);

/// Total time that the copy of a response waits for a slow client when nothing more can be read ahead: other
/// requests wait for the copy. As long as a miss waits for memory.
pub(crate) const COPY_WAIT_MAX: Duration = Duration::from_secs(2);

/// Retries per second on one worker that are allowed regardless of the budget's share, so that a group with
/// few requests retries as well (the default of Finagle).
pub(crate) const RETRY_FLOOR_PER_S: u32 = 10;

/// Session names in one request, at most, one of which may be a member's: more cookies of one name than a
/// browser sends for nested paths.
pub(crate) const SESSION_NAMES_MAX: usize = 8;

/// Interval of checks of drains, removals and slow starts, in milliseconds.
pub(crate) const HOUSEKEEPING_MS: u64 = 100;

/// Time for the requests of a member that a new config no longer contains, in milliseconds; then the member
/// is removed, and remaining requests are no longer tracked.
pub(crate) const RELOAD_REMOVE_MS: u64 = 30_000;

/// Bytes of a check's response body that are searched for the word `draining`.
pub(crate) const CHECK_BODY_BYTES_MAX: usize = 64;

/// Weight of one request in the moving average of latencies, as a divisor.
pub(crate) const LATENCY_SMOOTHING: u64 = 16;

/// Attempts to read a report that is being written at the same time: writing takes some nanoseconds, unless
/// its thread is interrupted.
pub(crate) const REPORT_READS_MAX: u32 = 16;

/// Bytes of one reply that count as load, at most: 1 TiB. A member may announce 2^64 bytes, and a million
/// such replies must not overflow a sum.
pub(crate) const OWED_BYTES_MAX: u64 = 1 << 40;

/// Time for the rest of a response that is not needed, in milliseconds: for its end, which may arrive after
/// its head, and for what an application still writes; not for an application that continues to work.
pub(crate) const REST_MS: u64 = 1_000;

/// Bytes read of such a rest, so that its connection can be reused: reading more costs more than a new
/// connection.
pub(crate) const REST_BYTES_MAX: u64 = 64 * 1024;

/// Bytes of a request's path in a message for the operator: enough to identify it.
pub(crate) const TOLD_PATH_BYTES_MAX: usize = 200;

/// Lines of one member's standard error that are logged per second: a page that reports errors in a loop must
/// not fill the disk.
pub(crate) const STDERR_LINES_PER_S: u64 = 20;

/// Bytes of the body of a test's response after which reading stops.
pub(crate) const TEST_BODY_BYTES_MAX: u64 = 1024 * 1024;

/// Bytes of that body that are shown.
pub(crate) const TEST_BODY_BYTES_SHOWN: usize = 1024;

/// Bytes of a test's response including the framing of its protocol, after which reading stops: bounds bodies
/// in small pieces and endless logs.
pub(crate) const TEST_BYTES_MAX: u64 = 8 * TEST_BODY_BYTES_MAX;

/// Lines of an application's standard error that a test shows.
pub(crate) const TEST_STDERR_LINES_MAX: usize = 20;

/// Bytes of a path that operators see of each request in flight; stored inline.
pub(crate) const SHOWN_PATH_BYTES_MAX: usize = 96;

/// Clients whose arms in an A/B test a worker caches, a power of two, in 24 KB: about those that are active
/// at the same time, so that most requests need no lock.
pub(crate) const RECENT_CLIENTS: usize = 1 << 10;

/// Age at which rates that a node has reported no longer count, in milliseconds: it reports them each second.
pub(crate) const RATES_MS_MAX: u64 = 10_000;
