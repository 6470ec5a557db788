//! Every bound of this crate, with unit and reason.

use std::time::Duration;

/// Bytes waiting for a member above which no more of the client's body is read.
/// Below it, head and first body bytes leave together.
pub(crate) const UPLOAD_BYTES_WAITING: u64 = 16 * 1024;

/// How long a request waits for the disk of the spool before it takes a place at a member with what there
/// is of its body: many times what a disk takes that is not overloaded.
pub(crate) const SPOOL_WAIT: Duration = Duration::from_secs(10);

/// How long the copy of a response waits in all for its client, where that is behind and nothing more can be
/// read ahead of it: others wait for the copy. As long as a miss waits for memory.
pub(crate) const COPY_WAIT_MAX: Duration = Duration::from_secs(2);

/// Retries per second on one worker that are free of the budget's share, so
/// that a quiet group retries too (Finagle's default).
pub(crate) const RETRY_FLOOR_PER_S: u32 = 10;

/// Names of sessions that a request may have, of which one may be a member's: more cookies of one name
/// than a browser sends for nested paths.
pub(crate) const SESSION_NAMES_MAX: usize = 8;

/// How often drains, removals and slow starts are checked, in milliseconds.
pub(crate) const HOUSEKEEPING_MS: u64 = 100;

/// Time for the requests of a member that a new config no longer has, in milliseconds; after it the
/// member is forgotten, and they continue unwatched.
pub(crate) const RELOAD_REMOVE_MS: u64 = 30_000;

/// Bytes of a check's response body that are searched for the word `draining`.
pub(crate) const CHECK_BODY_BYTES_MAX: usize = 64;

/// Weight of one request in the moving average of latencies, as a divisor.
pub(crate) const LATENCY_SMOOTHING: u64 = 16;

/// How often a report that is being written meanwhile is read, at most: writing one takes some
/// nanoseconds, unless its thread is interrupted.
pub(crate) const REPORT_READS_MAX: u32 = 16;

/// Bytes of one reply that count as load, at most: 1 TiB. A member may announce 2^64, and
/// a million of these must not overflow a sum.
pub(crate) const OWED_BYTES_MAX: u64 = 1 << 40;

/// Time for the rest of a response of which nobody wants more, in milliseconds: for its end, which may
/// come behind its head, and for what an application still writes down; not for one that goes on working.
pub(crate) const REST_MS: u64 = 1_000;

/// Bytes of it that are read, so that its connection can be used again: more costs more than a new one.
pub(crate) const REST_BYTES_MAX: u64 = 64 * 1024;

/// Bytes of a request's path in a message for the operator: enough to know it by.
pub(crate) const TOLD_PATH_BYTES_MAX: usize = 200;

/// Lines of one member's standard error that are logged in a second: a page that complains in a loop
/// must not fill the disk.
pub(crate) const STDERR_LINES_PER_S: u64 = 20;

/// Bytes of the body of an answer to a test after which no more are waited for.
pub(crate) const TEST_BODY_BYTES_MAX: u64 = 1024 * 1024;

/// Bytes of it that are shown.
pub(crate) const TEST_BODY_BYTES_SHOWN: usize = 1024;

/// Bytes of an answer to a test, with all that its protocol puts around them, after which no more are waited
/// for: a body in small pieces, and an endless log.
pub(crate) const TEST_BYTES_MAX: u64 = 8 * TEST_BODY_BYTES_MAX;

/// Lines of standard error of an application that a test shows.
pub(crate) const TEST_STDERR_LINES_MAX: usize = 20;

/// Bytes of a path that operators see of each request in flight: they are kept in place.
pub(crate) const SHOWN_PATH_BYTES_MAX: usize = 96;

/// Clients whose arms in an A/B test a worker remembers, a power of two, in 24 KB: those that are active at a time, so
/// that most requests need no lock.
pub(crate) const RECENT_CLIENTS: usize = 1 << 10;
