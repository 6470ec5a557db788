//! Every bound of this crate, with unit and reason.

/// Binary logarithm of the br window, in bytes: 1 MiB. With the largest one of 16 MiB, web files
/// would be 1 % smaller, but each encoder and each client would need that memory.
pub const BROTLI_WINDOW_LOG: i32 = 20;

/// Binary logarithm of the windows of streams, in bytes: 256 KiB, eight times that of gzip.
pub const STREAM_WINDOW_LOG: u32 = 18;

/// Bytes that the br encoder buffers before encoding: output comes in pieces of at least this size,
/// however small the pushed pieces are.
pub const BROTLI_BUFFER_BYTES: usize = 16 * 1024;

/// Memory of an encoder besides its output, in bytes: measured for zstd at its highest level. At
/// the default levels none takes more than 15 MiB, and one for a stream, at level 4, 2.2 MiB.
pub const ENCODER_BYTES_MAX: usize = 96 * 1024 * 1024;
