//! Every bound of this crate, with unit and reason.

/// How long a call may take, from the moment it was made, in milliseconds. An
/// etcd that lost its leader needs one to two seconds to elect another; a call
/// that was made meanwhile should see the outcome.
pub const CALL_TIMEOUT_MS: u64 = 5_000;

/// Time before the end of a call at which the endpoints are abandoned, in milliseconds, so that
/// their errors still reach the caller in time.
pub(crate) const CALL_MARGIN_MS: u64 = 100;

/// How long one endpoint may take before the next one is asked, in milliseconds:
/// so that three dead ones leave time within a call.
pub(crate) const ATTEMPT_TIMEOUT_MS: u64 = 1_000;

/// Pause after all endpoints have failed, in milliseconds: long enough not to
/// spin on refused connections.
pub(crate) const ROUND_PAUSE_MS: u64 = 100;

/// Pause of a watch whose store does not answer, in milliseconds.
pub(crate) const WATCH_RETRY_MS: u64 = 500;

/// Interval at which a watched value is read again, in milliseconds, even without a notice: bounds
/// the cost of a lost one.
pub(crate) const WATCH_REREAD_MS: u64 = 10_000;

/// Interval of status requests to every endpoint, in milliseconds.
pub(crate) const HEALTH_INTERVAL_MS: u64 = 2_000;

/// A silent connection is probed after this time, in milliseconds, and closed if the probe stays
/// unanswered for as long again. etcd asks clients not to probe more than once in 5 s
/// (`--grpc-keepalive-min-time`).
pub(crate) const PROBE_INTERVAL_MS: u64 = 6_000;

/// How long a candidate that leaves tries to give its lease back, and how long
/// the thread lives for it, in milliseconds. After that the lease runs out.
pub(crate) const RESIGN_TIMEOUT_MS: u64 = 1_000;

/// Shortest lease, in seconds: etcd grants no shorter one at its default
/// election timeout of 1 s.
pub const LEASE_TTL_MIN_S: u64 = 2;

/// Longest lease, in seconds: a cluster may be without a leader for this time.
pub const LEASE_TTL_MAX_S: u64 = 300;

/// Part of a lease that its holder does not count on, as a divisor: clocks of
/// two machines may run apart, and the holder needs time to notice.
pub(crate) const LEASE_MARGIN_DIVISOR: u32 = 10;

/// Times that a lease is renewed, and the leader read, per length of the lease.
pub(crate) const LEASE_ROUNDS: u32 = 3;

/// Longest key, in bytes; keys are names and short paths.
pub const KEY_BYTES_MAX: usize = 256;

/// Longest value, in bytes: control state is small, and etcd keeps all of it in
/// memory.
pub const VALUE_BYTES_MAX: usize = 64 * 1024;

/// Longest config text, in bytes: etcd refuses requests above 1.5 MiB.
pub const CONFIG_BYTES_MAX: usize = 1024 * 1024;

/// Longest reply taken from an endpoint, in bytes: a config and its envelope.
pub(crate) const REPLY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Endpoints of one etcd; its own documentation advises against more than 7
/// members.
pub const ENDPOINTS_MAX: usize = 16;

/// Calls that wait for their turn. They are executed one after the other, so that two puts of one
/// caller stay in order.
pub(crate) const CALLS_MAX: usize = 64;

/// Watches and campaigns that wait to be started.
pub(crate) const STARTS_MAX: usize = 64;

/// Operations that wait for the disk.
pub(crate) const DISK_JOBS_MAX: usize = 16;

/// Threads that resolve names of endpoints.
pub(crate) const RESOLVER_THREADS_MAX: usize = 2;

/// Memory for pages of the file, in bytes; the whole state is smaller.
pub(crate) const FILE_CACHE_BYTES: usize = 4 * 1024 * 1024;
