//! The URL of an origin: `http://host:port/base`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use skep_http::Host;

/// A validated URL of an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginUrl {
    text: Arc<str>,
    /// Host and port in the form of the field Host.
    authority: String,
    host: String,
    port: u16,
    /// Without a slash at its end; empty for the root.
    base: String,
    literal: Option<SocketAddr>,
}

/// Why a text is not a URL of an origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OriginUrlError {
    /// Encrypted origins are not supported.
    #[error(
        "origin `{0}`: https is not supported, bytes come by plain http only; use http:// on a \
         network that you trust, or put a proxy that speaks TLS to the origin on this machine"
    )]
    Https(String),
    /// It does not have the required form.
    #[error("origin `{0}`: expected http://HOST[:PORT][/BASE], found {1}")]
    Form(String, &'static str),
}

impl OriginUrl {
    /// Parses `http://HOST[:PORT][/BASE]`; a path is appended to the base.
    ///
    /// # Errors
    /// The text is invalid; with the reason.
    pub fn parse(text: &str) -> Result<Self, OriginUrlError> {
        let wrong = |found| OriginUrlError::Form(text.to_owned(), found);
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("no scheme"))?;
        if scheme.eq_ignore_ascii_case("https") {
            return Err(OriginUrlError::Https(text.to_owned()));
        }
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(wrong("another scheme"));
        }
        let slash = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, base) = rest.split_at(slash);
        if base.bytes().any(|byte| !byte.is_ascii_graphic() || b"?#\"<>".contains(&byte)) {
            return Err(wrong("a base that is no path, or has a query or a fragment"));
        }
        let parsed = Host::parse(authority.as_bytes()).map_err(|reject| wrong(reject.reason))?;
        let host = String::from_utf8_lossy(parsed.name).into_owned();
        let port = parsed.port.unwrap_or(80);
        if port == 0 {
            return Err(wrong("port 0"));
        }
        Ok(Self {
            text: text.into(),
            authority: authority.to_owned(),
            literal: literal(&host).map(|address| SocketAddr::new(address, port)),
            host,
            port,
            base: base.trim_end_matches('/').to_owned(),
        })
    }

    /// The text as it was written.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Host and port in the form of the field Host.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// Name to resolve.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Prefix of every path; has no slash at its end.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// The address, if the host is a literal one.
    pub(crate) fn literal(&self) -> Option<SocketAddr> {
        self.literal
    }
}

fn literal(host: &str) -> Option<IpAddr> {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host).parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let url = OriginUrl::parse("http://files.example:8080/a/b/").unwrap();
        assert_eq!((url.host(), url.port(), url.base()), ("files.example", 8080, "/a/b"));
        assert_eq!((url.authority(), url.literal()), ("files.example:8080", None));
        let url = OriginUrl::parse("HTTP://[::1]").unwrap();
        assert_eq!((url.base(), url.authority()), ("", "[::1]"));
        assert_eq!(url.literal(), Some("[::1]:80".parse().unwrap()));
        let url = OriginUrl::parse("http://10.0.0.1/").unwrap();
        assert_eq!(url.literal(), Some("10.0.0.1:80".parse().unwrap()));
    }

    #[test]
    fn what_is_no_origin_is_refused_with_a_reason() {
        let message = |text: &str| OriginUrl::parse(text).unwrap_err().to_string();
        assert!(message("https://a/").contains("https is not supported"));
        for (text, reason) in [
            ("a:80", "no scheme"),
            ("ftp://a", "another scheme"),
            ("http://a:0/", "port 0"),
            ("http://u@a/", "userinfo"),
            ("http:///a", "host-invalid"),
            ("http://a/b?c", "query"),
            ("http://a?c", "query"),
            ("http://a/b\r\nX: y", "no path"),
        ] {
            assert!(message(text).contains(reason), "{text}: {}", message(text));
        }
    }
}
