//! The fields that delimit messages and connections: Content-Length,
//! Transfer-Encoding, Connection, Upgrade (RFC 9112 6, 7.1, 9; RFC 9110 7.6.1).
//!
//! These rules prevent two parsers from seeing different messages in the same bytes. Even what an
//! RFC merely advises against is refused.

use crate::bytes::{self, eq_lower};
use crate::fields::KnownSet;
use crate::limits::CONNECTION_OPTIONS_MAX;
use crate::{Fields, Known, Reject, Version};

/// The body announced by the framing fields, before method and status are considered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announced {
    Nothing,
    Length(u64),
    Chunked,
}

/// Reads Content-Length and Transfer-Encoding.
#[inline]
pub(crate) fn announced(fields: &Fields<'_, '_>, version: Version) -> Result<Announced, Reject> {
    const FRAMING: KnownSet = KnownSet::of(&[Known::ContentLength, Known::TransferEncoding]);
    if !fields.any(FRAMING) {
        return Ok(Announced::Nothing);
    }
    let length = fields.known(Known::ContentLength);
    let coding = fields.known(Known::TransferEncoding);
    match (length, coding) {
        (Some(_), Some(_)) => Err(Reject::LENGTH_AND_CODING),
        (None, Some(coding)) => chunked(fields, coding, version),
        (Some(_), None) if fields.is_repeated(Known::ContentLength) => Err(Reject::LENGTH_REPEATED),
        (Some(digits), None) => {
            parse_length(digits).map(Announced::Length).ok_or(Reject::LENGTH_INVALID)
        }
        (None, None) => Ok(Announced::Nothing),
    }
}

/// Only a single `chunked`, and only in HTTP/1.1.
fn chunked(fields: &Fields<'_, '_>, coding: &[u8], version: Version) -> Result<Announced, Reject> {
    if version == Version::Http10 {
        return Err(Reject::CODING_IN_HTTP10);
    }
    if fields.is_repeated(Known::TransferEncoding) {
        return Err(Reject::CODING_REPEATED);
    }
    if eq_lower(coding, b"chunked") {
        return Ok(Announced::Chunked);
    }
    let mut before = coding.split(|b| *b == b',').map(bytes::trim);
    let last_chunked = before.next_back().is_some_and(|last| eq_lower(last, b"chunked"));
    let others = before.all(|c| is_token(c) && !eq_lower(c, b"chunked"));
    Err(if last_chunked && others { Reject::CODING_UNKNOWN } else { Reject::CODING_INVALID })
}

fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes::all(bytes, bytes::TOKEN)
}

/// Digits only, no leading zero, no overflow.
#[inline]
pub(crate) fn parse_length(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || (digits[0] == b'0' && digits.len() > 1) {
        return None;
    }
    digits.iter().try_fold(0u64, |number, digit| {
        let value = digit.wrapping_sub(b'0');
        if value > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(value))
    })
}

/// The options of Connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
    pub(crate) upgrade: bool,
}

impl Options {
    /// Whether the connection stays open (RFC 9112 9.3).
    #[inline]
    pub(crate) fn persistent(self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }
}

/// Reads every Connection field.
#[inline]
pub(crate) fn connection(fields: &Fields<'_, '_>) -> Result<Options, Reject> {
    let mut options = Options::default();
    match fields.known(Known::Connection) {
        None => Ok(options),
        Some(value) if !fields.is_repeated(Known::Connection) && options.add(value) => Ok(options),
        Some(_) => connection_list(fields),
    }
}

fn connection_list(fields: &Fields<'_, '_>) -> Result<Options, Reject> {
    let mut options = Options::default();
    for (count, option) in listed(fields).enumerate() {
        if count == CONNECTION_OPTIONS_MAX || !is_token(option) {
            return Err(Reject::CONNECTION_OPTIONS);
        }
        options.add(option);
    }
    Ok(options)
}

impl Options {
    /// Records one option; returns whether it is a known one.
    #[inline]
    fn add(&mut self, option: &[u8]) -> bool {
        if eq_lower(option, b"keep-alive") {
            self.keep_alive = true;
        } else if eq_lower(option, b"close") {
            self.close = true;
        } else if eq_lower(option, b"upgrade") {
            self.upgrade = true;
        } else {
            return false;
        }
        true
    }
}

/// The options of every Connection field.
pub(crate) fn listed<'h, 'b>(
    fields: &Fields<'h, 'b>,
) -> impl Iterator<Item = &'b [u8]> + use<'h, 'b> {
    fields.known_all(Known::Connection).flat_map(bytes::list)
}

/// The protocols of Upgrade, if Connection lists it and the version supports it (RFC 9110 7.8).
#[inline]
pub(crate) fn upgrade<'b>(
    fields: &Fields<'_, 'b>,
    options: Options,
    version: Version,
) -> Option<&'b [u8]> {
    let wanted = options.upgrade && version == Version::Http11;
    if !wanted || fields.is_repeated(Known::Upgrade) {
        return None;
    }
    fields.known(Known::Upgrade).filter(|protocols| !protocols.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_plain_numbers() {
        assert_eq!(parse_length(b"0"), Some(0));
        assert_eq!(parse_length(b"18446744073709551615"), Some(u64::MAX));
        for bad in ["", "00", "01", "+1", "-1", "1 ", " 1", "1,1", "0x1", "1_0", "1e3", "1.0", "a"]
        {
            assert_eq!(parse_length(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(parse_length(b"18446744073709551616"), None);
        assert_eq!(parse_length(b"99999999999999999999999"), None);
    }
}
