//! Every bound of this crate, with unit and reason.

use std::time::Duration;

/// Time that a client may take for replies from memory before they are copied, at most
/// `connection_bytes_max` and one reply: the longest time for which slow clients pin shared memory.
pub(crate) const OWN_AFTER: Duration = Duration::from_secs(1);

/// Requests that one turn answers before it yields the thread.
pub(crate) const TURN_REQUESTS_MAX: usize = 64;

/// Bytes of an unread request body that are read and discarded so that the connection can be
/// reused; above it, closing the connection is cheaper for both sides.
pub(crate) const DRAIN_BYTES_MAX: usize = 256 * 1024;

/// Time limit for that, in milliseconds.
pub(crate) const DRAIN_MS_MAX: u64 = 2_000;

/// Bytes buffered in one direction of a tunnel, at most. Small, since an idle tunnel keeps its two
/// buffers.
pub(crate) const TUNNEL_BYTES_MAX: usize = 16 * 1024;
