//! Response heads of nodes and origins, parsed as strictly as requests (RFC 9112 4 and 6.3).
//!
//! An origin is not trusted with the framing of a connection that carries replies for other
//! clients: an ambiguous response is refused with 502.

use crate::framing::{self, Announced};
use crate::version::Version;
use crate::{BorrowedFieldSlots, Fields, HeadLimits, Method, Reject, fields};

/// How the body of a response is delimited (RFC 9112 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFraming {
    /// There is no body.
    None,
    /// This many bytes; never 0.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
    /// Everything until the connection is closed.
    UntilClose,
}

/// A response head that passed every check.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ResponseHead<'h, 'b> {
    /// Status code, 100 to 599. A 1xx other than 101 precedes the final one.
    pub status: u16,
    /// Reason phrase as sent; empty if it contains non-ASCII bytes.
    pub reason: &'b str,
    pub version: Version,
    /// How the body is delimited.
    pub framing: ResponseFraming,
    /// Whether the connection may carry another request.
    pub keep_alive: bool,
    /// Protocol switched to, on 101.
    pub upgrade: Option<&'b [u8]>,
    /// The fields below the status line.
    pub fields: Fields<'h, 'b>,
}

/// Parses `head`, the response to a request with `request_method`. Find its end with
/// [`crate::HeadScanner::response`].
///
/// # Errors
/// The reason why the response is refused, with status 502; close the connection to the upstream.
pub fn parse_response<'h, 'b>(
    slots: impl Into<BorrowedFieldSlots<'h, 'b>>,
    head: &'b [u8],
    request_method: Method<'_>,
    limits: &HeadLimits,
) -> Result<ResponseHead<'h, 'b>, Reject> {
    parse(slots.into(), head, request_method, limits).map_err(Reject::by_upstream)
}

fn parse<'h, 'b>(
    slots: BorrowedFieldSlots<'h, 'b>,
    head: &'b [u8],
    request_method: Method<'_>,
    limits: &HeadLimits,
) -> Result<ResponseHead<'h, 'b>, Reject> {
    if head.len() > limits.head_bytes_max {
        return Err(Reject::HEAD_TOO_LARGE);
    }
    // httparse skips empty lines, which are allowed before requests only.
    if !head.starts_with(b"HTTP/") {
        return Err(Reject::STATUS_LINE);
    }
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        head,
        slots.within(limits),
    );
    let (Some(minor), Some(status), Some(reason)) =
        (response.version, response.code, response.reason)
    else {
        return Err(explain_line(head));
    };
    match parsed {
        Ok(httparse::Status::Complete(len)) if len == head.len() => {}
        other => return Err(explain_fields(head, other)),
    }
    if !(100..600).contains(&status) {
        return Err(Reject::STATUS_CODE);
    }
    let version = Version::of_minor(minor);
    let fields = Fields::index(head, response.headers, limits)?;
    let framing = framing_of(&fields, version, status, request_method)?;
    let options = framing::connection(&fields)?;
    let switching = if status == 101 { framing::upgrade(&fields, options, version) } else { None };
    Ok(ResponseHead {
        status,
        reason,
        version,
        framing,
        keep_alive: options.persistent(version) && framing != ResponseFraming::UntilClose,
        upgrade: switching,
        fields,
    })
}

/// RFC 9112 6.3, in its order of precedence.
fn framing_of(
    fields: &Fields<'_, '_>,
    version: Version,
    status: u16,
    request_method: Method<'_>,
) -> Result<ResponseFraming, Reject> {
    let announced = framing::announced(fields, version)?;
    match (status, announced) {
        (100..200 | 204, Announced::Nothing | Announced::Length(0)) => Ok(ResponseFraming::None),
        // RFC 9112 6.1, RFC 9110 8.6: a server MUST NOT send these. One that does may also send the
        // body, which would be read as the next response.
        (100..200 | 204, _) => Err(Reject::BODY_FORBIDDEN),
        (304, _) => Ok(ResponseFraming::None),
        _ if request_method == Method::Head => Ok(ResponseFraming::None),
        (_, Announced::Nothing) => Ok(ResponseFraming::UntilClose),
        (_, Announced::Length(0)) => Ok(ResponseFraming::None),
        (_, Announced::Length(bytes)) => Ok(ResponseFraming::Length(bytes)),
        (_, Announced::Chunked) => Ok(ResponseFraming::Chunked),
    }
}

#[cold]
fn explain_line(head: &[u8]) -> Reject {
    match head {
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0' | b'1', b' ', ..] => Reject::STATUS_LINE,
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor, ..]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Reject::VERSION_UNSUPPORTED
        }
        _ => Reject::VERSION_SYNTAX,
    }
}

#[cold]
fn explain_fields(head: &[u8], parsed: httparse::Result<usize>) -> Reject {
    let lines = memchr::memchr(b'\n', head).map_or(head, |at| &head[at + 1..]);
    match parsed {
        Err(httparse::Error::NewLine | httparse::Error::Status) => Reject::STATUS_LINE,
        Err(error) => fields::explain(lines, error),
        // Never passed by a scanner: the head is truncated or followed by more bytes.
        Ok(_) => Reject::BARE_LF,
    }
}
