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
//! Every CRLF is CRLF: a lone CR or LF anywhere in the framing is an error,
//! also inside a quoted extension value.

use crate::bytes::{self, TOKEN, VALUE};
use crate::{BodyLimits, Reject};

/// Hexadecimal digits of a size: so many fit into 64 bits.
const SIZE_DIGITS_MAX: u8 = 16;

/// Where the machine stands, and what it may still take.
#[derive(Clone, Debug)]
pub(crate) struct Chunked {
    place: Place,
    /// Of the current chunk: its size while it is read, then what is left.
    chunk_bytes: u64,
    size_digits: u8,
    last_chunk: bool,
    /// Payload that may still come, over all chunks.
    body_bytes_left: u64,
    line_bytes_left: usize,
    line_bytes_max: usize,
    ext_bytes_left: usize,
    trailer_bytes_left: usize,
    trailer_fields_left: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
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

/// What a byte led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    More,
    BodyEnd,
}

impl Chunked {
    pub(crate) fn new(limits: &BodyLimits) -> Chunked {
        Chunked {
            place: Place::Size,
            chunk_bytes: 0,
            size_digits: 0,
            last_chunk: false,
            body_bytes_left: limits.body_bytes_max,
            line_bytes_left: limits.chunk_line_bytes_max,
            line_bytes_max: limits.chunk_line_bytes_max,
            ext_bytes_left: limits.chunk_ext_bytes_max,
            trailer_bytes_left: limits.trailer_bytes_max,
            trailer_fields_left: limits.trailer_fields_max,
        }
    }

    /// Payload bytes of the current chunk to come now; `None`: a byte of
    /// framing comes next.
    #[inline]
    pub(crate) fn payload_left(&self) -> Option<u64> {
        (self.place == Place::Payload).then_some(self.chunk_bytes)
    }

    /// So many payload bytes were taken.
    #[inline]
    pub(crate) fn took(&mut self, bytes: u64) {
        assert!(bytes <= self.chunk_bytes, "more payload taken than the chunk has");
        self.chunk_bytes -= bytes;
        if self.chunk_bytes == 0 {
            self.place = Place::PayloadCr;
        }
    }

    /// Takes one byte of framing.
    pub(crate) fn step(&mut self, byte: u8) -> Result<Step, Reject> {
        self.place = match self.place {
            Place::Size => self.size(byte)?,
            Place::Ext(ext) => self.ext(ext, byte)?,
            Place::SizeLf => self.size_lf(byte)?,
            Place::PayloadCr if byte == b'\r' => Place::PayloadLf,
            Place::PayloadLf if byte == b'\n' => self.next_line(),
            Place::PayloadCr | Place::PayloadLf => return Err(Reject::CHUNK_END),
            Place::TrailerStart | Place::TrailerName | Place::TrailerValue => self.trailer(byte)?,
            Place::TrailerLf if byte == b'\n' => Place::TrailerStart,
            Place::EndLf if byte == b'\n' => Place::End,
            Place::TrailerLf | Place::EndLf => return Err(Reject::TRAILER_FIELD),
            Place::Payload | Place::End => unreachable!("no framing is expected here"),
        };
        Ok(if self.place == Place::End { Step::BodyEnd } else { Step::More })
    }

    fn next_line(&mut self) -> Place {
        self.line_bytes_left = self.line_bytes_max;
        self.chunk_bytes = 0;
        self.size_digits = 0;
        Place::Size
    }

    fn line_byte(&mut self) -> Result<(), Reject> {
        self.line_bytes_left =
            self.line_bytes_left.checked_sub(1).ok_or(Reject::CHUNK_LINE_LONG)?;
        Ok(())
    }

    fn size(&mut self, byte: u8) -> Result<Place, Reject> {
        self.line_byte()?;
        if let Some(digit) = hex_value(byte) {
            if self.size_digits == SIZE_DIGITS_MAX {
                return Err(Reject::CHUNK_SIZE);
            }
            self.size_digits += 1;
            self.chunk_bytes = (self.chunk_bytes << 4) | u64::from(digit);
            return Ok(Place::Size);
        }
        if self.size_digits == 0 || !matches!(byte, b'\r' | b';' | b' ' | b'\t') {
            return Err(Reject::CHUNK_SIZE);
        }
        self.last_chunk = self.chunk_bytes == 0;
        self.body_bytes_left =
            self.body_bytes_left.checked_sub(self.chunk_bytes).ok_or(Reject::BODY_TOO_LARGE)?;
        if byte == b'\r' {
            return Ok(Place::SizeLf);
        }
        self.ext_byte()?;
        Ok(Place::Ext(if byte == b';' { Ext::BeforeName } else { Ext::BeforeSemicolon }))
    }

    fn size_lf(&mut self, byte: u8) -> Result<Place, Reject> {
        self.line_byte()?;
        match (byte, self.last_chunk) {
            (b'\n', true) => Ok(Place::TrailerStart),
            (b'\n', false) => Ok(Place::Payload),
            _ => Err(Reject::CHUNK_END),
        }
    }

    fn ext_byte(&mut self) -> Result<(), Reject> {
        self.ext_bytes_left = self.ext_bytes_left.checked_sub(1).ok_or(Reject::CHUNK_EXT_LARGE)?;
        Ok(())
    }

    fn ext(&mut self, ext: Ext, byte: u8) -> Result<Place, Reject> {
        self.line_byte()?;
        if byte == b'\r' {
            // Blanks may not end the line: nothing follows them.
            let complete = matches!(ext, Ext::Name | Ext::Value | Ext::AfterQuoted);
            return if complete { Ok(Place::SizeLf) } else { Err(Reject::CHUNK_EXT) };
        }
        self.ext_byte()?;
        ext.next(byte).map(Place::Ext).ok_or(Reject::CHUNK_EXT)
    }

    fn trailer(&mut self, byte: u8) -> Result<Place, Reject> {
        self.trailer_bytes_left =
            self.trailer_bytes_left.checked_sub(1).ok_or(Reject::TRAILER_TOO_LARGE)?;
        match (self.place, byte) {
            (Place::TrailerStart, b'\r') => Ok(Place::EndLf),
            (Place::TrailerStart, _) if bytes::is(byte, TOKEN) => {
                self.trailer_fields_left =
                    self.trailer_fields_left.checked_sub(1).ok_or(Reject::TRAILER_TOO_LARGE)?;
                Ok(Place::TrailerName)
            }
            (Place::TrailerName, b':') => Ok(Place::TrailerValue),
            (Place::TrailerName, _) if bytes::is(byte, TOKEN) => Ok(Place::TrailerName),
            (Place::TrailerValue, b'\r') => Ok(Place::TrailerLf),
            (Place::TrailerValue, _) if bytes::is(byte, VALUE) => Ok(Place::TrailerValue),
            _ => Err(Reject::TRAILER_FIELD),
        }
    }
}

impl Ext {
    /// Where `byte`, which is not CR, leads inside of an extension.
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
