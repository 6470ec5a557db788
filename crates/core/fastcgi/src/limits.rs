//! Every limit of the codec, named, with its unit and its reason.

/// Header of a record.
pub const RECORD_HEAD_BYTES: usize = 8;

/// Content of a sent record. php-fpm closes the connection if content and padding together exceed
/// 65535; this is the multiple of 8 below that.
pub const CONTENT_BYTES_MAX: usize = 65528;

/// A line of STDERR; the rest of a longer one is dropped. PHP's own limit is 1,024 (`log_limit`).
pub const STDERR_LINE_BYTES_MAX: usize = 2048;

/// STDERR of one reply: the most that a looping script can write to the gateway's log.
pub const STDERR_BYTES_MAX: usize = 64 * 1024;
