//! Writes heads for the next hop, from the parsed form only (RFC 9110 7.6).
//!
//! Invariants:
//! - Only names and values that passed the parser are copied; start line, Host, framing and
//!   connection fields are always generated. So the next hop cannot see a different message.
//! - Hop-by-hop fields are not forwarded: the fixed ones, and those that Connection lists.
//! - Statements about the client in the request (Forwarded, X-Forwarded-*) are dropped unless the
//!   client is a trusted proxy.
//! - No allocation besides the output's growth and a list of the clients that a trusted proxy
//!   states.

use std::net::IpAddr;

use crate::bytes::{self, eq_lower};
use crate::date::DATE_BYTES;
use crate::encode::{self, write_field, write_field_u64};
use crate::fields::has_underscore;
use crate::forwarded::{address_of, last_clients, scheme_named, write_forwarded};
use crate::{
    BodyFraming, Fields, Known, Method, RequestHead, ResponseFraming, ResponseHead, Version,
    framing,
};

/// Name that Skep gives itself in Via (RFC 9110 7.6.3 allows a pseudonym).
pub const VIA_NAME: &str = "skep";

/// Host for a request without one, which only HTTP/1.0 allows: the next hop uses 1.1 and requires
/// one.
const HOST_OF_NONE: &[u8] = b"localhost";

/// Longest name that is compared with those written here; the longest of them has 25 bytes, but
/// `X-Forwarded-` may have any suffix.
const IMITATION_BYTES_MAX: usize = 64;

/// The Host field for the next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostPolicy<'a> {
    /// The client's; `localhost` if it sent none.
    Keep,
    /// This value.
    Set(&'a [u8]),
}

/// How a request is forwarded.
#[derive(Clone, Copy, Debug)]
pub struct Forward<'a> {
    /// Address of the client.
    pub client: IpAddr,
    /// Scheme of the client's request: `http` or `https`.
    pub proto: &'a str,
    /// Host for the next hop.
    pub host: HostPolicy<'a>,
    /// How Forwarded and X-Forwarded-* in the request are handled.
    pub claims: Claims,
    /// Target to send; `None`: the client's path and query as sent.
    pub target: Option<&'a [u8]>,
    /// Name of the site, for application servers that expect one; `None`: the host name.
    pub server_name: Option<&'a [u8]>,
    /// Whether an upgrade may be forwarded (never h2c); see [`upgrade_of`].
    pub upgrade: bool,
    /// Fields to drop; names in any case.
    pub without: &'a [String],
    /// Additional fields, each `Name: value\r\n`, inserted unchanged.
    pub extra: &'a [u8],
}

/// How statements of a request about its client are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claims {
    /// They are discarded and replaced by what is known here: the client may lie.
    Replace,
    /// They are kept and extended by what is known here: the client is a trusted proxy.
    Extend,
    /// They are kept unchanged: the client is a dispatcher of the same cluster, which has already
    /// added its part; the cluster is one hop.
    Keep,
}

impl Claims {
    /// The client stated in `head`, if that is trusted; `None`: the connection's peer.
    pub fn client(self, head: &RequestHead<'_, '_>) -> Option<IpAddr> {
        let named = match self {
            Claims::Replace => None,
            // The trusted proxy has appended its client.
            Claims::Extend => last_clients(head)[1],
            // The dispatcher has appended its peer. If it trusts that peer, which is then a proxy,
            // the client is the previous entry.
            Claims::Keep => {
                let [before, last] = last_clients(head);
                before.or(last)
            }
        };
        named.and_then(address_of)
    }

    /// Whether the client uses https according to `head`, if that is trusted.
    pub fn is_secure(self, head: &RequestHead<'_, '_>) -> bool {
        let said = scheme_named(head).filter(|_| self != Claims::Replace);
        said.is_some_and(|said| said.eq_ignore_ascii_case(b"https"))
    }
}

/// Appends `head` for the next hop, including CRLFCRLF. The body follows with the framing of
/// `head.framing`.
pub fn write_request(out: &mut Vec<u8>, head: &RequestHead<'_, '_>, forward: &Forward<'_>) {
    write_request_line(out, head, forward);
    let host = match forward.host {
        HostPolicy::Keep if head.host.is_empty() => HOST_OF_NONE,
        HostPolicy::Keep => head.host,
        HostPolicy::Set(host) => host,
    };
    write_field(out, "Host", host);
    write_client_fields(out, head, forward);
    write_request_framing(out, head);
    if let Some(protocols) = upgrade_of(head, forward) {
        out.extend_from_slice(b"Connection: upgrade\r\n");
        write_field(out, "Upgrade", protocols);
    } else if takes_trailers(head) {
        out.extend_from_slice(b"TE: trailers\r\nConnection: TE\r\n");
    }
    write_own_fields(out, head, forward);
    out.extend_from_slice(b"\r\n");
}

/// Appends the fields that [`write_request`] forwards, as lines, for protocols whose heads have
/// nothing else in common with HTTP: without Host, framing and hop-by-hop fields.
pub fn write_request_fields(out: &mut Vec<u8>, head: &RequestHead<'_, '_>, forward: &Forward<'_>) {
    write_client_fields(out, head, forward);
    write_own_fields(out, head, forward);
}

/// The client's fields, and the statements about the client.
fn write_client_fields(out: &mut Vec<u8>, head: &RequestHead<'_, '_>, forward: &Forward<'_>) {
    write_end_to_end(out, &head.fields, |name| {
        is_replaced_in_request(name)
            || (forward.claims == Claims::Replace && is_claim(name))
            || (has_underscore(name) && is_imitation(name))
            || is_listed(forward.without, name)
    });
    match forward.claims {
        claims @ (Claims::Replace | Claims::Extend) => {
            write_forwarded(out, head, (forward.client, forward.proto), claims == Claims::Extend);
        }
        Claims::Keep => write_forwarded_as_sent(out, head, forward),
    }
}

/// Via, and the fields set in the config.
fn write_own_fields(out: &mut Vec<u8>, head: &RequestHead<'_, '_>, forward: &Forward<'_>) {
    out.extend_from_slice(match head.version {
        Version::Http10 => b"Via: 1.0 ",
        Version::Http11 => b"Via: 1.1 ",
    });
    out.extend_from_slice(VIA_NAME.as_bytes());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(forward.extra);
}

/// The upgrade that [`write_request`] forwards; only then may the reply be a 101. Never h2c, which
/// would tunnel requests past all checks (RFC 9113 dropped it); and only for a GET without a body,
/// as WebSocket requires (RFC 6455 4.1).
pub fn upgrade_of<'b>(head: &RequestHead<'_, 'b>, forward: &Forward<'_>) -> Option<&'b [u8]> {
    let protocols = head.upgrade?;
    let h2c = bytes::list(protocols)
        .any(|p| p.get(..3).is_some_and(|start| start.eq_ignore_ascii_case(b"h2c")));
    let plain_get = head.method == Method::Get && head.framing == BodyFraming::None;
    (forward.upgrade && plain_get && !h2c).then_some(protocols)
}

/// Whether the client accepts trailers (RFC 9110 6.5.1, 10.1.4).
pub fn takes_trailers(head: &RequestHead<'_, '_>) -> bool {
    let codings = || head.fields.known_all(Known::Te).flat_map(bytes::list);
    head.version == Version::Http11 && codings().any(|it| it.eq_ignore_ascii_case(b"trailers"))
}

/// How a reply is forwarded.
#[derive(Clone, Copy, Debug)]
pub struct ForwardReply<'a> {
    /// Version of the client's request.
    pub version: Version,
    /// Whether the client's connection stays open afterwards.
    pub keep_alive: bool,
    /// Date for a reply without one.
    pub date: &'a [u8; DATE_BYTES],
    /// Whether trailers may follow a chunked body.
    pub trailers: bool,
    /// Fields to drop; names in any case.
    pub without: &'a [String],
    /// Additional fields, each `Name: value\r\n`, inserted unchanged.
    pub extra: &'a [&'a [u8]],
}

/// Appends the head of a reply, including CRLFCRLF; returns how the body must be framed for the
/// client. `UntilClose`: the client's connection must be closed after it, whatever
/// `reply.keep_alive` is; the head states so.
pub fn write_response(
    out: &mut Vec<u8>,
    head: &ResponseHead<'_, '_>,
    reply: &ForwardReply<'_>,
) -> ResponseFraming {
    write_response_line(out, head);
    write_end_to_end(out, &head.fields, |name| {
        is_replaced_in_response(name) || is_listed(reply.without, name)
    });
    let framing = match (head.framing, reply.version) {
        (ResponseFraming::Chunked | ResponseFraming::UntilClose, Version::Http11) => {
            ResponseFraming::Chunked
        }
        (ResponseFraming::Chunked, Version::Http10) => ResponseFraming::UntilClose,
        (framing, _) => framing,
    };
    if head.status >= 200 {
        let date = head.fields.known(Known::Date).filter(|_| !head.fields.is_repeated(Known::Date));
        write_field(out, "Date", date.unwrap_or(reply.date));
        write_response_framing(out, head, framing);
        if framing == ResponseFraming::Chunked && reply.trailers {
            head.fields
                .known_all(Known::Trailer)
                .for_each(|names| write_field(out, "Trailer", names));
        }
        let keep_alive = reply.keep_alive && framing != ResponseFraming::UntilClose;
        out.extend_from_slice(match (keep_alive, reply.version) {
            (false, _) => b"Connection: close\r\n".as_slice(),
            (true, Version::Http10) => b"Connection: keep-alive\r\n",
            (true, Version::Http11) => b"",
        });
    } else if let Some(protocol) = head.upgrade {
        out.extend_from_slice(b"Connection: upgrade\r\n");
        write_field(out, "Upgrade", protocol);
    }
    reply.extra.iter().for_each(|lines| out.extend_from_slice(lines));
    out.extend_from_slice(b"\r\n");
    framing
}

/// Appends the last chunk and `trailers`, whole lines of a [`crate::BodyDecoder`], without those
/// that would change the interpretation of the message (RFC 9110 6.5.1).
pub fn write_last_chunk(out: &mut Vec<u8>, trailers: &[u8]) {
    out.extend_from_slice(b"0\r\n");
    for line in trailers.split_inclusive(|byte| *byte == b'\n') {
        let name = line.split(|byte| *byte == b':').next().unwrap_or(line);
        if !is_forbidden_trailer(name) {
            out.extend_from_slice(line);
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Fields for framing, routing, authentication and interpretation of the content; hop-by-hop
/// fields; and those that are generated here.
fn is_forbidden_trailer(name: &[u8]) -> bool {
    const FORBIDDEN: &[&[u8]] = &[
        b"age",
        b"authorization",
        b"cache-control",
        b"content-encoding",
        b"content-range",
        b"content-type",
        b"cookie",
        b"date",
        b"expires",
        b"location",
        b"max-forwards",
        b"range",
        b"retry-after",
        b"set-cookie",
        b"status",
        b"vary",
        b"via",
        b"www-authenticate",
    ];
    has_underscore(name)
        || is_hop_by_hop(name)
        || is_replaced_in_request(name)
        || is_claim(name)
        || FORBIDDEN.iter().any(|it| name.eq_ignore_ascii_case(it))
}

fn is_listed(names: &[String], name: &[u8]) -> bool {
    names.iter().any(|it| it.as_bytes().eq_ignore_ascii_case(name))
}

/// Appends the end-to-end fields of a reply, as lines, without those that `leaves_out` selects (in
/// the case of the wire): for a reply that is stored, and sent later with a framing of its own.
pub fn write_kept_fields(
    out: &mut Vec<u8>,
    head: &ResponseHead<'_, '_>,
    leaves_out: impl Fn(&[u8]) -> bool,
) {
    write_end_to_end(out, &head.fields, leaves_out);
}

// === Both directions ===

/// Appends every field that is neither `replaced` nor listed in Connection.
pub(crate) fn write_end_to_end(
    out: &mut Vec<u8>,
    fields: &Fields<'_, '_>,
    replaced: impl Fn(&[u8]) -> bool,
) {
    // Usually there are only these three: then no names need to be compared.
    let lists_names = framing::listed(fields).any(|option| {
        !eq_lower(option, b"keep-alive")
            && !eq_lower(option, b"close")
            && !eq_lower(option, b"upgrade")
    });
    for (name, value) in fields.iter() {
        let bytes = name.as_bytes();
        let listed = lists_names && framing::listed(fields).any(|o| o.eq_ignore_ascii_case(bytes));
        if !listed && !is_hop_by_hop(bytes) && !replaced(bytes) {
            write_field(out, name, value);
        }
    }
}

/// Hop-by-hop fields (RFC 9110 7.6.1, and RFC 2616's list), or fields that are generated here.
pub(crate) fn is_hop_by_hop(name: &[u8]) -> bool {
    match Known::of(name) {
        Some(
            Known::Connection
            | Known::ContentLength
            | Known::TransferEncoding
            | Known::Te
            | Known::Trailer
            | Known::Upgrade,
        ) => true,
        Some(_) => false,
        None => {
            eq_lower(name, b"keep-alive")
                || eq_lower(name, b"proxy-connection")
                || eq_lower(name, b"proxy-authenticate")
                || eq_lower(name, b"proxy-authorization")
                || eq_lower(name, b"proxy-authentication-info")
        }
    }
}

// === Requests ===

fn write_request_line(out: &mut Vec<u8>, head: &RequestHead<'_, '_>, forward: &Forward<'_>) {
    out.extend_from_slice(head.method.as_str().as_bytes());
    out.push(b' ');
    match (forward.target, head.query) {
        (Some(target), _) => {
            debug_assert!(bytes::all(target, bytes::TARGET), "a target that we made");
            out.extend_from_slice(target);
        }
        (None, None) => out.extend_from_slice(head.path),
        (None, Some(query)) => {
            out.extend_from_slice(head.path);
            out.push(b'?');
            out.extend_from_slice(query);
        }
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

/// Generated here; or handled here, as Expect is; or dangerous for the next hop: Proxy becomes
/// HTTP_PROXY in CGI (CVE-2016-5385), HTTP2-Settings belongs to h2c.
fn is_replaced_in_request(name: &[u8]) -> bool {
    match Known::of(name) {
        Some(Known::Host | Known::Expect | Known::Forwarded | Known::XForwardedFor) => true,
        Some(_) => false,
        None => eq_lower(name, b"proxy") || name.eq_ignore_ascii_case(b"http2-settings"),
    }
}

/// A name that a CGI-like application, which reads `_` as `-`, would confuse with a field that is
/// generated here or is hop-by-hop (CVE-2024-45614).
pub(crate) fn is_imitation(name: &[u8]) -> bool {
    let mut read = [0; IMITATION_BYTES_MAX];
    let Some(read) = read.get_mut(..name.len()) else { return false };
    for (byte, sent) in read.iter_mut().zip(name) {
        *byte = if *sent == b'_' { b'-' } else { *sent };
    }
    is_hop_by_hop(read) || is_replaced_in_request(read) || is_claim(read)
}

/// Fields in which a client states where a request came from.
fn is_claim(name: &[u8]) -> bool {
    let x_forwarded = name.get(..12).is_some_and(|start| eq_lower(start, b"x-forwarded-"));
    x_forwarded || eq_lower(name, b"x-real-ip")
}

/// Forwarded and X-Forwarded-For as received, which [`write_end_to_end`] skips; or complete fields,
/// if none were received.
fn write_forwarded_as_sent(out: &mut Vec<u8>, head: &RequestHead<'_, '_>, forward: &Forward<'_>) {
    if head.fields.known(Known::XForwardedFor).is_none() {
        return write_forwarded(out, head, (forward.client, forward.proto), true);
    }
    for (name, field) in
        [("Forwarded", Known::Forwarded), ("X-Forwarded-For", Known::XForwardedFor)]
    {
        head.fields.known_all(field).for_each(|value| write_field(out, name, value));
    }
}

fn write_request_framing(out: &mut Vec<u8>, head: &RequestHead<'_, '_>) {
    match head.framing {
        BodyFraming::Length(bytes) => write_field_u64(out, "Content-Length", bytes),
        BodyFraming::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        BodyFraming::None => {
            // RFC 9110 8.6: methods that anticipate a body state that there is none.
            let expects_body = matches!(head.method, Method::Post | Method::Put | Method::Patch);
            if expects_body || head.fields.known(Known::ContentLength).is_some() {
                out.extend_from_slice(b"Content-Length: 0\r\n");
            }
        }
    }
}

// === Responses ===

pub(crate) fn write_response_line(out: &mut Vec<u8>, head: &ResponseHead<'_, '_>) {
    if encode::reason_phrase(head.status).is_empty() {
        out.extend_from_slice(b"HTTP/1.1 ");
        encode::write_u64(out, u64::from(head.status));
        out.push(b' ');
        out.extend_from_slice(head.reason.as_bytes());
        out.extend_from_slice(b"\r\n");
    } else {
        out.extend_from_slice(encode::status_line(head.status));
    }
}

fn is_replaced_in_response(name: &[u8]) -> bool {
    eq_lower(name, b"date")
}

pub(crate) fn write_response_framing(
    out: &mut Vec<u8>,
    head: &ResponseHead<'_, '_>,
    sent: ResponseFraming,
) {
    match sent {
        ResponseFraming::Length(bytes) => write_field_u64(out, "Content-Length", bytes),
        ResponseFraming::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        ResponseFraming::UntilClose => {}
        // An empty body, or HEAD and 304, which state the length that a GET would have returned.
        // The parser has checked the digits.
        ResponseFraming::None if head.status != 204 => {
            if let Some(digits) = head.fields.known(Known::ContentLength) {
                write_field(out, "Content-Length", digits);
            }
        }
        ResponseFraming::None => {}
    }
}
