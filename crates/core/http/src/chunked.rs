//! The framing of chunked bodies, one byte at a time (RFC 9112 7.1).
//!
//! ```text
//!  Size -> [Ext...] -> SizeLf -> Payload -> PayloadCr -> PayloadLf -> Size ...
//!                        | last chunk
//!                        v
//!                   TrailerStart -> TrailerName -> TrailerValue -> TrailerLf -> TrailerStart
//!                        | CR                                                       |
//!                        v                                                          |
//!                      EndLf -> End  <----------------------------------------------+
//! ```
//! Every line ends with CRLF: a lone CR or LF anywhere in the framing is an error, even inside a
//! quoted extension value.

use crate::bytes::{self, TOKEN, VALUE};
use crate::{BodyLimits, Reject};

/// Hexadecimal digits of a size: as many as fit into 64 bits.
const SIZE_DIGITS_MAX: u8 = 16;

/// The state of the machine, and its remaining allowances.
#[derive(Clone, Debug)]
pub(crate) struct Chunked {
    place: ChunkState,
    /// The size of the current chunk while it is parsed, then the bytes left.
    chunk_bytes: u64,
    size_digits: u8,
    last_chunk: bool,
    /// Payload bytes still allowed, over all chunks.
    body_bytes_left: u64,
    line_bytes_left: usize,
    line_bytes_max: usize,
    ext_bytes_left: usize,
    trailer_bytes_left: usize,
    trailer_fields_left: usize,
    /// The lines so far, if they are kept.
    trailers: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    Size,
    Ext(Ext),
    SizeLf,
    Payload,
    PayloadCr,
    PayloadLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    End,
}

/// `*( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ext {
    /// Blanks that only a semicolon may follow.
    BeforeSemicolon,
    BeforeName,
    Name,
    AfterName,
    BeforeValue,
    Value,
    Quoted,
    QuotedPair,
    AfterQuoted,
}

/// The result of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    More,
    BodyEnd,
}

impl Chunked {
    pub(crate) fn new(limits: &BodyLimits) -> Chunked {
        Chunked {
            place: ChunkState::Size,
            chunk_bytes: 0,
            size_digits: 0,
            last_chunk: false,
            body_bytes_left: limits.body_bytes_max,
            line_bytes_left: limits.chunk_line_bytes_max,
            line_bytes_max: limits.chunk_line_bytes_max,
            ext_bytes_left: limits.chunk_ext_bytes_max,
            trailer_bytes_left: limits.trailer_bytes_max,
            trailer_fields_left: limits.trailer_fields_max,
            trailers: None,
        }
    }

    pub(crate) fn keep_trailers(&mut self) {
        self.trailers = Some(Vec::new());
    }

    pub(crate) fn take_trailers(&mut self) -> Vec<u8> {
        self.trailers.take().unwrap_or_default()
    }

    /// Payload bytes left in the current chunk; `None` if the next byte is framing.
    #[inline]
    pub(crate) fn payload_left(&self) -> Option<u64> {
        (self.place == ChunkState::Payload).then_some(self.chunk_bytes)
    }

    /// Records that payload bytes were taken.
    #[inline]
    pub(crate) fn took(&mut self, bytes: u64) {
        assert!(bytes <= self.chunk_bytes, "more payload taken than the chunk has");
        self.chunk_bytes -= bytes;
        if self.chunk_bytes == 0 {
            self.place = ChunkState::PayloadCr;
        }
    }

    /// Processes one byte of framing.
    pub(crate) fn step(&mut self, byte: u8) -> Result<Step, Reject> {
        self.place = match self.place {
            ChunkState::Size => self.size(byte)?,
            ChunkState::Ext(ext) => self.ext(ext, byte)?,
            ChunkState::SizeLf => self.size_lf(byte)?,
            ChunkState::PayloadCr if byte == b'\r' => ChunkState::PayloadLf,
            ChunkState::PayloadLf if byte == b'\n' => self.next_line(),
            ChunkState::PayloadCr | ChunkState::PayloadLf => return Err(Reject::CHUNK_END),
            ChunkState::TrailerStart | ChunkState::TrailerName | ChunkState::TrailerValue => {
                self.trailer(byte)?
            }
            ChunkState::TrailerLf if byte == b'\n' => {
                self.keep(byte);
                ChunkState::TrailerStart
            }
            ChunkState::EndLf if byte == b'\n' => ChunkState::End,
            ChunkState::TrailerLf | ChunkState::EndLf => return Err(Reject::TRAILER_FIELD),
            ChunkState::Payload | ChunkState::End => unreachable!("no framing is expected here"),
        };
        Ok(if self.place == ChunkState::End { Step::BodyEnd } else { Step::More })
    }

    fn next_line(&mut self) -> ChunkState {
        self.line_bytes_left = self.line_bytes_max;
        self.chunk_bytes = 0;
        self.size_digits = 0;
        ChunkState::Size
    }

    fn line_byte(&mut self) -> Result<(), Reject> {
        self.line_bytes_left =
            self.line_bytes_left.checked_sub(1).ok_or(Reject::CHUNK_LINE_LONG)?;
        Ok(())
    }

    fn size(&mut self, byte: u8) -> Result<ChunkState, Reject> {
        self.line_byte()?;
        if let Some(digit) = hex_value(byte) {
            if self.size_digits == SIZE_DIGITS_MAX {
                return Err(Reject::CHUNK_SIZE);
            }
            self.size_digits += 1;
            self.chunk_bytes = (self.chunk_bytes << 4) | u64::from(digit);
            return Ok(ChunkState::Size);
        }
        if self.size_digits == 0 || !matches!(byte, b'\r' | b';' | b' ' | b'\t') {
            return Err(Reject::CHUNK_SIZE);
        }
        self.last_chunk = self.chunk_bytes == 0;
        self.body_bytes_left =
            self.body_bytes_left.checked_sub(self.chunk_bytes).ok_or(Reject::BODY_TOO_LARGE)?;
        if byte == b'\r' {
            return Ok(ChunkState::SizeLf);
        }
        self.ext_byte()?;
        Ok(ChunkState::Ext(if byte == b';' { Ext::BeforeName } else { Ext::BeforeSemicolon }))
    }

    fn size_lf(&mut self, byte: u8) -> Result<ChunkState, Reject> {
        self.line_byte()?;
        match (byte, self.last_chunk) {
            (b'\n', true) => Ok(ChunkState::TrailerStart),
            (b'\n', false) => Ok(ChunkState::Payload),
            _ => Err(Reject::CHUNK_END),
        }
    }

    fn ext_byte(&mut self) -> Result<(), Reject> {
        self.ext_bytes_left = self.ext_bytes_left.checked_sub(1).ok_or(Reject::CHUNK_EXT_LARGE)?;
        Ok(())
    }

    fn ext(&mut self, ext: Ext, byte: u8) -> Result<ChunkState, Reject> {
        self.line_byte()?;
        if byte == b'\r' {
            // Blanks may not end the line: nothing may follow them.
            let complete = matches!(ext, Ext::Name | Ext::Value | Ext::AfterQuoted);
            return if complete { Ok(ChunkState::SizeLf) } else { Err(Reject::CHUNK_EXT) };
        }
        self.ext_byte()?;
        ext.next(byte).map(ChunkState::Ext).ok_or(Reject::CHUNK_EXT)
    }

    fn trailer(&mut self, byte: u8) -> Result<ChunkState, Reject> {
        self.trailer_bytes_left =
            self.trailer_bytes_left.checked_sub(1).ok_or(Reject::TRAILER_TOO_LARGE)?;
        let next = self.trailer_place(byte)?;
        if next != ChunkState::EndLf {
            self.keep(byte);
        }
        Ok(next)
    }

    /// Keeps a byte of a trailer, if wanted; bounded by the limits on trailers.
    fn keep(&mut self, byte: u8) {
        if let Some(trailers) = &mut self.trailers {
            trailers.push(byte);
        }
    }

    fn trailer_place(&mut self, byte: u8) -> Result<ChunkState, Reject> {
        match (self.place, byte) {
            (ChunkState::TrailerStart, b'\r') => Ok(ChunkState::EndLf),
            (ChunkState::TrailerStart, _) if bytes::is(byte, TOKEN) => {
                self.trailer_fields_left =
                    self.trailer_fields_left.checked_sub(1).ok_or(Reject::TRAILER_TOO_LARGE)?;
                Ok(ChunkState::TrailerName)
            }
            (ChunkState::TrailerName, b':') => Ok(ChunkState::TrailerValue),
            (ChunkState::TrailerName, _) if bytes::is(byte, TOKEN) => Ok(ChunkState::TrailerName),
            (ChunkState::TrailerValue, b'\r') => Ok(ChunkState::TrailerLf),
            (ChunkState::TrailerValue, _) if bytes::is(byte, VALUE) => Ok(ChunkState::TrailerValue),
            _ => Err(Reject::TRAILER_FIELD),
        }
    }
}

impl Ext {
    /// The state after `byte`, which is not CR, inside an extension.
    fn next(self, byte: u8) -> Option<Ext> {
        let blank = matches!(byte, b' ' | b'\t');
        let token = bytes::is(byte, TOKEN);
        Some(match (self, byte) {
            (Ext::BeforeSemicolon | Ext::Name | Ext::AfterName, b';') => Ext::BeforeName,
            (Ext::Value | Ext::AfterQuoted, b';') => Ext::BeforeName,
            (Ext::Name | Ext::AfterName, b'=') => Ext::BeforeValue,
            (Ext::BeforeValue, b'"') => Ext::Quoted,
            (Ext::Quoted, b'"') => Ext::AfterQuoted,
            (Ext::Quoted, b'\\') => Ext::QuotedPair,
            (Ext::Quoted | Ext::QuotedPair, _) if bytes::is(byte, VALUE) => Ext::Quoted,
            (Ext::BeforeName | Ext::Name, _) if token => Ext::Name,
            (Ext::BeforeValue | Ext::Value, _) if token => Ext::Value,
            (Ext::Name | Ext::AfterName, _) if blank => Ext::AfterName,
            (Ext::Value | Ext::AfterQuoted | Ext::BeforeSemicolon, _) if blank => {
                Ext::BeforeSemicolon
            }
            (Ext::BeforeName | Ext::BeforeValue, _) if blank => self,
            _ => return None,
        })
    }
}

fn hex_value(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}
