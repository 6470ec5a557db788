//! Content codings (RFC 9110 8.4.1): gzip (RFC 1952), br (RFC 7932) and zstd (RFC 8878), encoded
//! incrementally.
//!
//! ```text
//!  Encoder::new(coding, level, size) -- push* -- flush? -- take* -- finish --> the rest
//! ```
//!
//! Invariants: the concatenated results of all calls of [`Encoder::take`] and [`Encoder::finish`]
//! are one complete message in the coding; after [`Encoder::flush`], everything that was pushed can
//! be decoded from the output. An encoder uses at most [`limits::ENCODER_BYTES_MAX`] besides output
//! that was not taken.

#![forbid(unsafe_code)]

pub mod limits;

use std::fmt;
use std::io::{self, Write};
use std::ops::RangeInclusive;

use skep_http::negotiate::Encoding;

use limits::{BROTLI_BUFFER_BYTES, BROTLI_WINDOW_LOG, STREAM_WINDOW_LOG};

/// The encoder of one message.
pub struct Encoder(Coding);

enum Coding {
    Br(Box<brotli::CompressorWriter<Vec<u8>>>),
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Zstd(zstd::Encoder<'static, Vec<u8>>),
}

/// The levels of a coding, from fast to small. Those of zstd from 20 on are excluded: their windows
/// exceed the 8 MiB that clients must support, and encoders must not exceed (RFC 9659 3).
pub fn levels(coding: Encoding) -> RangeInclusive<u32> {
    match coding {
        Encoding::Br => 0..=11,
        Encoding::Gzip => 1..=9,
        Encoding::Zstd => 1..=19,
    }
}

impl Encoder {
    /// An encoder for a message of `bytes` bytes if that is known; otherwise for a stream, with
    /// less memory, since there may be many at a time. A `level` outside [`levels`] is replaced by
    /// the nearest one.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(coding: Encoding, level: u32, bytes: Option<u64>) -> io::Result<Self> {
        let known = levels(coding);
        let level = level.clamp(*known.start(), *known.end());
        Ok(Self(match coding {
            Encoding::Br => {
                let params = brotli::enc::BrotliEncoderParams {
                    quality: level as i32,
                    lgwin: if bytes.is_some() {
                        BROTLI_WINDOW_LOG
                    } else {
                        STREAM_WINDOW_LOG as i32
                    },
                    size_hint: bytes.map_or(0, |bytes| usize::try_from(bytes).unwrap_or(0)),
                    ..Default::default()
                };
                let out = Vec::new();
                let writer =
                    brotli::CompressorWriter::with_params(out, BROTLI_BUFFER_BYTES, &params);
                Coding::Br(Box::new(writer))
            }
            Encoding::Gzip => {
                let level = flate2::Compression::new(level);
                Coding::Gzip(flate2::write::GzEncoder::new(Vec::new(), level))
            }
            Encoding::Zstd => {
                let mut encoder = zstd::Encoder::new(Vec::new(), level as i32)?;
                match bytes {
                    Some(_) => encoder.set_pledged_src_size(bytes)?,
                    None => encoder.window_log(STREAM_WINDOW_LOG)?,
                }
                Coding::Zstd(encoder)
            }
        }))
    }

    /// Encodes the next bytes of the message.
    ///
    /// # Errors
    /// Out of memory, or more bytes than [`Encoder::new`] was passed. The encoder cannot be used
    /// any more.
    pub fn push(&mut self, data: &[u8]) -> io::Result<()> {
        match &mut self.0 {
            Coding::Br(encoder) => encoder.write_all(data),
            Coding::Gzip(encoder) => encoder.write_all(data),
            Coding::Zstd(encoder) => encoder.write_all(data),
        }
    }

    /// Outputs everything that was pushed, at some cost in size.
    ///
    /// # Errors
    /// As for [`Encoder::push`].
    pub fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Coding::Br(encoder) => encoder.flush(),
            Coding::Gzip(encoder) => encoder.flush(),
            Coding::Zstd(encoder) => encoder.flush(),
        }
    }

    /// The output since the last call.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(self.out())
    }

    /// Number of bytes that the next [`Encoder::take`] returns.
    pub fn ready_bytes(&mut self) -> usize {
        self.out().len()
    }

    /// Ends the message; returns the rest of the output.
    ///
    /// # Errors
    /// As for [`Encoder::push`]; or fewer bytes than [`Encoder::new`] was passed.
    pub fn finish(self) -> io::Result<Vec<u8>> {
        match self.0 {
            Coding::Br(encoder) => Ok(encoder.into_inner()),
            Coding::Gzip(encoder) => encoder.finish(),
            Coding::Zstd(encoder) => encoder.finish(),
        }
    }

    fn out(&mut self) -> &mut Vec<u8> {
        match &mut self.0 {
            Coding::Br(encoder) => encoder.get_mut(),
            Coding::Gzip(encoder) => encoder.get_mut(),
            Coding::Zstd(encoder) => encoder.get_mut(),
        }
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Coding::Br(_) => "Encoder(br)",
            Coding::Gzip(_) => "Encoder(gzip)",
            Coding::Zstd(_) => "Encoder(zstd)",
        })
    }
}
