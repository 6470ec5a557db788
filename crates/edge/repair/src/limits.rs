//! Every bound of this crate, with unit and reason.

/// Bytes of a receive queue that travel, at most: a request's head of the longest kind that nodes take by
/// default, which is a handoff's usual content. Longer ones are served where they are.
pub const RECEIVED_BYTES_MAX: usize = 16 * 1024;

/// Smallest segment size of a client that travels, in bytes: the kernel sets no smaller one
/// (`TCP_MIN_MSS`), and sends no smaller segments.
pub const MSS_BYTES_MIN: u16 = 88;

/// Largest segment size that can be set on a socket, in bytes (`MAX_TCP_WINDOW`).
pub(crate) const MSS_BYTES_MAX: u16 = 32_767;

/// Largest shift of a window (RFC 7323, 2.3).
pub const WINDOW_SCALE_MAX: u8 = 14;
