//! Bounds and fixed numbers of the socket and its thread, with units and reasons.

/// Receive buffer, in bytes (the system may grant less): some seconds of the
/// heartbeats of 256 nodes, so that a pause loses none, or one long table.
pub(crate) const RECEIVE_BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// Send buffer, in bytes: one long table.
pub(crate) const SEND_BUFFER_BYTES: usize = 2 * 1024 * 1024;

/// Datagrams that one wait looks at before it gives the caller a turn: those
/// that are refused must not keep heartbeats from being sent.
pub(crate) const DATAGRAMS_PER_WAIT_MAX: usize = 1_024;

/// Traffic class of what keeps the network going: CS6 (RFC 4594, 3.1), shifted
/// to its place in the byte.
pub(crate) const TRAFFIC_CLASS: u32 = 48 << 2;

/// Real-time priority of the thread: above everything that is not real-time,
/// below what the kernel runs at 50 (threaded interrupts), which it waits for.
pub(crate) const ROUND_ROBIN_PRIORITY: i32 = 10;

/// Niceness where real time is not allowed.
pub(crate) const NICENESS: i32 = -15;
