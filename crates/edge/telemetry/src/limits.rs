//! Every bound of this crate, with its unit and its reason.

use std::time::Duration;

/// Bytes of encoded log records after which a worker hands over its buffer: one write of this size costs
/// little per line, and on a busy core a buffer is soon full.
pub(crate) const LOG_BATCH_BYTES: usize = 32 * 1024;

/// Maximum number of a worker's buffers that are being written. With [`LOG_BATCH_BYTES`] this covers some 100
/// ms of a stalled disk at full load; after that, lines are dropped.
pub(crate) const LOG_BUFFERS_PER_WORKER_MAX: usize = 16;

/// Maximum number of buffers of all workers that wait for the writer: 64 cores with 4 each.
pub(crate) const LOG_QUEUE_BUFFERS_MAX: usize = 256;

/// Maximum length of a method in a log line, in bytes; registered ones are shorter.
pub(crate) const LOG_METHOD_BYTES_MAX: usize = 32;
/// Maximum length of a target in a log line, in bytes: the default limit of a URL.
pub(crate) const LOG_TARGET_BYTES_MAX: usize = 8 * 1024;
/// Maximum length of a request's host in a log line, in bytes: a DNS name and a port.
pub(crate) const LOG_HOST_BYTES_MAX: usize = 264;
/// Maximum length of a Referer in a log line, in bytes: a URL, but one of another site.
pub(crate) const LOG_REFERER_BYTES_MAX: usize = 2 * 1024;
/// Maximum length of a User-Agent in a log line, in bytes; real ones stay below 512.
pub(crate) const LOG_USER_AGENT_BYTES_MAX: usize = 1024;
/// Maximum length of a node's name in a log line, in bytes.
pub(crate) const LOG_NODE_BYTES_MAX: usize = 64;

/// Minimum interval of warnings about the access log: a full disk must not fill the other log as well.
pub(crate) const LOG_WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum wait for the writer at shutdown: a log on a pipe that nobody reads must not keep the process
/// alive.
pub(crate) const LOG_SHUTDOWN_WAIT: Duration = Duration::from_secs(5);

/// Length of a fine step of a series, in seconds, and the number of steps kept: an hour, for the analysis of
/// a fault.
pub(crate) const SERIES_FINE_STEP_S: u64 = 10;
/// See [`SERIES_FINE_STEP_S`].
pub(crate) const SERIES_FINE_POINTS: usize = 360;
/// Length of a coarse step of a series, in seconds, and the number of steps kept: 30 hours, the graph of
/// JASPer's status page. With both, a series of 5 counts takes some 100 KiB.
pub(crate) const SERIES_COARSE_STEP_S: u64 = 60;
/// See [`SERIES_COARSE_STEP_S`].
pub(crate) const SERIES_COARSE_POINTS: usize = 1_800;
