//! Every bound of this crate, with unit and reason.

/// Bytes that one read takes from a socket, at most. One buffer of this size
/// exists per worker, not per connection: 64 KiB is past the point where a
/// larger read lowers the cost per byte of an upload.
pub const INPUT_BYTES: usize = 64 * 1024;

/// Parts that one vectored write carries. Linux takes 1024; beyond 64 the cost
/// per part no longer falls, and the array lives on the stack.
pub const REPLY_PARTS_MAX: usize = 64;

/// Bytes that one connection sends before it yields: large enough that a turn costs nothing, small
/// enough that 64 readers of huge files share.
pub(crate) const SEND_TURN_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of a memory file from which on they are sent without a copy. A socket keeps an allocation of up to 64 KiB for
/// each run of bytes in its queue: with this many or more, a queue of 128 KiB has few.
pub(crate) const COPIED_BYTES_MAX: usize = 8 * 1024;

/// Connections waiting in the kernel for `accept`, per worker and listener.
/// The kernel clips it to `net.core.somaxconn` (4096 by default).
pub(crate) const BACKLOG_MAX: i32 = 4096;

/// Interval of the search for overdue connections, in milliseconds: the error of every timeout, and
/// the finest granularity.
pub(crate) const SWEEP_INTERVAL_MS: u64 = 100;

/// Threads per worker that may block on a disk.
pub(crate) const BLOCKING_THREADS_MAX: usize = 8;

/// Bytes that the peer may still send after an error reply and that are discarded before the close,
/// so that no reset destroys the reply.
pub(crate) const LINGER_BYTES_MAX: usize = 256 * 1024;

/// Duration of the same, in milliseconds.
pub(crate) const LINGER_MS_MAX: u64 = 1_000;

/// Pause after the accept of a connection failed for want of descriptors or
/// memory, in milliseconds: long enough not to spin, short enough to recover.
pub(crate) const ACCEPT_PAUSE_MS: u64 = 20;

/// Connections that one wake-up accepts before it yields.
pub(crate) const ACCEPT_BATCH_MAX: usize = 64;

/// Scratch outputs kept for reuse by one worker.
pub(crate) const OUTPUTS_KEPT_MAX: usize = 64;

/// Capacity above which a scratch buffer is freed instead of kept, in bytes.
pub(crate) const SCRATCH_BYTES_MAX: usize = 256 * 1024;

/// Shards of the per-address table; accepts on different cores rarely meet.
pub(crate) const ADDRESS_SHARDS: usize = 16;

/// Checks of a stalled peer within the time after which it is cut: it may be cut late by one
/// interval, an eighth.
pub(crate) const STALL_LOOKS: u64 = 8;

/// Steps in which a receiver opens its window: 16 in Linux and BSD. Half, because a
/// buffer holds more than the bytes that are in it when it is full.
pub(crate) const WINDOW_STEPS: u64 = 8;

/// The largest buffer that a receiver is believed to have, in bytes: what a machine
/// tuned for long fat networks gives a socket (`net.ipv4.tcp_rmem`).
pub(crate) const RECEIVE_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Bytes that a connection holds in the kernel without having sent them: what a
/// slow reader costs beside the segment that it pins; enough to keep a fast one's
/// pipe full between two wake-ups (128 KiB is what others run with).
pub(crate) const UNSENT_BYTES_MAX: u32 = 128 * 1024;

/// Time between two tries to connect to a Unix socket whose backlog is full, in milliseconds: a server
/// accepts within it, if it has room; no event tells.
pub(crate) const BACKLOG_RETRY_MS: u64 = 10;
