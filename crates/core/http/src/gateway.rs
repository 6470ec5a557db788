//! HTTP semantics for application servers that use another protocol (AJP13, FastCGI): the request
//! as passed to them, and the head and length of their reply (RFC 9110 3.7: a gateway).
//!
//! ```text
//!   RequestHead -> GatewayRequest -> codec -> packets or records
//!   GatewayHead  <- HeadTranslator <- codec <- packets or records
//!     '-> parse_response, as for an HTTP server
//! ```
//! Invariants:
//! - A reply's head is translated into an HTTP/1.1 head, which is then parsed as strictly as that
//!   of an HTTP server. So all protocols have one type, [`ResponseHead`], and one set of rules.
//! - Hop-by-hop fields are forwarded in neither direction.
//! - A body is never longer than its head announces, and a shorter one is an error: [`BodyMeter`].

use std::net::SocketAddr;

use crate::bytes::{self, eq_lower};
use crate::fields::has_underscore;
use crate::forward::{
    is_hop_by_hop, is_imitation, write_end_to_end, write_response_framing, write_response_line,
};
use crate::limits::GATEWAY_BYTES_MAX;
use crate::{
    BodyFraming, FieldSlots, HeadLimits, Known, Method, Reject, ResponseFraming, ResponseHead,
    Version, encode, parse_response,
};

/// Initial capacity for a head: that of an ordinary one.
const HEAD_BYTES_USUAL: usize = 512;

/// A request for an application server, in any protocol.
///
/// All parts come from a parsed head or from the config: names are tokens, values contain no
/// control characters.
#[derive(Clone, Copy, Debug)]
pub struct GatewayRequest<'a> {
    pub method: Method<'a>,
    /// Path and query as routed, percent-encoded.
    pub target: &'a [u8],
    /// Path that selected the route ([`crate::path::read`]), percent-encoded.
    pub path: &'a [u8],
    /// The part after the first `?`, percent-encoded.
    pub query: Option<&'a [u8]>,
    /// Version of the client's request.
    pub version: Version,
    /// Host for the server: a valid host and port; empty for none.
    pub host: &'a [u8],
    /// Fields in their order. Hop-by-hop and framing fields, Host, Expect and Proxy are filtered by
    /// [`GatewayRequest::end_to_end`].
    pub fields: &'a [(&'a str, &'a [u8])],
    /// The client, or the one that a trusted proxy states.
    pub client: SocketAddr,
    /// The address that the client connected to.
    pub local: SocketAddr,
    /// Name of the site.
    pub server_name: &'a [u8],
    /// Port in the client's URL.
    pub server_port: u16,
    /// Whether the client's connection is encrypted.
    pub is_tls: bool,
    pub body: BodyFraming,
}

impl<'a> GatewayRequest<'a> {
    /// The fields for the server, in their order: without hop-by-hop fields (RFC 9110 7.6.1)
    /// including those listed in Connection, framing, Host, Expect, and Proxy, which becomes
    /// HTTP_PROXY in CGI (CVE-2016-5385); and without names that a CGI-like application would read
    /// as one of these.
    pub fn end_to_end(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + use<'a> {
        let listed: Vec<_> = listed_in_connection(self.fields).collect();
        self.fields.iter().copied().filter(move |(name, _)| {
            let name = name.as_bytes();
            let stays = is_hop_by_hop(name)
                || matches!(Known::of(name), Some(Known::Host | Known::Expect))
                || eq_lower(name, b"proxy")
                || name.eq_ignore_ascii_case(b"http2-settings")
                || (has_underscore(name) && is_imitation(name));
            !stays && !listed.iter().any(|option| option.eq_ignore_ascii_case(name))
        })
    }

    /// Content-Length for the server; `None` if the length is unknown, or if there is no body and
    /// the request does not state its length (RFC 9110 8.6).
    pub fn content_length(&self) -> Option<u64> {
        match self.body {
            BodyFraming::Length(bytes) => Some(bytes),
            BodyFraming::Chunked => None,
            BodyFraming::None => {
                let is_told = |(name, _): &(&str, &[u8])| {
                    Known::of(name.as_bytes()) == Some(Known::ContentLength)
                };
                let expects_body =
                    matches!(self.method, Method::Post | Method::Put | Method::Patch);
                (expects_body || self.fields.iter().any(is_told)).then_some(0)
            }
        }
    }
}

/// The options listed in Connection fields.
fn listed_in_connection<'a>(fields: &[(&str, &'a [u8])]) -> impl Iterator<Item = &'a [u8]> {
    fields
        .iter()
        .filter(|(it, _)| Known::of(it.as_bytes()) == Some(Known::Connection))
        .flat_map(|(_, value)| bytes::list(value))
}

/// A reply's head as an HTTP server would have sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayHead {
    /// An HTTP/1.1 head, including CRLFCRLF: [`parse_response`] accepts it, with the request's
    /// method and the limits of the translator.
    pub bytes: Vec<u8>,
    /// Status code, 200 to 599.
    pub status: u16,
    /// The length of the body. `Chunked`: unknown, the protocol marks the end (there are no chunks:
    /// the codec returns bodies without framing). Never `UntilClose`.
    pub framing: ResponseFraming,
}

/// Builds a [`GatewayHead`] from a status and fields.
#[derive(Debug)]
pub struct HeadTranslator {
    lines: Vec<u8>,
    /// Limits of the server's part of the head.
    limits: HeadLimits,
}

impl HeadTranslator {
    /// Begins a head, which will be within the limits. [`HeadTranslator::finish`] refuses an
    /// invalid status.
    pub fn new(status: u16, limits: &HeadLimits) -> HeadTranslator {
        let mut lines = Vec::with_capacity(HEAD_BYTES_USUAL);
        // The clamp must not turn an invalid status into a final one.
        encode::write_status_line(&mut lines, status.clamp(100, 999));
        let limits = HeadLimits {
            head_bytes_max: limits.head_bytes_max.saturating_sub(GATEWAY_BYTES_MAX),
            fields_max: limits.fields_max.saturating_sub(1),
            ..*limits
        };
        HeadTranslator { lines, limits }
    }

    /// Adds a field. Transfer-Encoding is dropped: it is meaningless in a protocol with its own
    /// framing.
    ///
    /// # Errors
    /// [`Reject::FIELD_NAME_EMPTY`], [`Reject::FIELD_NAME`], [`Reject::FIELD_VALUE`] (response
    /// splitting), [`Reject::HEAD_TOO_LARGE`].
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), Reject> {
        if name.is_empty() {
            return Err(Reject::FIELD_NAME_EMPTY.by_upstream());
        }
        if !bytes::all(name, bytes::TOKEN) {
            return Err(Reject::FIELD_NAME.by_upstream());
        }
        if !bytes::all(value, bytes::VALUE) {
            return Err(Reject::FIELD_VALUE.by_upstream());
        }
        if Known::of(name) == Some(Known::TransferEncoding) {
            return Ok(());
        }
        if self.lines.len() + name.len() + value.len() + b": \r\n\r\n".len()
            > self.limits.head_bytes_max
        {
            return Err(Reject::HEAD_TOO_LARGE.by_upstream());
        }
        for part in [name, b": ", value, b"\r\n"] {
            self.lines.extend_from_slice(part);
        }
        Ok(())
    }

    /// The head of the reply to a request with this method.
    ///
    /// # Errors
    /// Those of [`parse_response`]; also [`Reject::STATUS_CODE`] for an interim status, which these
    /// protocols do not have.
    pub fn finish(mut self, method: Method<'_>) -> Result<GatewayHead, Reject> {
        self.lines.extend_from_slice(b"\r\n");
        let mut slots = FieldSlots::new();
        let head = parse_response(&mut slots, &self.lines, method, &self.limits)?;
        if head.status < 200 {
            return Err(Reject::STATUS_CODE.by_upstream());
        }
        Ok(rewrite(&head))
    }
}

/// The head without hop-by-hop fields, and with its framing.
fn rewrite(head: &ResponseHead<'_, '_>) -> GatewayHead {
    let framing = match head.framing {
        ResponseFraming::UntilClose => ResponseFraming::Chunked,
        framing => framing,
    };
    let mut bytes = Vec::with_capacity(HEAD_BYTES_USUAL);
    write_response_line(&mut bytes, head);
    write_end_to_end(&mut bytes, &head.fields, |_| false);
    write_response_framing(&mut bytes, head, framing);
    bytes.extend_from_slice(b"\r\n");
    GatewayHead { bytes, status: head.status, framing }
}

/// Checks the length of a reply's body against its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyMeter {
    /// There is no body: bytes that a server sends anyway are dropped.
    Nothing,
    /// The number of bytes still to come.
    Left(u64),
    /// The length is unknown.
    Unknown,
}

impl BodyMeter {
    /// For a body of that framing.
    pub fn new(framing: ResponseFraming) -> BodyMeter {
        match framing {
            ResponseFraming::None => BodyMeter::Nothing,
            ResponseFraming::Length(bytes) => BodyMeter::Left(bytes),
            ResponseFraming::Chunked | ResponseFraming::UntilClose => BodyMeter::Unknown,
        }
    }

    /// How many of `bytes` body bytes may be forwarded now; 0 if there must be no body.
    ///
    /// # Errors
    /// The body is already as long as its Content-Length.
    pub fn take(&mut self, bytes: usize) -> Result<usize, BodyLongerError> {
        match self {
            BodyMeter::Nothing => Ok(0),
            BodyMeter::Unknown => Ok(bytes),
            BodyMeter::Left(0) => Err(BodyLongerError),
            BodyMeter::Left(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes);
                *left -= taken as u64;
                Ok(taken)
            }
        }
    }

    /// Bytes that are missing if the body ends here.
    pub fn missing_bytes(&self) -> u64 {
        match self {
            BodyMeter::Left(left) => *left,
            BodyMeter::Nothing | BodyMeter::Unknown => 0,
        }
    }
}

/// The next `N` bytes of a message, once all have arrived. `partial` keeps those from earlier
/// input; `consumed` grows by the number taken from `rest`.
pub fn gather<const N: usize>(
    partial: &mut Vec<u8>,
    rest: &[u8],
    consumed: &mut usize,
) -> Option<[u8; N]> {
    let taken = (N - partial.len()).min(rest.len());
    *consumed += taken;
    partial.extend_from_slice(&rest[..taken]);
    let whole = <[u8; N]>::try_from(partial.as_slice()).ok()?;
    partial.clear();
    Some(whole)
}

/// A server has sent more than its Content-Length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is longer than its Content-Length")]
pub struct BodyLongerError;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::limits::RESPONSE_HEAD;

    fn translate(
        status: u16,
        fields: &[(&str, &str)],
        method: Method<'_>,
    ) -> Result<GatewayHead, Reject> {
        let mut head = HeadTranslator::new(status, &RESPONSE_HEAD);
        for (name, value) in fields {
            head.field(name.as_bytes(), value.as_bytes())?;
        }
        head.finish(method)
    }

    #[test]
    fn a_head_is_written_as_an_http_server_would() {
        let fields = [
            ("Content-Type", "text/plain"),
            ("Connection", "close, X-Hop"),
            ("X-Hop", "1"),
            ("Keep-Alive", "5"),
            ("Transfer-Encoding", "gzip, chunked"),
            ("Set-Cookie", "a=1"),
            ("Set-Cookie", "b=2"),
        ];
        let head = translate(200, &fields, Method::Get).unwrap();
        assert_eq!(
            head.bytes.escape_ascii().to_string(),
            "HTTP/1.1 200 OK\\r\\nContent-Type: text/plain\\r\\nSet-Cookie: a=1\\r\\n\
             Set-Cookie: b=2\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"
        );
        let mut slots = FieldSlots::new();
        let read = parse_response(&mut slots, &head.bytes, Method::Get, &RESPONSE_HEAD).unwrap();
        assert_eq!((read.status, read.framing), (200, ResponseFraming::Chunked));
    }

    #[test]
    fn framing_follows_method_status_and_length() {
        let length = [("Content-Length", "5")];
        for (status, fields, method, framing) in [
            (200, &length[..], Method::Get, ResponseFraming::Length(5)),
            (200, &length, Method::Head, ResponseFraming::None),
            (304, &length, Method::Get, ResponseFraming::None),
            (204, &[], Method::Get, ResponseFraming::None),
            (200, &[("Content-Length", "0")], Method::Get, ResponseFraming::None),
            (599, &[], Method::Post, ResponseFraming::Chunked),
        ] {
            let head = translate(status, fields, method).unwrap();
            assert_eq!((head.status, head.framing), (status, framing));
            let mut slots = FieldSlots::new();
            let read = parse_response(&mut slots, &head.bytes, method, &RESPONSE_HEAD).unwrap();
            assert_eq!((read.status, read.framing), (status, framing));
            let length = read.fields.known(Known::ContentLength);
            assert_eq!(length, fields.first().map(|(_, value)| value.as_bytes()));
        }
    }

    #[test]
    fn what_splits_or_contradicts_itself_is_refused() {
        let refused = |status, fields: &[(&str, &str)]| {
            let reject = translate(status, fields, Method::Get).unwrap_err();
            assert_eq!(reject.status, 502);
            reject.reason
        };
        let long = "x".repeat(RESPONSE_HEAD.head_bytes_max);
        assert_eq!(refused(200, &[("X", "a\r\nSet-Cookie: b")]), "field-value");
        assert_eq!(refused(200, &[("X", "a\0")]), "field-value");
        assert_eq!(refused(200, &[("X: y\r\nZ", "a")]), "field-name");
        assert_eq!(refused(200, &[("", "a")]), "field-name-empty");
        assert_eq!(refused(200, &[("X", &long)]), "head-too-large");
        assert_eq!(refused(200, &[("X", ""); 100]), "too-many-fields");
        let lengths = [("Content-Length", "5"), ("content-length", "6")];
        assert_eq!(refused(200, &lengths), "content-length-repeated");
        assert_eq!(refused(200, &[("Content-Length", "-1")]), "content-length");
        assert_eq!(refused(204, &[("Content-Length", "5")]), "body-forbidden");
        for status in [0, 99, 100, 101, 103, 199, 600, 1000, u16::MAX] {
            assert_eq!(refused(status, &[]), "status-code", "{status}");
        }
    }

    #[test]
    fn a_body_is_never_longer_than_announced() {
        let mut known = BodyMeter::new(ResponseFraming::Length(5));
        assert_eq!((known.take(3), known.missing_bytes()), (Ok(3), 2));
        assert_eq!((known.take(3), known.missing_bytes()), (Ok(2), 0));
        assert_eq!(known.take(1), Err(BodyLongerError));
        let mut nothing = BodyMeter::new(ResponseFraming::None);
        assert_eq!((nothing.take(9), nothing.missing_bytes()), (Ok(0), 0));
        let mut unknown = BodyMeter::new(ResponseFraming::Chunked);
        assert_eq!((unknown.take(9), unknown.missing_bytes()), (Ok(9), 0));
    }

    #[test]
    fn fields_of_one_connection_stay_here() {
        let fields: [(&str, &[u8]); 12] = [
            ("Host", b"a"),
            ("Accept", b"*/*"),
            ("Connection", b"X-Mine, keep-alive"),
            ("x-mine", b"1"),
            ("Proxy", b"http://evil/"),
            ("Content-Length", b"0"),
            ("Transfer-Encoding", b"chunked"),
            ("Expect", b"100-continue"),
            ("Content_Length", b"7"),
            ("X_Forwarded_For", b"6.6.6.6"),
            ("HTTP2-Settings", b"x"),
            ("X-Yours", b"2"),
        ];
        let local = ([127, 0, 0, 1], 80).into();
        let mut request = GatewayRequest {
            method: Method::Get,
            target: b"/",
            path: b"/",
            query: None,
            version: Version::Http11,
            host: b"a",
            fields: &fields,
            client: local,
            local,
            server_name: b"a",
            server_port: 80,
            is_tls: false,
            body: BodyFraming::None,
        };
        let names: Vec<_> = request.end_to_end().map(|(name, _)| name).collect();
        assert_eq!(names, ["Accept", "X-Yours"]);
        assert_eq!(request.content_length(), Some(0));
        request.fields = &[];
        assert_eq!(request.content_length(), None);
        request.method = Method::Post;
        assert_eq!(request.content_length(), Some(0));
        request.body = BodyFraming::Chunked;
        assert_eq!(request.content_length(), None);
    }
}
