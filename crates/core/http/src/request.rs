//! Request heads: request line, target, Host, framing, connection options
//! (RFC 9112 3, RFC 9110 7).
//!
//! A [`RequestHead`] exists only for a head that passed every check; all its
//! slices borrow from the caller's buffer. Nothing is allocated.

use crate::bytes::{self, eq_lower};
use crate::fields;
use crate::framing::{self, Announced, Options};
use crate::limits::METHOD_BYTES_MAX;
use crate::{BorrowedFieldSlots, Fields, HeadLimits, Host, Known, Reject, Version};

/// Method of a request. `CONNECT` is refused before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// The method with this token; methods are case-sensitive.
    #[inline]
    pub fn of(token: &'b str) -> Method<'b> {
        match token {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            "PUT" => Method::Put,
            "DELETE" => Method::Delete,
            "OPTIONS" => Method::Options,
            "PATCH" => Method::Patch,
            "TRACE" => Method::Trace,
            other => Method::Other(other),
        }
    }

    /// The token as on the wire.
    pub fn as_str(&self) -> &'b str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            Method::Options => "OPTIONS",
            Method::Patch => "PATCH",
            Method::Trace => "TRACE",
            Method::Other(token) => token,
        }
    }

    /// Whether the method is safe: it requests no change (RFC 9110 9.2.1).
    pub fn is_safe(&self) -> bool {
        matches!(self, Method::Get | Method::Head | Method::Options | Method::Trace)
    }

    /// Whether the method is idempotent and may be sent again (RFC 9110 9.2.2). Unknown methods are
    /// assumed not to be.
    pub fn is_idempotent(&self) -> bool {
        self.is_safe() || matches!(self, Method::Put | Method::Delete)
    }
}

/// How the body of a request is delimited (RFC 9112 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is no body.
    None,
    /// This many bytes; never 0.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
}

/// A request head that passed every check.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RequestHead<'h, 'b> {
    pub method: Method<'b>,
    /// Request target as sent.
    pub target: &'b str,
    /// Path as sent, without query; `/` if an absolute target has none, `*` for `OPTIONS *`.
    pub path: &'b [u8],
    /// The part after the first `?`.
    pub query: Option<&'b [u8]>,
    /// Host as sent, with port; empty if an HTTP/1.0 request has none.
    pub host: &'b [u8],
    /// The same, parsed; its name is empty if there is none.
    pub authority: Host<'b>,
    pub version: Version,
    /// How the body is delimited.
    pub framing: BodyFraming,
    /// Whether the connection may carry another request.
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue`; only with a body.
    pub expect_continue: bool,
    /// Requested protocols, if `Connection` lists `upgrade`, in HTTP/1.1.
    pub upgrade: Option<&'b [u8]>,
    /// The fields after the request line.
    pub fields: Fields<'h, 'b>,
}

/// Parses `head`, as delimited by [`crate::HeadScanner`].
///
/// # Errors
/// The reason why the message is refused; close the connection.
#[inline]
pub fn parse_request<'h, 'b>(
    slots: impl Into<BorrowedFieldSlots<'h, 'b>>,
    head: &'b [u8],
    limits: &HeadLimits,
) -> Result<RequestHead<'h, 'b>, Reject> {
    if head.len() > limits.head_bytes_max {
        return Err(Reject::HEAD_TOO_LARGE);
    }
    let head = head.strip_prefix(b"\r\n").unwrap_or(head);
    // httparse would skip any number of empty lines.
    if let Some(b'\r' | b'\n') = head.first() {
        return Err(Reject::EMPTY_LINES);
    }
    let mut request = httparse::Request::new(&mut []);
    let parsed = request.parse_with_uninit_headers(head, slots.into().within(limits));
    let (Some(token), Some(target), Some(minor)) = (request.method, request.path, request.version)
    else {
        return Err(explain_line(head, limits));
    };
    match parsed {
        Ok(httparse::Status::Complete(len)) if len == head.len() => {}
        other => return Err(explain_fields(head, other, limits)),
    }
    let method = method_of(token)?;
    let fields = Fields::index(head, request.headers, limits)?;
    let version = Version::of_minor(minor);
    let target = RequestTarget::parse(method, target, limits)?;
    let (host, authority) = host_of(&fields, &target, version)?;
    let framing = body_framing(&fields, version)?;
    let options = framing::connection(&fields)?;
    Ok(RequestHead {
        method,
        target: target.raw,
        path: target.path,
        query: target.query,
        host,
        authority,
        version,
        framing,
        keep_alive: options.persistent(version),
        expect_continue: expects_continue(&fields, version, framing)?,
        upgrade: upgrade_of(&fields, options, version),
        fields,
    })
}

#[inline]
fn method_of(token: &str) -> Result<Method<'_>, Reject> {
    match Method::of(token) {
        Method::Other("CONNECT") => Err(Reject::CONNECT),
        Method::Other(other) if other.len() > METHOD_BYTES_MAX => Err(Reject::METHOD_TOO_LONG),
        method => Ok(method),
    }
}

#[inline]
fn body_framing(fields: &Fields<'_, '_>, version: Version) -> Result<BodyFraming, Reject> {
    Ok(match framing::announced(fields, version)? {
        Announced::Nothing | Announced::Length(0) => BodyFraming::None,
        Announced::Length(bytes) => BodyFraming::Length(bytes),
        Announced::Chunked => BodyFraming::Chunked,
    })
}

/// Only `100-continue` is defined; HTTP/1.0 clients cannot expect it, and
/// without a body there is nothing to continue (RFC 9110 10.1.1).
#[inline]
fn expects_continue(
    fields: &Fields<'_, '_>,
    version: Version,
    framing: BodyFraming,
) -> Result<bool, Reject> {
    let Some(value) = fields.known(Known::Expect) else { return Ok(false) };
    if version == Version::Http10 {
        return Ok(false);
    }
    if fields.is_repeated(Known::Expect) || !value.eq_ignore_ascii_case(b"100-continue") {
        return Err(Reject::EXPECT);
    }
    Ok(framing != BodyFraming::None)
}

#[inline]
fn upgrade_of<'b>(fields: &Fields<'_, 'b>, options: Options, version: Version) -> Option<&'b [u8]> {
    if options.upgrade { framing::upgrade(fields, options, version) } else { None }
}

// === Target and Host ===

/// A parsed request target.
struct RequestTarget<'b> {
    raw: &'b str,
    path: &'b [u8],
    query: Option<&'b [u8]>,
    /// Of an absolute target: its authority, and the default port of its scheme.
    authority: Option<(&'b [u8], u16)>,
}

impl<'b> RequestTarget<'b> {
    #[inline]
    fn parse(
        method: Method<'_>,
        raw: &'b str,
        limits: &HeadLimits,
    ) -> Result<RequestTarget<'b>, Reject> {
        let target = raw.as_bytes();
        if target.len() > limits.target_bytes_max {
            return Err(Reject::TARGET_TOO_LONG);
        }
        if !bytes::all(target, bytes::TARGET) {
            let fragment = target.contains(&b'#');
            return Err(if fragment { Reject::FRAGMENT } else { Reject::TARGET_BYTE });
        }
        match target {
            [b'/', ..] => {
                let (path, query) = split_query(target);
                Ok(RequestTarget { raw, path, query, authority: None })
            }
            b"*" if method != Method::Options => Err(Reject::ASTERISK),
            b"*" => Ok(RequestTarget { raw, path: target, query: None, authority: None }),
            _ => RequestTarget::parse_absolute(method, raw),
        }
    }

    /// `http://authority/path?query` (RFC 9112 3.2.2).
    fn parse_absolute(method: Method<'_>, raw: &'b str) -> Result<RequestTarget<'b>, Reject> {
        let target = raw.as_bytes();
        let Some(colon) = memchr::memmem::find(target, b"://") else {
            return Err(Reject::TARGET_FORM);
        };
        let (scheme, rest) = (&target[..colon], &target[colon + 3..]);
        let port_default = if eq_lower(scheme, b"http") {
            80
        } else if eq_lower(scheme, b"https") {
            443
        } else {
            return Err(Reject::SCHEME);
        };
        let end = memchr::memchr2(b'/', b'?', rest).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let (path, query) = split_query(rest);
        let path: &[u8] = match (path, query, method) {
            // RFC 9112 3.2.4: such a target refers to the server as a whole.
            (b"", None, Method::Options) => b"*",
            (b"", ..) => b"/",
            (path, ..) => path,
        };
        Ok(RequestTarget { raw, path, query, authority: Some((authority, port_default)) })
    }
}

#[inline]
fn split_query(bytes: &[u8]) -> (&[u8], Option<&[u8]>) {
    match bytes.iter().position(|b| *b == b'?') {
        Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
        None => (bytes, None),
    }
}

/// Exactly one valid Host in HTTP/1.1, at most one in 1.0; the authority of an absolute target must
/// be the same (RFC 9112 3.2; according to 3.2.2 the target takes precedence, but another parser
/// may have used Host).
#[inline]
fn host_of<'b>(
    fields: &Fields<'_, 'b>,
    target: &RequestTarget<'b>,
    version: Version,
) -> Result<(&'b [u8], Host<'b>), Reject> {
    if fields.is_repeated(Known::Host) {
        return Err(Reject::HOST_REPEATED);
    }
    let sent = match fields.known(Known::Host) {
        Some(value) => Some((value, Host::parse(value)?)),
        None if version == Version::Http11 => return Err(Reject::HOST_MISSING),
        None => None,
    };
    let Some((authority, port_default)) = target.authority else {
        return Ok(sent.unwrap_or_default());
    };
    let wanted = Host::parse(authority)?;
    match sent {
        Some((_, host)) if !host.same_as(&wanted, port_default) => Err(Reject::HOST_MISMATCH),
        Some(sent) => Ok(sent),
        None => Ok((authority, wanted)),
    }
}

// === Reasons; cold ===

/// Determines why httparse refused the request line.
#[cold]
fn explain_line(head: &[u8], limits: &HeadLimits) -> Reject {
    let end = memchr::memchr(b'\n', head).unwrap_or(head.len());
    let line = &head[..end];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() {
        return Reject::EMPTY_LINES;
    }
    let mut parts = line.split(|b| *b == b' ');
    let (method, target, version) = (parts.next(), parts.next(), parts.next());
    let (Some(method), Some(target), Some(version), None) = (method, target, version, parts.next())
    else {
        return Reject::REQUEST_LINE;
    };
    if method.is_empty() || !bytes::all(method, bytes::TOKEN) || target.is_empty() {
        return Reject::REQUEST_LINE;
    }
    if target.len() > limits.target_bytes_max {
        return Reject::TARGET_TOO_LONG;
    }
    if !bytes::all(target, bytes::TARGET) {
        return Reject::TARGET_BYTE;
    }
    match version {
        b"HTTP/1.0" | b"HTTP/1.1" => Reject::REQUEST_LINE,
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Reject::VERSION_UNSUPPORTED
        }
        _ => Reject::VERSION_SYNTAX,
    }
}

/// Determines why httparse refused the part after the request line.
#[cold]
fn explain_fields(head: &[u8], parsed: httparse::Result<usize>, limits: &HeadLimits) -> Reject {
    let lines = memchr::memchr(b'\n', head).map_or(head, |at| &head[at + 1..]);
    match parsed {
        // There are bytes after the version.
        Err(httparse::Error::NewLine) => explain_line(head, limits),
        Err(error) => fields::explain(lines, error),
        // Never passed by a scanner: the head is truncated or followed by more bytes.
        Ok(_) => Reject::BARE_LF,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
    use super::*;
    use crate::Underscores;
    use crate::{FieldSlots, HeapFieldSlots};

    fn refusal(head: &[u8]) -> Option<Reject> {
        parse_request(&mut FieldSlots::new(), head, &HeadLimits::default()).err()
    }

    /// A scanner runs before it, but the parser does not rely on that.
    #[test]
    fn parser_alone_refuses_what_the_scanner_would() {
        assert_eq!(refusal(b"GET / HTTP/1.1\nHost: a\r\n\r\n"), Some(Reject::BARE_LF));
        assert_eq!(refusal(b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n"), Some(Reject::BARE_LF));
        assert_eq!(refusal(b"GET / HTTP/1.1\r\nHost: a\n\r\n"), Some(Reject::BARE_LF));
        assert_eq!(refusal(b"GET / HTTP/1.1\r\nHost: a\r\n\n"), Some(Reject::BARE_LF));
        assert_eq!(
            refusal(b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
            Some(Reject::EMPTY_LINES)
        );
        assert_eq!(refusal(b"GET / HTTP/1.1\r\nX: \0\r\n\r\n"), Some(Reject::FIELD_VALUE));
        assert!(refusal(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET").is_some());
        assert!(refusal(b"GET / HTTP/1.1\r\nHost: a\r\n").is_some());
        assert!(refusal(b"").is_some());
        let long = [b"GET / HTTP/1.1\r\nHost: a\r\nX: ", &[b'b'; 20_000][..], b"\r\n\r\n"].concat();
        assert_eq!(refusal(&long), Some(Reject::HEAD_TOO_LARGE));
    }

    #[test]
    fn fields_are_found_by_name_and_in_order() {
        let head =
            b"GET / HTTP/1.1\r\nhOST: a\r\nAccept: x\r\nX-B: 1\r\naccept:\ty \r\nx-b: 2\r\n\r\n";
        let mut slots = FieldSlots::new();
        let head = parse_request(&mut slots, head, &HeadLimits::default()).unwrap();
        let names: Vec<&str> = head.fields.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["hOST", "Accept", "X-B", "accept", "x-b"]);
        assert_eq!(head.fields.known(Known::Host), Some(&b"a"[..]));
        assert_eq!(head.fields.known(Known::Accept), Some(&b"x"[..]));
        assert_eq!(head.fields.known(Known::Range), None);
        assert_eq!(head.fields.get("X-b"), Some(&b"1"[..]));
        assert_eq!(head.fields.get("x-c"), None);
        assert_eq!(head.fields.all("X-B").collect::<Vec<_>>(), [b"1", b"2"]);
        assert_eq!(head.fields.known_all(Known::Accept).collect::<Vec<_>>(), [b"x", b"y"]);
        assert_eq!(head.fields.known_all(Known::Host).count(), 1);
        assert_eq!(head.fields.known_all(Known::Range).count(), 0);
    }

    #[test]
    fn fields_with_underscores_are_dropped_passed_or_refused() {
        let head =
            b"GET / HTTP/1.1\r\nA_: 0\r\nHost: a\r\nX_Y: 1\r\nAccept: b\r\n__: 2\r\nX-Z: 3\r\n\r\n";
        let mut slots = [FieldSlots::new(), FieldSlots::new(), FieldSlots::new()];
        let [drop, pass, refuse] = [Underscores::Drop, Underscores::Pass, Underscores::Refuse];
        let [one, two, three] = &mut slots;
        let parse = |slots, underscores| {
            parse_request(slots, head, &HeadLimits { underscores, ..HeadLimits::default() })
        };
        let names = |head: &RequestHead<'_, '_>| {
            head.fields.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
        };
        let dropped = parse(one, drop).unwrap();
        assert_eq!(names(&dropped), ["Host", "Accept", "X-Z"]);
        assert_eq!((dropped.fields.dropped(), dropped.fields.get("x_y")), (3, None));
        assert_eq!(dropped.fields.known(Known::Accept), Some(&b"b"[..]));
        assert_eq!(dropped.fields.known(Known::Host), Some(&b"a"[..]));
        let passed = parse(two, pass).unwrap();
        assert_eq!((passed.fields.dropped(), passed.fields.get("x_y")), (0, Some(&b"1"[..])));
        assert_eq!(names(&passed).len(), 6);
        assert_eq!(parse(three, refuse).err(), Some(Reject::UNDERSCORE));
    }

    #[test]
    fn slots_on_the_heap_are_as_many_as_the_head_has_lines() {
        let limits = HeadLimits::default();
        for count in [0, 1, limits.fields_max - 1, limits.fields_max] {
            let mut head = "GET / HTTP/1.1\r\nHost: a\r\n".to_owned();
            for _ in 0..count {
                head.push_str("a:b\r\n");
            }
            head.push_str("\r\n");
            let (mut heap, mut stack) =
                (HeapFieldSlots::for_head(head.as_bytes()), FieldSlots::new());
            let on_heap = parse_request(&mut heap, head.as_bytes(), &limits);
            let on_stack = parse_request(&mut stack, head.as_bytes(), &limits);
            assert_eq!(on_heap.is_ok(), count < limits.fields_max);
            assert_eq!(format!("{on_heap:?}"), format!("{on_stack:?}"));
        }
    }

    #[test]
    fn more_fields_than_slots_are_refused_whatever_the_limit() {
        let limits = HeadLimits { fields_max: 1000, ..HeadLimits::default() };
        let fields = b"X: y\r\n".repeat(crate::limits::FIELDS_CAP);
        let head = [b"GET / HTTP/1.1\r\nHost: a\r\n", &fields[..], b"\r\n"].concat();
        let mut slots = FieldSlots::new();
        let parsed = parse_request(&mut slots, &head, &limits);
        assert_eq!(parsed.err(), Some(Reject::TOO_MANY_FIELDS));
    }

    #[test]
    fn methods_know_what_they_promise() {
        for token in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "X"] {
            let method = Method::of(token);
            assert_eq!(method.as_str(), token);
            let safe = ["GET", "HEAD", "OPTIONS", "TRACE"].contains(&token);
            assert_eq!(method.is_safe(), safe, "{token}");
            let idempotent = safe || ["PUT", "DELETE"].contains(&token);
            assert_eq!(method.is_idempotent(), idempotent, "{token}");
        }
    }
}
