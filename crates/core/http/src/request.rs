//! Request heads: request line, framing, Host, connection options.
pub use crate::fields::FieldSlots;
use crate::{Fields, HeadLimits, Host, Known, Reject};

/// Method of a request. `CONNECT` never gets here: it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the method of that name")]
pub enum Method<'b> {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Options,
    Patch,
    Trace,
    Other(&'b str),
}

impl<'b> Method<'b> {
    /// The token as on the wire.
    pub fn as_str(&self) -> &'b str {
        unimplemented!("as_str")
    }

    /// Safe methods ask for no change (RFC 9110 9.2.1).
    pub fn is_safe(&self) -> bool {
        unimplemented!("is_safe")
    }

    /// Idempotent methods may be sent again (RFC 9110 9.2.2).
    pub fn is_idempotent(&self) -> bool {
        unimplemented!("is_idempotent")
    }
}

/// Version of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the version of that name")]
pub enum Version {
    Http10,
    Http11,
}

/// How the body of a request is delimited (RFC 9112 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is no body.
    None,
    /// So many bytes; never 0.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
}

/// A request head that passed every check.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RequestHead<'h, 'b> {
    /// Method.
    pub method: Method<'b>,
    /// Request target as sent.
    pub target: &'b str,
    /// Path as sent, without query; `/` when an absolute target has none, `*`
    /// for `OPTIONS *`.
    pub path: &'b [u8],
    /// What stands behind the first `?`, which is left out.
    pub query: Option<&'b [u8]>,
    /// Host as sent, with port; empty when an HTTP/1.0 request names none.
    pub host: &'b [u8],
    /// The same, taken apart; its name is empty when there is none.
    pub authority: Host<'b>,
    /// Version.
    pub version: Version,
    /// How the body is delimited.
    pub framing: BodyFraming,
    /// Whether the connection may carry another request.
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue`; only with a body.
    pub expect_continue: bool,
    /// Protocols asked for, when `Connection` lists `upgrade`, in HTTP/1.1.
    pub upgrade: Option<&'b [u8]>,
    pub(crate) fields: Fields<'h, 'b>,
}

impl<'h, 'b> RequestHead<'h, 'b> {
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

/// Parses `head`, which [`crate::HeadScanner`] found complete.
pub fn parse_request<'h, 'b>(
    slots: &'h mut FieldSlots<'b>,
    head: &'b [u8],
    limits: &HeadLimits,
) -> Result<RequestHead<'h, 'b>, Reject> {
    let _ = (slots, head, limits);
    unimplemented!("parse_request")
}
