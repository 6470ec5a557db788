//! The primary key of a request (RFC 9111 2), by configured rules: which query parameters are part
//! of it, and which cookies and fields besides the URL.
//!
//! Invariants: the target in the key is the target that is sent to the origin; otherwise one
//! response could be stored under the key of another. No part of a key can be read as another part.

use std::borrow::Cow;

use skep_http::{Host, RequestHead};

use crate::cookies::{are_read_alike, cookies};
use crate::limits::KEY_COOKIE_BYTES_MAX;
use crate::request::is_like;

/// The contents of a key besides site, scheme, authority and path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRules {
    /// Query parameters that are neither part of the key nor forwarded: names, or prefixes with
    /// `*`.
    pub query_ignored: Vec<String>,
    /// Whether the order of parameters has no meaning: they are sorted by name, also in the
    /// forwarded request.
    pub query_sorted: bool,
    /// Cookies whose values are part of the key.
    pub cookies: Vec<String>,
    /// Request fields whose values are part of the key, in lower case.
    pub fields: Vec<String>,
}

/// A request has no key: it is forwarded without a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unkeyed;

impl KeyRules {
    /// The path and query under which a request is stored *and* forwarded.
    pub fn target<'t>(&self, path_and_query: &'t [u8]) -> Cow<'t, [u8]> {
        let at = path_and_query.iter().position(|byte| *byte == b'?');
        let Some(at) = at.filter(|_| !self.query_ignored.is_empty() || self.query_sorted) else {
            return Cow::Borrowed(path_and_query);
        };
        let (path, query) = (&path_and_query[..at], &path_and_query[at + 1..]);
        let is_kept = |parameter: &&[u8]| {
            !self.query_ignored.iter().any(|pattern| is_like(name_of(parameter), pattern))
        };
        let mut kept: Vec<_> = query.split(|byte| *byte == b'&').filter(is_kept).collect();
        if self.query_sorted {
            // The sort is stable: several parameters with one name may be an ordered list.
            kept.sort_by_key(|parameter| name_of(parameter));
        }
        let mut target = path.to_vec();
        if !kept.is_empty() {
            target.push(b'?');
            target.extend(kept.join(&b'&'));
        }
        Cow::Owned(target)
    }

    /// The key of a request for `target` ([`Self::target`]).
    ///
    /// # Errors
    /// [`Unkeyed`]: a cookie of the key is too long, or occurs twice; or an application may parse
    /// the cookies differently ([`crate::cookies`]).
    pub fn key(
        &self,
        scheme: &str,
        authority: &Host<'_>,
        target: &[u8],
        head: &RequestHead<'_, '_>,
    ) -> Result<Vec<u8>, Unkeyed> {
        let mut key = Vec::with_capacity(target.len() + 64);
        key.extend_from_slice(scheme.as_bytes());
        key.extend_from_slice(b"://");
        authority.write_lower(&mut key);
        let port_default = if scheme == "https" { 443 } else { 80 };
        if let Some(port) = authority.port.filter(|port| *port != port_default) {
            key.extend_from_slice(format!(":{port}").as_bytes());
        }
        key.extend_from_slice(target);
        if !self.cookies.is_empty() && !are_read_alike(head, &self.cookies) {
            return Err(Unkeyed);
        }
        for name in &self.cookies {
            let mut values = cookies(head).filter(|(known, _)| *known == name.as_bytes());
            let value = values.next().map(|(_, value)| value);
            if values.next().is_some() || value.is_some_and(|v| v.len() > KEY_COOKIE_BYTES_MAX) {
                return Err(Unkeyed);
            }
            write_part(&mut key, "cookie", name, value);
        }
        for name in &self.fields {
            let values: Vec<_> = head.fields.all(name).collect();
            let value = (!values.is_empty()).then(|| values.join(&b","[..]));
            write_part(&mut key, "field", name, value.as_deref());
        }
        Ok(key)
    }
}

/// Appends a line that begins with LF, which cannot occur in a target or a value.
fn write_part(key: &mut Vec<u8>, kind: &str, name: &str, value: Option<&[u8]>) {
    key.extend_from_slice(format!("\n{kind} {name}").as_bytes());
    if let Some(value) = value {
        key.push(b'=');
        key.extend_from_slice(value);
    }
}

fn name_of(parameter: &[u8]) -> &[u8] {
    parameter.split(|byte| *byte == b'=').next().unwrap_or(parameter)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use skep_http::{FieldSlots, HeadLimits, limits, parse_request};

    use super::*;

    const LIMITS: &HeadLimits = &limits::RESPONSE_HEAD;

    fn texts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn key(rules: &KeyRules, host: &str, target: &str, fields: &str) -> Result<String, Unkeyed> {
        let text = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
        let mut slots = FieldSlots::new();
        let head = parse_request(&mut slots, text.as_bytes(), LIMITS).unwrap();
        let target = rules.target(target.as_bytes());
        let key = rules.key("http", &head.authority, &target, &head)?;
        Ok(String::from_utf8(key).unwrap())
    }

    #[test]
    fn the_query_counts_byte_for_byte_unless_a_rule_says_otherwise() {
        let none = KeyRules::default();
        let ignored = KeyRules { query_ignored: texts(&["utm_*", "fbclid"]), ..none.clone() };
        let sorted = KeyRules { query_sorted: true, ..none.clone() };
        for (rules, target, expected) in [
            (&none, "/a?b=2&a=1&utm_x=1", "/a?b=2&a=1&utm_x=1"),
            (&ignored, "/a?b=2&utm_source=x&a=1&fbclid=y&fbclids=z", "/a?b=2&a=1&fbclids=z"),
            (&ignored, "/a?utm_x", "/a"),
            (&ignored, "/a?", "/a?"),
            (&ignored, "/utm_x?a;utm_x", "/utm_x?a;utm_x"),
            (&sorted, "/a?b=2&a=2&c&a=1", "/a?a=2&a=1&b=2&c"),
        ] {
            assert_eq!(rules.target(target.as_bytes()), expected.as_bytes(), "{target}");
        }
    }

    #[test]
    fn hosts_are_compared_and_cookies_and_fields_count_by_rule() {
        let none = KeyRules::default();
        assert_eq!(
            key(&none, "A.example:80", "/x", "Cookie: a=1\r\n").unwrap(),
            "http://a.example/x"
        );
        assert_eq!(key(&none, "a.example:81", "/x", "").unwrap(), "http://a.example:81/x");
        let rules = KeyRules { cookies: texts(&["lang"]), fields: texts(&["device"]), ..none };
        let of = |fields: &str| key(&rules, "a", "/x", fields);
        let got = of("Cookie: b=1; lang=de\r\nDevice: tv\r\n");
        assert_eq!(got.unwrap(), "http://a/x\ncookie lang=de\nfield device=tv");
        assert_eq!(of("").unwrap(), "http://a/x\ncookie lang\nfield device");
        let nothing = of("Cookie: lang\r\n").unwrap();
        assert_eq!(nothing, "http://a/x\ncookie lang=\nfield device", "not as without it");
        assert_eq!(of("Cookie: lang=a; lang=b\r\n"), Err(Unkeyed));
        let long = "x".repeat(KEY_COOKIE_BYTES_MAX + 1);
        assert_eq!(of(&format!("Cookie: lang={long}\r\n")), Err(Unkeyed));
    }
}
