//! Parses SEND_HEADERS: the head of a reply, in one untrusted packet.
//!
//! Every read is checked against the end of the packet (CVE-2026-28780, CVE-2026-34059,
//! CVE-2026-34032, CVE-2026-33857 were unchecked reads). The reason phrase is dropped: control
//! characters in it could reach the status line (CVE-2026-33523).

use skep_http::gateway::{GatewayHead, HeadTranslator};
use skep_http::{HeadLimits, Method};

use crate::AjpError;
use crate::codes::{NAME_CODE, NULL_STRING, response_name};

/// Parses a packet's payload after its type.
pub(crate) fn read_head(
    payload: &[u8],
    method: Method<'_>,
    limits: &HeadLimits,
) -> Result<GatewayHead, AjpError> {
    let mut packet = PacketReader { rest: payload };
    let status = packet.u16("a status")?;
    packet.string_or_null("a reason phrase")?;
    let count = packet.u16("the number of fields")?;
    let mut head = HeadTranslator::new(status, limits);
    for _ in 0..count {
        let name = packet.name()?;
        let value = packet.string("a field's value")?;
        head.field(name, value).map_err(AjpError::Head)?;
    }
    if !packet.rest.is_empty() {
        return Err(AjpError::HeadTail(packet.rest.len()));
    }
    head.finish(method).map_err(AjpError::Head)
}

/// The unread rest of a packet.
struct PacketReader<'p> {
    rest: &'p [u8],
}

impl<'p> PacketReader<'p> {
    fn bytes(&mut self, count: usize, what: &'static str) -> Result<&'p [u8], AjpError> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(AjpError::HeadCut(what))?;
        self.rest = rest;
        Ok(bytes)
    }

    fn u16(&mut self, what: &'static str) -> Result<u16, AjpError> {
        match self.bytes(2, what)? {
            [high, low] => Ok(u16::from_be_bytes([*high, *low])),
            _ => Err(AjpError::HeadCut(what)),
        }
    }

    /// A string of this length, and its NUL.
    fn string_of(&mut self, length: u16, what: &'static str) -> Result<&'p [u8], AjpError> {
        let string = self.bytes(usize::from(length), what)?;
        match self.bytes(1, what)? {
            [0] => Ok(string),
            [other, ..] => Err(AjpError::StringEnd(*other)),
            [] => Err(AjpError::HeadCut(what)),
        }
    }

    fn string(&mut self, what: &'static str) -> Result<&'p [u8], AjpError> {
        match self.u16(what)? {
            NULL_STRING => Err(AjpError::HeadCut(what)),
            length => self.string_of(length, what),
        }
    }

    fn string_or_null(&mut self, what: &'static str) -> Result<(), AjpError> {
        match self.u16(what)? {
            NULL_STRING => Ok(()),
            length => self.string_of(length, what).map(|_| ()),
        }
    }

    /// A code or a string.
    fn name(&mut self) -> Result<&'p [u8], AjpError> {
        const WHAT: &str = "a field's name";
        let code = self.u16(WHAT)?;
        let [high, low] = code.to_be_bytes();
        if high == NAME_CODE {
            return response_name(low).map(str::as_bytes).ok_or(AjpError::NameCode(low));
        }
        if code == NULL_STRING {
            return Err(AjpError::HeadCut(WHAT));
        }
        self.string_of(code, WHAT)
    }
}
