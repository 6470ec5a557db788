//! Every limit of the client, with its unit and its reason.

use std::time::Duration;

/// How long a client waits for a connection and for each byte unless told otherwise: so long that
/// a loaded machine makes no failure of it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A head longer than this is an error, in bytes: the largest that a test wants are of 64 KiB.
pub(crate) const HEAD_BYTES_MAX: usize = 256 * 1024;

/// A line between chunks longer than this is an error, in bytes: a size has 16 digits at most, and
/// a trailer is a part of no head.
pub(crate) const LINE_BYTES_MAX: usize = 64 * 1024;

/// Bytes of one read.
pub(crate) const READ_BYTES: usize = 64 * 1024;

/// Bytes of what is no HTTP that an error shows.
pub(crate) const SHOWN_BYTES_MAX: usize = 400;
