//! Cache-Status (RFC 9211): how the cache handled a request, as one member of the field.

use skep_http::encode::write_u64;
use skep_http::forward::VIA_NAME;

use crate::rule::CachingRule;

/// Why a request was forwarded (RFC 9211 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardReason {
    /// The cache is not to handle it.
    Bypass,
    /// Its method.
    Method,
    /// Nothing is stored under its key.
    UriMiss,
    /// What is stored under its key does not fit its fields.
    VaryMiss,
    /// Nothing is stored that fits; which of the two is not known.
    Miss,
    /// Its directives.
    Request,
    /// What is stored is stale.
    Stale,
    /// What is stored is only a part of what it wants.
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

    /// The reason for which a stored response was not sent as it is.
    pub fn of(rule: CachingRule) -> Self {
        match rule {
            CachingRule::Method => Self::Method,
            CachingRule::RequestNoCache | CachingRule::RequestMaxAge | CachingRule::MinFresh => {
                Self::Request
            }
            CachingRule::Cookie | CachingRule::RequestBody | CachingRule::EventStream => {
                Self::Bypass
            }
            _ => Self::Stale,
        }
    }
}

/// How the cache handled a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatus<'a> {
    /// Why it was forwarded; `None`: a hit.
    pub forwarded: Option<ForwardReason>,
    /// The status that the origin answered, where the client gets another one (2.3).
    pub forward_status: Option<u16>,
    /// Seconds for which the response stays fresh, negative since it is stale (2.4).
    pub ttl_s: Option<i64>,
    /// Whether the response was stored (2.5).
    pub stored: bool,
    /// Whether it was answered by a request that another one had forwarded; `Some(false)`: it could
    /// have been (2.6).
    pub collapsed: Option<bool>,
    /// The key, for whoever may see it (2.7).
    pub key: Option<&'a str>,
    /// A token of ours, [`CachingRule::token`] for example (2.8).
    pub detail: Option<&'a str>,
}

impl CacheStatus<'_> {
    /// Appends the member, without name and end of the field.
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
        if self.stored {
            out.extend_from_slice(b"; stored");
        }
        match self.collapsed {
            Some(true) => out.extend_from_slice(b"; collapsed"),
            Some(false) => out.extend_from_slice(b"; collapsed=?0"),
            None => {}
        }
        if let Some(key) = self.key.filter(|key| key.bytes().all(|b| (0x20..=0x7e).contains(&b))) {
            out.extend_from_slice(b"; key=\"");
            out.extend_from_slice(key.replace('\\', "\\\\").replace('"', "\\\"").as_bytes());
            out.push(b'"');
        }
        if let Some(detail) = self.detail {
            write_token(out, "detail", detail);
        }
    }

    /// The whole line, with its end.
    pub fn line(&self) -> Vec<u8> {
        let mut line = Vec::with_capacity(80);
        line.extend_from_slice(b"Cache-Status: ");
        self.write(&mut line);
        line.extend_from_slice(b"\r\n");
        line
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

    #[test]
    fn members_are_written_in_the_order_of_the_rfc() {
        let text = |status: CacheStatus<'_>| String::from_utf8_lossy(&status.line()).into_owned();
        let hit = CacheStatus { ttl_s: Some(30), ..CacheStatus::default() };
        assert_eq!(text(hit), "Cache-Status: skep; hit; ttl=30\r\n");
        let forwarded = CacheStatus {
            forwarded: Some(ForwardReason::of(CachingRule::RequestNoCache)),
            forward_status: Some(304),
            ttl_s: Some(-2),
            stored: true,
            collapsed: Some(false),
            key: Some("a\"b"),
            detail: Some(CachingRule::NoStore.token()),
        };
        assert_eq!(
            text(forwarded),
            "Cache-Status: skep; fwd=request; fwd-status=304; ttl=-2; stored; collapsed=?0; \
             key=\"a\\\"b\"; detail=no-store\r\n"
        );
        assert_eq!(ForwardReason::of(CachingRule::NoCache), ForwardReason::Stale);
    }
}
