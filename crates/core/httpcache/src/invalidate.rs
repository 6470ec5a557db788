//! Invalidation by unsafe requests (RFC 9111 4.4): of the target, of Location and Content-Location
//! with the same origin, and of the groups listed in the response (RFC 9875).

use skep_http::{Host, Method};

use crate::response::{FieldLine, values};
use crate::structured::texts;

/// The target of a request.
#[derive(Clone, Copy, Debug)]
pub struct TargetUri<'a> {
    /// `http` or `https`.
    pub scheme: &'a str,
    pub authority: Host<'a>,
    /// Path and query, in the form used in keys.
    pub path_and_query: &'a [u8],
}

/// Paths and queries to invalidate with all their variants, the target first; may be empty. They
/// are as the origin wrote them: the caller normalises them like targets.
pub fn invalidated<'f>(
    method: Method<'_>,
    status: u16,
    target: &TargetUri<'_>,
    fields: impl Iterator<Item = FieldLine<'f>> + Clone,
) -> Vec<Vec<u8>> {
    if !changes(method, status) {
        return Vec::new();
    }
    let mut paths = vec![target.path_and_query.to_vec()];
    let named = values(fields.clone(), "location").chain(values(fields, "content-location"));
    for path in named.filter_map(|reference| resolve(target, reference)) {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

/// Tags ([`crate::tags`]) whose responses of the same origin are to be invalidated: the field
/// Cache-Group-Invalidation (RFC 9875 3); none if it is not a valid structured list.
pub fn invalidated_groups<'f>(
    method: Method<'_>,
    status: u16,
    fields: impl Iterator<Item = FieldLine<'f>> + Clone,
) -> Vec<String> {
    if !changes(method, status) {
        return Vec::new();
    }
    texts(values(fields, "cache-group-invalidation")).unwrap_or_default()
}

/// Whether a request may have changed something; a failed one has not.
fn changes(method: Method<'_>, status: u16) -> bool {
    !is_safe(method) && (200..400).contains(&status)
}

/// Whether a method changes nothing (RFC 9110 9.2.1, RFC 4918 9.1, RFC 5323, QUERY). All others
/// may, including unknown ones.
pub fn is_safe(method: Method<'_>) -> bool {
    method.is_safe() || matches!(method, Method::Other("PROPFIND" | "REPORT" | "SEARCH" | "QUERY"))
}

/// The path and query of a URI reference (RFC 3986 5.2), if it has the target's origin.
fn resolve(target: &TargetUri<'_>, reference: &[u8]) -> Option<Vec<u8>> {
    let reference = reference.trim_ascii();
    if reference.iter().any(|byte| !byte.is_ascii_graphic()) {
        return None;
    }
    let end = reference.iter().position(|byte| *byte == b'#').unwrap_or(reference.len());
    let (rest, has_authority) = without_origin(target, &reference[..end])?;
    let base_path = if has_authority { b"/" } else { path_of(target.path_and_query) };
    let mut path = match rest {
        [] if has_authority => base_path.to_vec(),
        [] => return Some(target.path_and_query.to_vec()),
        [b'/', ..] => rest.to_vec(),
        [b'?', ..] => [base_path, rest].concat(),
        rest => {
            let folder = base_path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
            [&base_path[..folder], rest].concat()
        }
    };
    remove_dot_segments(&mut path);
    path.starts_with(b"/").then_some(path)
}

/// Strips scheme and authority from a reference, and returns whether there was an authority; `None`
/// if the origin differs.
fn without_origin<'r>(target: &TargetUri<'_>, reference: &'r [u8]) -> Option<(&'r [u8], bool)> {
    let rest = match scheme_of(reference) {
        Some(scheme) => {
            let is_same = scheme.eq_ignore_ascii_case(target.scheme.as_bytes());
            let rest = &reference[scheme.len() + 1..];
            // `http:path` is not supported.
            (is_same && rest.starts_with(b"//")).then_some(rest)?
        }
        None => reference,
    };
    let Some(rest) = rest.strip_prefix(b"//") else { return Some((rest, false)) };
    let len = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let authority = Host::parse(&rest[..len]).ok()?;
    let port_default = if target.scheme.eq_ignore_ascii_case("https") { 443 } else { 80 };
    let is_same = authority.same_as(&target.authority, port_default);
    is_same.then_some((&rest[len..], true))
}

/// The scheme of a reference.
fn scheme_of(reference: &[u8]) -> Option<&[u8]> {
    let len = reference.iter().position(|byte| b":/?".contains(byte))?;
    let (scheme, rest) = reference.split_at(len);
    let is_scheme = scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte));
    (is_scheme && rest.starts_with(b":")).then_some(scheme)
}

fn path_of(path_and_query: &[u8]) -> &[u8] {
    path_and_query.split(|byte| *byte == b'?').next().unwrap_or(path_and_query)
}

/// RFC 3986 5.2.4, applied to the path of a path and query.
fn remove_dot_segments(path_and_query: &mut Vec<u8>) {
    let path = path_of(path_and_query);
    let query = path_and_query[path.len()..].to_vec();
    let mut kept: Vec<&[u8]> = Vec::new();
    let segments: Vec<_> = path.split(|byte| *byte == b'/').skip(1).collect();
    for (place, segment) in segments.iter().enumerate() {
        let is_last = place + 1 == segments.len();
        match *segment {
            b"." | b".." => {
                if *segment == b".." {
                    kept.pop();
                }
                if is_last {
                    kept.push(b"");
                }
            }
            segment => kept.push(segment),
        }
    }
    let mut plain = vec![b'/'];
    plain.extend(kept.join(&b'/'));
    plain.extend(query);
    *path_and_query = plain;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn of(method: Method<'_>, status: u16, fields: &[(&'static str, &'static str)]) -> Vec<String> {
        let target = TargetUri {
            scheme: "http",
            authority: Host::parse(b"site.example:80").unwrap(),
            path_and_query: b"/a/b?c",
        };
        let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let paths = invalidated(method, status, &target, fields);
        paths.into_iter().map(|path| String::from_utf8(path).unwrap()).collect()
    }

    #[test]
    fn every_method_that_is_not_known_to_be_safe_invalidates_its_target() {
        for method in ["POST", "PUT", "DELETE", "PATCH", "M-SEARCH", "get", "MKCOL"] {
            assert_eq!(of(Method::of(method), 200, &[]), ["/a/b?c"], "{method}");
        }
        for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "REPORT", "SEARCH", "QUERY"] {
            assert!(of(Method::of(method), 200, &[]).is_empty(), "{method}");
        }
        for (status, is_it) in [(204, true), (303, true), (304, true), (404, false), (500, false)] {
            assert_eq!(!of(Method::Post, status, &[]).is_empty(), is_it, "{status}");
        }
    }

    #[test]
    fn locations_of_the_same_origin_are_invalidated_too() {
        for (reference, expected) in [
            ("/x", Some("/x")),
            ("x", Some("/a/x")),
            ("./x?y", Some("/a/x?y")),
            ("../../../x/.", Some("/x/")),
            ("..", Some("/")),
            ("?d", Some("/a/b?d")),
            ("/x/../y#f", Some("/y")),
            ("http://SITE.example/x", Some("/x")),
            ("HTTP://site.example:80/x?q=/../", Some("/x?q=/../")),
            ("//site.example", Some("/")),
            ("//site.example?q", Some("/?q")),
            ("http://other.example/x", None),
            ("http://site.example:81/x", None),
            ("https://site.example/x", None),
            ("http://site.example@evil.example/x", None),
            ("http:x", None),
            ("mailto:a", None),
            ("/x y", None),
            ("", None),
            ("#f", None),
        ] {
            let mut expected: Vec<_> = expected.into_iter().collect();
            expected.insert(0, "/a/b?c");
            for field in ["Location", "content-location"] {
                assert_eq!(of(Method::Post, 201, &[(field, reference)]), expected, "{reference}");
            }
        }
        let both = [("Location", "/x"), ("Content-Location", "/y"), ("Location", "/x")];
        assert_eq!(of(Method::Put, 201, &both), ["/a/b?c", "/x", "/y"]);
    }

    #[test]
    fn groups_are_named_by_answers_to_unsafe_requests_only() {
        let of = |method, value: &'static str| {
            let fields = [(&b"Cache-Group-Invalidation"[..], value.as_bytes())];
            invalidated_groups(method, 204, fields.into_iter())
        };
        assert_eq!(of(Method::Post, "\"a\", \"b c\";x"), ["a", "b c"]);
        assert!(of(Method::Get, "\"a\"").is_empty());
        assert!(of(Method::Post, "\"a\", b c").is_empty(), "one error makes all of it invalid");
    }
}
