//! Host and authority: validation, splitting, comparison (RFC 9110 7.2,
//! RFC 3986 3.2).
//!
//! Stricter than RFC 3986, whose registered names may contain `%41` or `!$&'`: only
//! letters, digits, `-`, `.` and `_`, since two parsers of anything else
//! rarely agree. No userinfo, no empty host, no empty port, no zone.

use std::net::Ipv6Addr;

use crate::Reject;
use crate::bytes;

/// Longest host name, in bytes (RFC 1035 2.3.4).
const NAME_BYTES_MAX: usize = 255;

/// A validated host with its port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host<'b> {
    /// Name or address as sent, IPv6 with brackets; without a trailing dot.
    pub name: &'b [u8],
    /// Port, if one was given.
    pub port: Option<u16>,
}

impl<'b> Host<'b> {
    /// Checks and splits `value`.
    ///
    /// # Errors
    /// [`Reject::USERINFO`], else [`Reject::HOST_INVALID`].
    #[inline]
    pub fn parse(value: &'b [u8]) -> Result<Host<'b>, Reject> {
        let (name, port) = match value {
            [b'[', ..] => split_literal(value).ok_or(Reject::HOST_INVALID)?,
            _ => split_name(value)?,
        };
        let port = match port {
            None => None,
            Some(digits) => Some(parse_port(digits).ok_or(Reject::HOST_INVALID)?),
        };
        Ok(Host { name, port })
    }

    /// Whether the names, ignoring case, and the ports are equal; `port_default`
    /// replaces a missing port.
    pub fn same_as(&self, other: &Host<'_>, port_default: u16) -> bool {
        self.name.eq_ignore_ascii_case(other.name)
            && self.port.unwrap_or(port_default) == other.port.unwrap_or(port_default)
    }

    /// Whether the name equals `lower`, which is in lower case.
    pub fn name_is(&self, lower: &[u8]) -> bool {
        self.name.eq_ignore_ascii_case(lower)
    }

    /// Appends the name in lower case: the form for tables and cache keys.
    pub fn write_lower(&self, out: &mut Vec<u8>) {
        out.extend(self.name.iter().map(u8::to_ascii_lowercase));
    }
}

/// `name` or `name:port`.
#[inline]
fn split_name(value: &[u8]) -> Result<(&[u8], Option<&[u8]>), Reject> {
    let len = value.iter().position(|b| !bytes::is(*b, bytes::HOST)).unwrap_or(value.len());
    let (name, rest) = value.split_at(len);
    let port = match rest {
        [] => None,
        [b':', digits @ ..] if !digits.contains(&b'@') => Some(digits),
        rest if rest.contains(&b'@') => return Err(Reject::USERINFO),
        _ => return Err(Reject::HOST_INVALID),
    };
    let name = name.strip_suffix(b".").unwrap_or(name);
    if name.len() > NAME_BYTES_MAX || name.split(|b| *b == b'.').any(<[u8]>::is_empty) {
        return Err(Reject::HOST_INVALID);
    }
    Ok((name, port))
}

/// `[v6]` or `[v6]:port`.
fn split_literal(value: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let close = value.iter().position(|b| *b == b']')?;
    let (name, rest) = value.split_at(close + 1);
    std::str::from_utf8(&name[1..close]).ok()?.parse::<Ipv6Addr>().ok()?;
    match rest {
        [] => Some((name, None)),
        [b':', digits @ ..] => Some((name, Some(digits))),
        _ => None,
    }
}

/// One to five digits, at most 65535.
#[inline]
fn parse_port(digits: &[u8]) -> Option<u16> {
    if digits.is_empty() || digits.len() > 5 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0u32, |n, d| n * 10 + u32::from(d - b'0'));
    u16::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
    use super::*;

    #[test]
    fn splits_names_addresses_and_ports() {
        let parsed = |v: &'static str| Host::parse(v.as_bytes()).unwrap();
        assert_eq!(parsed("a.b"), Host { name: b"a.b", port: None });
        assert_eq!(parsed("a.b."), Host { name: b"a.b", port: None });
        assert_eq!(parsed("10.0.0.1:80"), Host { name: b"10.0.0.1", port: Some(80) });
        assert_eq!(parsed("[::1]:8080"), Host { name: b"[::1]", port: Some(8080) });
        assert_eq!(parsed("[2001:DB8::1]"), Host { name: b"[2001:DB8::1]", port: None });
    }

    #[test]
    fn refuses_what_readers_disagree_on() {
        let long = "a".repeat(256);
        for value in [
            "",
            ":80",
            "a:",
            "a:b",
            "a:65536",
            "a:000080",
            "a:-1",
            "a b",
            "a/b",
            "a,b",
            "a%41",
            "..",
            ".a",
            "a..b",
            "a..",
            "[::1",
            "[::1]x",
            "[fe80::1%25eth0]",
            "[]",
            "::1",
            "a\\b",
            "[1.2.3.4]",
            "a:+80",
            "é",
            &long,
        ] {
            assert_eq!(Host::parse(value.as_bytes()), Err(Reject::HOST_INVALID), "{value}");
        }
        assert_eq!(Host::parse(b"u@h"), Err(Reject::USERINFO));
        assert_eq!(Host::parse(b"u:p@h"), Err(Reject::USERINFO));
    }

    #[test]
    fn compares_without_case_and_with_the_default_port() {
        let (a, b) = (Host::parse(b"Ex.org").unwrap(), Host::parse(b"eX.ORG:80").unwrap());
        assert!(a.same_as(&b, 80) && !a.same_as(&b, 443));
        assert!(a.name_is(b"ex.org") && !a.name_is(b"ex.or"));
    }
}
