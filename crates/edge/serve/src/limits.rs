//! Every bound of this crate, with unit and reason.

/// Maximum number of bytes read from a socket at once. One buffer of this size exists per worker, not per
/// connection: beyond 64 KiB a larger read does not lower the cost per byte of an upload.
pub const INPUT_BYTES: usize = 64 * 1024;

/// Maximum number of parts in one vectored write. Linux accepts 1024; beyond 64 the cost per part no longer
/// falls, and the array is on the stack.
pub const REPLY_PARTS_MAX: usize = 64;

/// Bytes that one connection sends before it yields: large enough that the cost of a turn is negligible,
/// small enough that 64 readers of huge files share the worker.
pub(crate) const SEND_TURN_BYTES_MAX: usize = 1024 * 1024;

/// Number of bytes of a memory file from which on they are sent without copying. A socket keeps an allocation
/// of up to 64 KiB for each run of bytes in its queue: with runs of at least this length, a queue of 128 KiB
/// has few.
pub(crate) const COPIED_BYTES_MAX: usize = 8 * 1024;

/// Connections that wait in the kernel for `accept`, per worker and listener. The kernel limits it to
/// `net.core.somaxconn` (4096 by default).
pub(crate) const BACKLOG_MAX: i32 = 4096;

/// Interval of the sweep for passed deadlines, in milliseconds: the maximum delay and the granularity of
/// every timeout.
pub(crate) const SWEEP_INTERVAL_MS: u64 = 100;

/// Threads per worker that may block on a disk.
pub(crate) const BLOCKING_THREADS_MAX: usize = 8;

/// Bytes that are read and discarded after an error reply before the close, so that no reset destroys the
/// reply.
pub(crate) const LINGER_BYTES_MAX: usize = 256 * 1024;

/// Maximum duration of that, in milliseconds.
pub(crate) const LINGER_MS_MAX: u64 = 1_000;

/// Pause after an accept failed for lack of descriptors or memory, in milliseconds: long enough not to spin,
/// short enough to recover.
pub(crate) const ACCEPT_PAUSE_MS: u64 = 20;

/// Connections that one wake-up accepts before it yields.
pub(crate) const ACCEPT_BATCH_MAX: usize = 64;

/// Scratch outputs kept for reuse by one worker.
pub(crate) const OUTPUTS_KEPT_MAX: usize = 64;

/// Capacity above which a scratch buffer is freed instead of kept, in bytes.
pub(crate) const SCRATCH_BYTES_MAX: usize = 256 * 1024;

/// Shards of the per-address table, so that accepts on different cores rarely contend.
pub(crate) const ADDRESS_SHARDS: usize = 16;

/// Number of checks of a stalled peer within the time after which it is disconnected: it may be disconnected
/// late by one interval, an eighth.
pub(crate) const STALL_LOOKS: u64 = 8;

/// Number of steps in which a receiver opens its window: 16 in Linux and BSD. Half of it is assumed, because
/// a buffer's size exceeds the bytes that it contains when it is full.
pub(crate) const WINDOW_STEPS: u64 = 8;

/// The largest receive buffer that is assumed, in bytes: that of a socket on a machine tuned for long fat
/// networks (`net.ipv4.tcp_rmem`).
pub(crate) const RECEIVE_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Maximum number of unsent bytes that a connection holds in the kernel: the cost of a slow reader in
/// addition to the segment that it pins; enough to keep the pipe of a fast reader full between two wake-ups
/// (128 KiB is a common setting).
pub(crate) const UNSENT_BYTES_MAX: u32 = 128 * 1024;

/// Interval of attempts to connect to a Unix socket whose backlog is full, in milliseconds: a server with
/// room accepts within it; no event is reported.
pub(crate) const BACKLOG_RETRY_MS: u64 = 10;
