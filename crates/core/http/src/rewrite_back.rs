//! Rewrites references of an application to its own resources into the clients' URLs: the reverse
//! of what a route does to the path and host of requests.
//!
//! ```text
//!   request   /app/x --strip "/app", add "/v1"--> /v1/x
//!   response  /app/y <--------------------------- Location: /v1/y
//! ```
//!
//! A head is rewritten as a whole and then parsed again, so that all users of it see the same head.
//! Invariants: a value that does not refer to the application's own resources is unchanged, byte
//! for byte; so is one that is already in the clients' form.

use crate::encode::write_field;
use crate::forward::write_response_line;
use crate::response::ResponseHead;

/// Prefix of cookies that are for one host and all its paths.
const HOST_PREFIX: &[u8] = b"__Host-";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackRewrite {
    /// The first matching one applies.
    pub prefixes: Vec<PathPrefix>,
    /// Host names that the application uses for itself, with a port if it includes one: clients do
    /// not know them.
    pub hosts: Vec<Box<[u8]>>,
    /// Domain of cookies, replacing the application's.
    pub cookie_domain: Option<Box<[u8]>>,
}

/// A prefix of an application's paths, and the clients' prefix in its place; both without a
/// trailing slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPrefix {
    pub own: Box<[u8]>,
    pub known: Box<[u8]>,
}

impl BackRewrite {
    /// Whether nothing is rewritten.
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty() && self.hosts.is_empty() && self.cookie_domain.is_none()
    }

    /// `head` with references rewritten, including CRLFCRLF; `host` is that of the client's
    /// request. `None`: it stays as it is.
    pub fn apply(&self, head: &ResponseHead<'_, '_>, host: &[u8]) -> Option<Vec<u8>> {
        let changed = |(name, value)| self.field(name, value, host).is_some();
        if !head.fields.iter().any(changed) {
            return None;
        }
        let mut out = Vec::new();
        write_response_line(&mut out, head);
        for (name, value) in head.fields.iter() {
            let rewritten = self.field(name, value, host);
            write_field(&mut out, name, rewritten.as_deref().unwrap_or(value));
        }
        out.extend_from_slice(b"\r\n");
        Some(out)
    }

    /// The new value of a field; `None`: unchanged.
    fn field(&self, name: &str, value: &[u8], host: &[u8]) -> Option<Vec<u8>> {
        // Most names have other lengths.
        match name.len() {
            8 if name.eq_ignore_ascii_case("location") => self.reference(value, host),
            16 if name.eq_ignore_ascii_case("content-location") => self.reference(value, host),
            7 if name.eq_ignore_ascii_case("refresh") => self.refresh(value, host),
            10 if name.eq_ignore_ascii_case("set-cookie") => self.set_cookie(value),
            _ => None,
        }
    }

    /// A URL or a path (RFC 9110 10.2.2).
    fn reference(&self, value: &[u8], host: &[u8]) -> Option<Vec<u8>> {
        let Some((scheme, rest)) = scheme_of(value) else {
            // `//host/path` begins with a host, and anything without a leading slash is relative to
            // the request.
            let is_path = value.starts_with(b"/") && !value.starts_with(b"//");
            return if is_path { self.path(value).map(without_host) } else { None };
        };
        let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
        let (authority, path) = rest.split_at(end.unwrap_or(rest.len()));
        let is = |host: &[u8]| authority.eq_ignore_ascii_case(host);
        if self.hosts.iter().any(|own| is(own)) {
            let path = if path.starts_with(b"/") { path.to_vec() } else { [b"/", path].concat() };
            return Some(without_host(self.path(&path).unwrap_or(path)));
        }
        let path = if is(host) { self.path(path) } else { None };
        path.map(|path| [scheme, authority, &*path].concat())
    }

    /// A path and what follows it.
    fn path(&self, path: &[u8]) -> Option<Vec<u8>> {
        for PathPrefix { own, known } in &self.prefixes {
            // An application that knows the clients' paths needs no rewriting.
            let is_known = !known.is_empty() && below(path, known).is_some();
            if is_known && known.len() >= own.len() {
                return None;
            }
            if let Some(rest) = below(path, own) {
                let mut path = [known, rest].concat();
                if path.is_empty() || !path.starts_with(b"/") {
                    path.insert(0, b'/');
                }
                return Some(path);
            }
        }
        None
    }

    /// `5; url=/v1/x`, as browsers parse it.
    fn refresh(&self, value: &[u8], host: &[u8]) -> Option<Vec<u8>> {
        let at = value.windows(4).position(|it| it.eq_ignore_ascii_case(b"url="))? + 4;
        let (head, url) = value.split_at(at);
        let quote = url.first().filter(|byte| matches!(byte, b'"' | b'\''));
        let (open, rest) = url.split_at(usize::from(quote.is_some()));
        let end = quote.and_then(|quote| rest.iter().position(|byte| byte == quote));
        let (url, close) = rest.split_at(end.unwrap_or(rest.len()));
        let url = self.reference(url, host)?;
        Some([head, open, &url, close].concat())
    }

    /// The path and domain of a cookie (RFC 6265 5.2.3, 5.2.4).
    fn set_cookie(&self, value: &[u8]) -> Option<Vec<u8>> {
        // Browsers refuse a cookie with this prefix and another path than `/`, or a domain (RFC
        // 6265bis 4.1.3.2).
        let prefix = value.trim_ascii_start().get(..HOST_PREFIX.len());
        if prefix.is_some_and(|start| start.eq_ignore_ascii_case(HOST_PREFIX)) {
            return None;
        }
        let mut changed = false;
        let rewrite = |part: &[u8]| {
            let Some(at) = part.iter().position(|byte| *byte == b'=') else { return part.to_vec() };
            let (name, value) = (part[..at].trim_ascii(), part[at + 1..].trim_ascii());
            let new = match name {
                name if name.eq_ignore_ascii_case(b"path") => self.cookie_path(value),
                name if name.eq_ignore_ascii_case(b"domain") => {
                    self.cookie_domain.as_deref().map(<[u8]>::to_vec)
                }
                _ => None,
            };
            match new {
                Some(new) if new != value => [&part[..=at], &new].concat(),
                _ => part.to_vec(),
            }
        };
        let parts = value.split(|byte| *byte == b';').enumerate();
        // The first part is the cookie itself.
        let parts: Vec<Vec<u8>> = parts
            .map(|(number, part)| {
                let new = if number == 0 { part.to_vec() } else { rewrite(part) };
                changed |= new != part;
                new
            })
            .collect();
        changed.then(|| parts.join(&b';'))
    }

    /// If the whole application is below a prefix, its cookies are for the prefix, with and without
    /// a slash.
    fn cookie_path(&self, path: &[u8]) -> Option<Vec<u8>> {
        let mut path = self.path(path)?;
        if path.len() > 1 && path.ends_with(b"/") {
            path.pop();
        }
        Some(path)
    }
}

/// A path that no browser interprets as a host: two leading slashes introduce one, a backslash
/// counts as a slash, and tabs are dropped (URL standard, "relative slash state").
fn without_host(path: Vec<u8>) -> Vec<u8> {
    let is_path = |byte: &u8| !matches!(byte, b'/' | b'\\' | b'\t');
    let begin = path.iter().position(is_path).unwrap_or(path.len());
    match path.starts_with(b"/") {
        true => [b"/", &path[begin..]].concat(),
        false => path,
    }
}

/// `http://` or `https://`, and what follows.
fn scheme_of(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let is = |scheme: &[u8]| {
        value.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    let bytes = [&b"http://"[..], b"https://"].into_iter().find(|scheme| is(scheme))?.len();
    Some(value.split_at(bytes))
}

/// The rest of `path` after `prefix`, if it is below it.
fn below<'a>(path: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(prefix)?;
    let is_below = rest.is_empty() || matches!(rest.first(), Some(b'/' | b'?' | b'#'));
    is_below.then_some(rest)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::{FieldSlots, Method, parse_response};

    fn rewrite(prefixes: &[(&str, &str)]) -> BackRewrite {
        let bytes = |text: &str| Box::from(text.as_bytes());
        BackRewrite {
            prefixes: prefixes
                .iter()
                .map(|(own, known)| PathPrefix { own: bytes(own), known: bytes(known) })
                .collect(),
            hosts: vec![bytes("app.internal:3000")],
            cookie_domain: Some(bytes("shop.example")),
        }
    }

    /// The rewritten line of a response.
    fn line(rewrite: &BackRewrite, line: &str) -> String {
        let head = format!("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n{line}\r\n\r\n");
        let mut slots = FieldSlots::new();
        let limits = &crate::limits::RESPONSE_HEAD;
        let parsed = parse_response(&mut slots, head.as_bytes(), Method::Get, limits).unwrap();
        let Some(new) = rewrite.apply(&parsed, b"shop.example") else { return line.to_owned() };
        let mut slots = FieldSlots::new();
        let again = parse_response(&mut slots, &new, Method::Get, limits).unwrap();
        assert_eq!((again.status, again.framing), (parsed.status, parsed.framing));
        let text = String::from_utf8(new).unwrap();
        text.lines().nth(2).unwrap().to_owned()
    }

    #[test]
    fn no_path_becomes_a_host() {
        let added = rewrite(&[("/v1", "")]);
        for (said, wanted) in [
            ("Location: /v1//evil.example", "Location: /evil.example"),
            (r"Location: /v1/\evil.example", "Location: /evil.example"),
            ("Location: /v1/\t/evil.example", "Location: /evil.example"),
            ("Refresh: 0; url=/v1//evil.example", "Refresh: 0; url=/evil.example"),
            ("Location: /v1/a//b", "Location: /a//b"),
        ] {
            assert_eq!(line(&added, said), wanted);
        }
    }

    #[test]
    fn places_of_the_application_become_those_of_clients() {
        let both = rewrite(&[("/v1", "/app")]);
        for (said, wanted) in [
            ("Location: /v1/x?a=/v1/y", "Location: /app/x?a=/v1/y"),
            ("Location: /v1", "Location: /app"),
            ("location: /v1?q", "location: /app?q"),
            ("Location: /v10/x", "Location: /v10/x"),
            ("Location: /other", "Location: /other"),
            ("Location: x", "Location: x"),
            ("Location: //v1/x", "Location: //v1/x"),
            ("Location: http://shop.example/v1/x", "Location: http://shop.example/app/x"),
            ("Location: HTTPS://SHOP.example/v1/", "Location: HTTPS://SHOP.example/app/"),
            ("Location: http://other.example/v1/x", "Location: http://other.example/v1/x"),
            // Clients could not reach it there.
            ("Location: http://app.internal:3000/v1/x", "Location: /app/x"),
            ("Location: http://app.internal:3000/other", "Location: /other"),
            ("Location: http://app.internal:3000", "Location: /"),
            // What follows is not a host.
            ("Location: http://app.internal:3000//evil.example/", "Location: /evil.example/"),
            (r"Location: http://app.internal:3000/\evil.example", "Location: /evil.example"),
            (
                "Set-Cookie: __Host-sid=1; Path=/v1; Secure",
                "Set-Cookie: __Host-sid=1; Path=/v1; Secure",
            ),
            ("Content-Location: /v1/x", "Content-Location: /app/x"),
            ("Refresh: 5; url=/v1/x", "Refresh: 5; url=/app/x"),
            (
                "Refresh: 5;URL='http://shop.example/v1/x'",
                "Refresh: 5;URL='http://shop.example/app/x'",
            ),
            ("Refresh: 5", "Refresh: 5"),
            ("Link: </v1/x>", "Link: </v1/x>"),
            ("Set-Cookie: a=1; Path=/v1/x; Secure", "Set-Cookie: a=1; Path=/app/x; Secure"),
            ("Set-Cookie: path=/v1; path=/", "Set-Cookie: path=/v1; path=/"),
            ("Set-Cookie: a=1;Domain=app.internal", "Set-Cookie: a=1;Domain=shop.example"),
            ("Set-Cookie: a=\"/v1\"", "Set-Cookie: a=\"/v1\""),
        ] {
            assert_eq!(line(&both, said), wanted);
        }
    }

    #[test]
    fn an_application_below_a_prefix_may_know_it_or_not() {
        let stripped = rewrite(&[("", "/app")]);
        for (said, wanted) in [
            ("Location: /login", "Location: /app/login"),
            ("Location: /", "Location: /app/"),
            ("Location: /?q", "Location: /app/?q"),
            ("Location: /app/login", "Location: /app/login"),
            ("Location: /apple", "Location: /app/apple"),
            ("Location: http://shop.example/login", "Location: http://shop.example/app/login"),
            ("Set-Cookie: a=1; Path=/", "Set-Cookie: a=1; Path=/app"),
            ("Set-Cookie: a=1; Path=/app", "Set-Cookie: a=1; Path=/app"),
            ("Set-Cookie: a=1", "Set-Cookie: a=1"),
        ] {
            assert_eq!(line(&stripped, said), wanted);
        }
        let added = rewrite(&[("/v1", "")]);
        for (said, wanted) in [
            ("Location: /v1/x", "Location: /x"),
            ("Location: /v1", "Location: /"),
            ("Location: /v1?q", "Location: /?q"),
            ("Location: /x", "Location: /x"),
            ("Set-Cookie: a=1; Path=/v1", "Set-Cookie: a=1; Path=/"),
        ] {
            assert_eq!(line(&added, said), wanted);
        }
        // `/app` is a prefix of `/app/v1`, so this is the application's own path.
        let nested = rewrite(&[("/app/v1", "/app")]);
        assert_eq!(line(&nested, "Location: /app/v1/x"), "Location: /app/x");
        assert!(BackRewrite::default().is_empty());
    }
}
