//! Every bound of this crate, with unit and reason.

/// Binary logarithm of the window of br, in bytes: 1 MiB. Files of the web gain 1 % by the largest one of
/// 16 MiB, which takes each encoder and each client that memory.
pub const BROTLI_WINDOW_LOG: i32 = 20;

/// Binary logarithm of the windows of streams, in bytes: 256 KiB, eight times that of gzip.
pub const STREAM_WINDOW_LOG: u32 = 18;

/// Bytes that the encoder of br gathers before they are encoded: what is pushed comes out in pieces as
/// large as these, whatever was pushed at a time.
pub const BROTLI_BUFFER_BYTES: usize = 16 * 1024;

/// Memory that an encoder takes beside its output, in bytes: that of zstd at its highest level, by
/// measurement. At the default levels none takes more than 15 MiB, and one of a stream, at level 4, 2.2 MiB.
pub const ENCODER_BYTES_MAX: usize = 96 * 1024 * 1024;
