//! Response heads of nodes and origins, read as strictly as requests.
use crate::{FieldSlots, Fields, HeadLimits, Known, Method, Reject, Version};

/// How the body of a response is delimited (RFC 9112 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFraming {
    /// There is no body.
    None,
    /// So many bytes; never 0.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
    /// All until the connection closes.
    UntilClose,
}

/// A response head that passed every check.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ResponseHead<'h, 'b> {
    /// Status code, 100 to 599. A 1xx other than 101 precedes the real one.
    pub status: u16,
    /// Reason phrase as sent; may be empty.
    pub reason: &'b str,
    /// Version.
    pub version: Version,
    /// How the body is delimited.
    pub framing: ResponseFraming,
    /// Whether the connection may carry another request.
    pub keep_alive: bool,
    /// Protocol switched to, on 101.
    pub upgrade: Option<&'b [u8]>,
    pub(crate) fields: Fields<'h, 'b>,
}

impl<'h, 'b> ResponseHead<'h, 'b> {
    /// All fields in the order of the wire: (name as sent, value).
    pub fn fields(&self) -> impl Iterator<Item = (&'b str, &'b [u8])> + use<'h, 'b> {
        self.fields.iter()
    }

    /// First value of a known field, in O(1).
    pub fn known(&self, field: Known) -> Option<&'b [u8]> {
        self.fields.known(field)
    }

    /// Every value of a field, name compared without case.
    pub fn all<'n>(&self, name: &'n str) -> impl Iterator<Item = &'b [u8]> + use<'n, 'h, 'b> {
        self.fields.all(name)
    }
}

/// Parses `head`, the answer to a request with `request_method`. Find its end
/// with [`crate::HeadScanner::response`]. A refusal's status is 502.
pub fn parse_response<'h, 'b>(
    slots: &'h mut FieldSlots<'b>,
    head: &'b [u8],
    request_method: Method<'_>,
    limits: &HeadLimits,
) -> Result<ResponseHead<'h, 'b>, Reject> {
    let _ = (slots, head, request_method, limits);
    unimplemented!("parse_response")
}
