//! Every bound of this crate, with unit and reason.

/// Maximum number of bytes of a receive queue that are moved: the longest request head that nodes accept by
/// default, which is the usual content at a handoff. Connections with more are served by the donor.
pub const RECEIVED_BYTES_MAX: usize = 16 * 1024;

/// Minimum segment size of a client whose connection is moved, in bytes: the kernel sets no smaller one
/// (`TCP_MIN_MSS`), and sends no smaller segments.
pub const MSS_BYTES_MIN: u16 = 88;

/// Maximum segment size that can be set on a socket, in bytes (`MAX_TCP_WINDOW`).
pub(crate) const MSS_BYTES_MAX: u16 = 32_767;

/// Maximum window shift (RFC 7323, 2.3).
pub const WINDOW_SCALE_MAX: u8 = 14;
