//! Every bound of this crate, with unit and reason.

/// Timeout of a call, in milliseconds from when it was made. An etcd that lost its leader needs one to two
/// seconds to elect another; a call made meanwhile should still succeed.
pub const CALL_TIMEOUT_MS: u64 = 5_000;

/// Time before the deadline of a call at which attempts end, in milliseconds, so that their errors reach the
/// caller in time.
pub(crate) const CALL_MARGIN_MS: u64 = 100;

/// Timeout of an attempt at one endpoint, in milliseconds: three dead endpoints leave time for others within
/// a call.
pub(crate) const ATTEMPT_TIMEOUT_MS: u64 = 1_000;

/// Pause after all endpoints have failed, in milliseconds: long enough not to spin on refused connections.
pub(crate) const ROUND_PAUSE_MS: u64 = 100;

/// Pause of a watch while the store does not answer, in milliseconds.
pub(crate) const WATCH_RETRY_MS: u64 = 500;

/// Interval at which a watched value is read again, in milliseconds, even without a notification: bounds the
/// effect of a lost one.
pub(crate) const WATCH_REREAD_MS: u64 = 10_000;

/// Interval of status requests to every endpoint, in milliseconds.
pub(crate) const HEALTH_INTERVAL_MS: u64 = 2_000;

/// Time of silence after which a connection is probed, in milliseconds; it is closed if the probe stays
/// unanswered for as long again. etcd asks clients to probe at most once in 5 s
/// (`--grpc-keepalive-min-time`).
pub(crate) const PROBE_INTERVAL_MS: u64 = 6_000;

/// How long a candidate that resigns tries to revoke its lease, and how long the thread lives for that, in
/// milliseconds. After that the lease expires by itself.
pub(crate) const RESIGN_TIMEOUT_MS: u64 = 1_000;

/// Minimum length of a lease, in seconds: etcd grants no shorter one at its default election timeout of 1 s.
pub const LEASE_TTL_MIN_S: u64 = 2;

/// Maximum length of a lease, in seconds: a cluster may be without a leader for this time.
pub const LEASE_TTL_MAX_S: u64 = 300;

/// Divisor of the part of a lease on which its holder does not rely: clocks of two machines may run at
/// different rates, and the holder needs time to notice the end.
pub(crate) const LEASE_MARGIN_DIVISOR: u32 = 10;

/// Number of times per lease length that the lease is renewed and the leader read.
pub(crate) const LEASE_ROUNDS: u32 = 3;

/// Maximum length of a key, in bytes; keys are names and short paths.
pub const KEY_BYTES_MAX: usize = 256;

/// Maximum length of a value, in bytes: control state is small, and etcd keeps all of it in memory.
pub const VALUE_BYTES_MAX: usize = 64 * 1024;

/// Maximum length of a config, in bytes: etcd refuses requests above 1.5 MiB.
pub const CONFIG_BYTES_MAX: usize = 1024 * 1024;

/// Maximum length of a reply accepted from an endpoint, in bytes: a config and its envelope.
pub(crate) const REPLY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Maximum number of endpoints; etcd's own documentation advises against more than 7 members.
pub const ENDPOINTS_MAX: usize = 16;

/// Maximum number of queued calls. They are executed one after the other, so that two puts of one caller stay
/// in order.
pub(crate) const CALLS_MAX: usize = 64;

/// Maximum number of watches and campaigns that wait to be started.
pub(crate) const STARTS_MAX: usize = 64;

/// Maximum number of operations that wait for the disk.
pub(crate) const DISK_JOBS_MAX: usize = 16;

/// Maximum number of threads that resolve names of endpoints.
pub(crate) const RESOLVER_THREADS_MAX: usize = 2;

/// Memory for pages of the file, in bytes; the whole state is smaller.
pub(crate) const FILE_CACHE_BYTES: usize = 4 * 1024 * 1024;
