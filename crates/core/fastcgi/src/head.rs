//! The head of a reply in CGI's format (RFC 3875 6), translated into an HTTP head.
//!
//! Lines end with CRLF or LF. `Status` states the status; without it, it is 302 if there is
//! `Location`, else 200. A `Location` that is only a path is forwarded to the client in a 302, not
//! followed here (RFC 3875 6.2.2): the client's next request passes all checks, like any other.

use skep_http::gateway::{GatewayHead, HeadTranslator};
use skep_http::{HeadLimits, Method, Reject};

use crate::FcgiError;

/// Finds the end of a head in bytes that arrive in pieces, and stores it.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeadBuffer {
    bytes: Vec<u8>,
}

impl HeadBuffer {
    /// Consumes bytes up to the end of the head: returns how many, and whether it is complete.
    pub(crate) fn take(
        &mut self,
        input: &[u8],
        bytes_max: usize,
    ) -> Result<(usize, bool), FcgiError> {
        let room = bytes_max - self.bytes.len();
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&input[..input.len().min(room)]);
        let is_line_end = |at: &usize| self.bytes[*at] == b'\n';
        let ends = (start..self.bytes.len()).filter(is_line_end).find(|at| self.ends_at(*at));
        match ends {
            Some(at) => {
                self.bytes.truncate(at + 1);
                Ok((at + 1 - start, true))
            }
            None if self.bytes.len() == bytes_max => Err(FcgiError::HeadLong { bytes_max }),
            None => Ok((input.len(), false)),
        }
    }

    /// Whether the line that ends at `at` is empty.
    fn ends_at(&self, at: usize) -> bool {
        let before = &self.bytes[..at];
        let before = before.strip_suffix(b"\r").unwrap_or(before);
        before.is_empty() || before.ends_with(b"\n")
    }

    /// The head of the reply to a request with this method.
    pub(crate) fn translate(
        &self,
        method: Method<'_>,
        limits: &HeadLimits,
    ) -> Result<GatewayHead, FcgiError> {
        let status = self.status()?;
        let mut head = HeadTranslator::new(status, limits);
        for line in self.lines() {
            let (name, value) = line?;
            if !is(name, "status") {
                head.field(name, value).map_err(FcgiError::Head)?;
            }
        }
        head.finish(method).map_err(FcgiError::Head)
    }

    fn status(&self) -> Result<u16, FcgiError> {
        let (mut status, mut has_location, mut fields) = (None, false, 0);
        for line in self.lines() {
            let (name, value) = line?;
            fields += 1;
            has_location |= is(name, "location");
            if is(name, "status") && status.replace(read_status(value)?).is_some() {
                return Err(FcgiError::Status);
            }
        }
        match fields {
            0 => Err(FcgiError::HeadEmpty),
            _ => Ok(status.unwrap_or(if has_location { 302 } else { 200 })),
        }
    }

    /// Names and values; the translator checks them.
    fn lines(&self) -> impl Iterator<Item = Result<(&[u8], &[u8]), FcgiError>> {
        let lines = self.bytes.split(|byte| *byte == b'\n');
        let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        lines.filter(|line| !line.is_empty()).map(|line| {
            let colon = line.iter().position(|byte| *byte == b':');
            let no_colon = FcgiError::Head(Reject::FIELD_NO_COLON.by_upstream());
            let (name, value) = line.split_at(colon.ok_or(no_colon)?);
            Ok((name, value.get(1..).unwrap_or_default()))
        })
    }
}

fn is(name: &[u8], lower: &str) -> bool {
    name.eq_ignore_ascii_case(lower.as_bytes())
}

/// Parses three digits, followed by nothing or by a reason phrase, which is dropped.
fn read_status(value: &[u8]) -> Result<u16, FcgiError> {
    let value = value.trim_ascii();
    let (digits, rest) = value.split_at_checked(3).ok_or(FcgiError::Status)?;
    if !digits.iter().all(u8::is_ascii_digit) || !matches!(rest, [] | [b' ', ..]) {
        return Err(FcgiError::Status);
    }
    Ok(digits.iter().fold(0, |status, digit| status * 10 + u16::from(digit - b'0')))
}
