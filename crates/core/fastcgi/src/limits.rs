//! Every limit of the codec, named, with its unit and its reason.

/// Header of a record.
pub const RECORD_HEAD_BYTES: usize = 8;

/// Content of a record that is sent. php-fpm closes the connection where content and padding
/// together are above 65535; this is the multiple of 8 below.
pub const CONTENT_BYTES_MAX: usize = 65528;

/// A line of STDERR; the rest of a longer one is dropped. PHP's own limit is 1,024 (`log_limit`).
pub const STDERR_LINE_BYTES_MAX: usize = 2048;

/// STDERR of one reply: what a script in a loop may write into the log of the gateway.
pub const STDERR_BYTES_MAX: usize = 64 * 1024;
