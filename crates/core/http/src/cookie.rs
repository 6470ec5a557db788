//! Cookies and path parameters of requests, as far as a proxy reads sessions from them.
//!
//! Values are only compared with known ones, and never written anywhere: nothing is decoded.

use crate::bytes;
use crate::{Fields, Known};

/// The values of all cookies with this name, in the order of the fields (RFC 6265 5.4). Names are
/// case-sensitive; quotes around a value are not part of it.
pub fn values<'a>(fields: &'a Fields<'_, 'a>, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    fields.known_all(Known::Cookie).flat_map(pairs).filter_map(move |(key, value)| {
        let value =
            value.strip_prefix(b"\"").and_then(|it| it.strip_suffix(b"\"")).unwrap_or(value);
        (key == name.as_bytes()).then_some(value)
    })
}

/// The value of one Cookie field with all cookies except those with this name; `None`: the request
/// has no such cookie, and its fields can stay. Empty: it has no others.
pub fn without(fields: &Fields<'_, '_>, name: &str) -> Option<Vec<u8>> {
    values(fields, name).next()?;
    let mut rest = Vec::new();
    for (key, pair) in fields.known_all(Known::Cookie).flat_map(whole_pairs) {
        if key != name.as_bytes() && !pair.is_empty() {
            if !rest.is_empty() {
                rest.extend_from_slice(b"; ");
            }
            rest.extend_from_slice(pair);
        }
    }
    Some(rest)
}

/// The value of the parameter with this name in any segment of `path` (RFC 3986 3.3), such as
/// `;jsessionid=` of servlet engines (Jakarta Servlet 6.0, 7.1.3).
pub fn path_parameter<'a>(path: &'a [u8], name: &str) -> Option<&'a [u8]> {
    path.split(|byte| *byte == b'/').find_map(|segment| {
        segment
            .split(|byte| *byte == b';')
            .skip(1)
            .find_map(|parameter| parameter.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    })
}

/// The cookies of a field that have values: names and values.
fn pairs(field: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    whole_pairs(field).filter_map(|(key, pair)| Some((key, pair.get(key.len() + 1..)?)))
}

/// The cookies of a field: names, and whole pairs.
fn whole_pairs(field: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    field.split(|byte| *byte == b';').map(bytes::trim).map(|pair| {
        let key = pair.split(|byte| *byte == b'=').next().unwrap_or(pair);
        (key, pair)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::{FieldSlots, HeadLimits, parse_request};

    fn with_fields<T>(lines: &str, ask: impl FnOnce(&Fields<'_, '_>) -> T) -> T {
        let head = format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n");
        let mut slots = FieldSlots::new();
        let limits = HeadLimits { target_bytes_max: 1000, ..HeadLimits::default() };
        ask(&parse_request(&mut slots, head.as_bytes(), &limits).unwrap().fields)
    }

    #[test]
    fn all_cookies_of_a_name_are_found() {
        let cases: [(&str, &[&str]); 7] = [
            ("Cookie: a=1; s=x.n1; b=2\r\n", &["x.n1"]),
            ("Cookie: s=1;s=2\r\nCookie: s=3\r\n", &["1", "2", "3"]),
            ("Cookie: s=\"q\"; xs=1; s =2; S=3\r\n", &["q"]),
            ("Cookie: s\r\n", &[]),
            ("Cookie: s=\r\n", &[""]),
            ("Cookie: s=a=b\r\n", &["a=b"]),
            ("", &[]),
        ];
        for (lines, wanted) in cases {
            let found = with_fields(lines, |fields| {
                let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
                values(fields, "s").map(text).collect::<Vec<_>>()
            });
            assert_eq!(found, wanted, "{lines}");
        }
    }

    #[test]
    fn one_cookie_is_taken_out() {
        let cases = [
            ("Cookie: a=1; s=x; b=2\r\n", Some("a=1; b=2")),
            ("Cookie: s=1\r\nCookie: b=\"2\";; s=3\r\n", Some("b=\"2\"")),
            ("Cookie: s=1\r\n", Some("")),
            ("Cookie: a=1;b\r\n", None),
            ("", None),
        ];
        for (lines, wanted) in cases {
            let rest = with_fields(lines, |fields| without(fields, "s"));
            assert_eq!(rest.as_deref(), wanted.map(str::as_bytes), "{lines}");
        }
    }

    #[test]
    fn parameters_are_found_in_any_segment() {
        let cases: [(&str, Option<&str>); 6] = [
            ("/a;jsessionid=1.n1", Some("1.n1")),
            ("/a;x=1;jsessionid=2/b", Some("2")),
            ("/a/b", None),
            ("/jsessionid=1", None),
            ("/a;jsessionidx=1", None),
            ("/a;jsessionid=", Some("")),
        ];
        for (path, wanted) in cases {
            let found = path_parameter(path.as_bytes(), "jsessionid");
            assert_eq!(found, wanted.map(str::as_bytes), "{path}");
        }
    }
}
