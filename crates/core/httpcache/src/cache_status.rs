//! Cache-Status (RFC 9211): how the cache handled a request, as one member of the list.

use skep_http::encode::write_u64;
use skep_http::forward::VIA_NAME;

use crate::limits::KEY_SHOWN_BYTES_MAX;
use crate::rule::CachingRule;

/// Why a request was forwarded (RFC 9211 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardReason {
    /// The cache was configured not to handle the request.
    Bypass,
    /// The request's method.
    Method,
    /// Nothing is stored under the key.
    UriMiss,
    /// No stored variant matches the request's fields.
    VaryMiss,
    /// No stored response matches, for either of these reasons.
    Miss,
    /// The request's directives.
    Request,
    /// The stored response is stale.
    Stale,
    /// Only a part of the requested content is stored.
    Partial,
}

impl ForwardReason {
    /// The token of the parameter `fwd`.
    pub fn token(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Miss => "miss",
            Self::Request => "request",
            Self::Stale => "stale",
            Self::Partial => "partial",
        }
    }

    /// The reason that corresponds to a rule by which a stored response was not sent unchanged.
    pub fn of(rule: CachingRule) -> Self {
        match rule {
            CachingRule::Method => Self::Method,
            CachingRule::RequestNoCache | CachingRule::RequestMaxAge | CachingRule::MinFresh => {
                Self::Request
            }
            CachingRule::Cookie
            | CachingRule::BypassCookie
            | CachingRule::BypassField
            | CachingRule::Authorization
            | CachingRule::RequestBody
            | CachingRule::EventStream => Self::Bypass,
            _ => Self::Stale,
        }
    }
}

/// How the cache handled a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatus<'a> {
    /// Why it was forwarded; `None` for a hit.
    pub forwarded: Option<ForwardReason>,
    /// The status of the origin's response, if the client receives another one (2.3).
    pub forward_status: Option<u16>,
    /// Remaining freshness in seconds, negative if the response is stale (2.4).
    pub ttl_s: Option<i64>,
    /// Whether the response was stored (2.5).
    pub stored: bool,
    /// `Some(true)`: another request's forwarded response answered this one; `Some(false)`: it
    /// waited for one, but had to be forwarded itself (2.6).
    pub collapsed: Option<bool>,
    /// The key, for clients that may see it; omitted if it is longer than [`KEY_SHOWN_BYTES_MAX`]
    /// (2.7).
    pub key: Option<&'a [u8]>,
    /// A token of this cache, for example [`CachingRule::token`] (2.8).
    pub detail: Option<&'a str>,
}

impl CacheStatus<'_> {
    /// A hit without further parameters.
    pub const HIT: Self = Self {
        forwarded: None,
        forward_status: None,
        ttl_s: None,
        stored: false,
        collapsed: None,
        key: None,
        detail: None,
    };

    /// Appends the member, without the field name and the line end.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(VIA_NAME.as_bytes());
        match self.forwarded {
            None => out.extend_from_slice(b"; hit"),
            Some(reason) => {
                write_token(out, "fwd", reason.token());
                if let Some(status) = self.forward_status {
                    out.extend_from_slice(b"; fwd-status=");
                    write_u64(out, status.into());
                }
            }
        }
        if let Some(seconds) = self.ttl_s {
            out.extend_from_slice(if seconds < 0 { b"; ttl=-" } else { b"; ttl=" });
            write_u64(out, seconds.unsigned_abs());
        }
        // Only for a forwarded request.
        if self.stored && self.forwarded.is_some() {
            out.extend_from_slice(b"; stored");
        }
        match self.collapsed.filter(|_| self.forwarded.is_some()) {
            Some(true) => out.extend_from_slice(b"; collapsed"),
            Some(false) => out.extend_from_slice(b"; collapsed=?0"),
            None => {}
        }
        if let Some(key) = self.key.filter(|key| key.len() <= KEY_SHOWN_BYTES_MAX) {
            out.extend_from_slice(b"; key=\"");
            write_string(out, key);
            out.push(b'"');
        }
        if let Some(detail) = self.detail {
            write_token(out, "detail", detail);
        }
    }

    /// The whole field line, including CRLF.
    pub fn line(&self) -> Vec<u8> {
        let mut line = Vec::with_capacity(80);
        line.extend_from_slice(b"Cache-Status: ");
        self.write(&mut line);
        line.extend_from_slice(b"\r\n");
        line
    }
}

/// The characters of a string (RFC 9651 3.3.3): the lines of a key are separated by spaces, and
/// bytes that are not allowed in a string are written as `%` and two digits.
fn write_string(out: &mut Vec<u8>, text: &[u8]) {
    for byte in text {
        match byte {
            b'\n' => out.push(b' '),
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            b' '..=b'~' => out.push(*byte),
            _ => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
}

fn write_token(out: &mut Vec<u8>, name: &str, token: &str) {
    for part in ["; ", name, "=", token] {
        out.extend_from_slice(part.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: CacheStatus<'static> = CacheStatus::HIT;

    fn text(status: &CacheStatus<'_>) -> String {
        String::from_utf8_lossy(&status.line()).into_owned()
    }

    #[test]
    fn every_member_is_written_as_its_section_says() {
        let forwarded = |reason| CacheStatus { forwarded: Some(reason), ..NONE };
        let stale = forwarded(ForwardReason::Stale);
        for (section, status, expected) in [
            ("2.1", NONE, "hit"),
            ("2.2", forwarded(ForwardReason::Bypass), "fwd=bypass"),
            ("2.2", forwarded(ForwardReason::Method), "fwd=method"),
            ("2.2", forwarded(ForwardReason::UriMiss), "fwd=uri-miss"),
            ("2.2", forwarded(ForwardReason::VaryMiss), "fwd=vary-miss"),
            ("2.2", forwarded(ForwardReason::Miss), "fwd=miss"),
            ("2.2", forwarded(ForwardReason::Request), "fwd=request"),
            ("2.2", stale, "fwd=stale"),
            ("2.2", forwarded(ForwardReason::Partial), "fwd=partial"),
            (
                "2.3",
                CacheStatus { forward_status: Some(304), ..stale },
                "fwd=stale; fwd-status=304",
            ),
            // Meaningless without `fwd`, like stored and collapsed.
            ("2.3", CacheStatus { forward_status: Some(304), ..NONE }, "hit"),
            ("2.4", CacheStatus { ttl_s: Some(30), ..NONE }, "hit; ttl=30"),
            ("2.4", CacheStatus { ttl_s: Some(-30), ..NONE }, "hit; ttl=-30"),
            ("2.4", CacheStatus { ttl_s: Some(0), ..NONE }, "hit; ttl=0"),
            ("2.5", CacheStatus { stored: true, ..stale }, "fwd=stale; stored"),
            ("2.5", CacheStatus { stored: true, ..NONE }, "hit"),
            ("2.6", CacheStatus { collapsed: Some(true), ..stale }, "fwd=stale; collapsed"),
            ("2.6", CacheStatus { collapsed: Some(false), ..stale }, "fwd=stale; collapsed=?0"),
            ("2.6", CacheStatus { collapsed: Some(true), ..NONE }, "hit"),
            ("2.7", CacheStatus { key: Some(b"http://a/b"), ..NONE }, "hit; key=\"http://a/b\""),
            (
                "2.7",
                CacheStatus { key: Some(b"a\"b\\\ncookie c=\xe9\x7f"), ..NONE },
                "hit; key=\"a\\\"b\\\\ cookie c=%E9%7F\"",
            ),
            ("2.7", CacheStatus { key: Some(&[b'a'; KEY_SHOWN_BYTES_MAX + 1]), ..NONE }, "hit"),
            ("2.8", CacheStatus { detail: Some("peer"), ..NONE }, "hit; detail=peer"),
        ] {
            let line = format!("Cache-Status: skep; {expected}\r\n");
            assert_eq!(text(&status), line, "RFC 9211 {section}");
        }
    }

    #[test]
    fn members_are_written_in_the_order_of_the_rfc() {
        let forwarded = CacheStatus {
            forwarded: Some(ForwardReason::of(CachingRule::RequestNoCache)),
            forward_status: Some(304),
            ttl_s: Some(-2),
            stored: true,
            collapsed: Some(false),
            key: Some(b"a\"b"),
            detail: Some(CachingRule::NoStore.token()),
        };
        assert_eq!(
            text(&forwarded),
            "Cache-Status: skep; fwd=request; fwd-status=304; ttl=-2; stored; collapsed=?0; \
             key=\"a\\\"b\"; detail=no-store\r\n"
        );
        assert_eq!(ForwardReason::of(CachingRule::NoCache), ForwardReason::Stale);
    }
}
