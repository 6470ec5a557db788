//! URLs that can be measured: parsed once, and valid from then on.

use std::fmt;

use hyper::Uri;

use crate::limits::{URL_BYTES_MAX, URLS_MAX};

/// An absolute `http` or `https` URL without a user and a fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeUrl {
    /// The text as given, under which samples are stored.
    text: String,
    is_tls: bool,
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
    /// The `Host` field: with the port if one was given.
    authority: String,
    /// Path and query.
    path: String,
}

/// A text that is not a [`ProbeUrl`], or a list without URLs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeUrlError {
    /// Not a URL that can be measured.
    #[error(
        "{url:?} is no URL to probe: expected http://HOST[:PORT]/PATH or https://..., found {found}"
    )]
    Bad {
        /// The text given.
        url: String,
        /// What is wrong with it.
        found: String,
    },
    /// The same, in a list.
    #[error("line {line}: {error}")]
    InList {
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        error: Box<ProbeUrlError>,
    },
    /// The list contains only comments and empty lines.
    #[error("expected one URL a line, found none: write http://HOST/PATH into it")]
    NoneInList,
    /// There are more URLs than can be measured.
    #[error("expected at most {URLS_MAX} URLs, found {found}: split them over several runs")]
    TooMany {
        /// How many there are.
        found: usize,
    },
}

impl ProbeUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// The text is not absolute, or has another scheme, a user, or no host.
    pub fn parse(text: &str) -> Result<Self, ProbeUrlError> {
        let bad = |found: String| ProbeUrlError::Bad { url: shortened(text), found };
        if text.len() > URL_BYTES_MAX {
            return Err(bad(format!("{} bytes, more than {URL_BYTES_MAX}", text.len())));
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(bad(format!("no scheme: write http://{}", shortened(text).escape_debug())));
        };
        let is_tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(bad(format!("the scheme {scheme:?}"))),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let cut = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(cut);
        if authority.contains('@') {
            return Err(bad("a user, which is not sent".to_owned()));
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        let uri: Uri = format!("{scheme}://{authority}{slash}{path}")
            .parse()
            .map_err(|error: hyper::http::uri::InvalidUri| bad(error.to_string()))?;
        Self::of_uri(text, is_tls, &uri).map_err(bad)
    }

    fn of_uri(text: &str, is_tls: bool, uri: &Uri) -> Result<Self, String> {
        let authority = uri.authority().ok_or("no host")?;
        let host = authority.host();
        let port = match (authority.port(), authority.as_str().strip_prefix(host)) {
            (Some(port), _) => port.as_u16(),
            (None, Some("")) => {
                if is_tls {
                    443
                } else {
                    80
                }
            }
            (None, other) => return Err(format!("the port {:?}", other.unwrap_or_default())),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || port == 0 {
            return Err(if port == 0 { "port 0" } else { "no host" }.to_owned());
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self {
            text: text.to_owned(),
            is_tls,
            host: host.to_owned(),
            port,
            authority: authority.as_str().to_owned(),
            path: path.to_owned(),
        })
    }

    /// The URLs of a run: `given`, then those of a list, one per line. Empty lines are ignored, as is
    /// text after a `#` at the beginning of a line or after a space.
    ///
    /// # Errors
    /// A line is not a URL, or there are no URLs, or too many.
    pub fn gather(given: Vec<Self>, list: &str) -> Result<Vec<Self>, ProbeUrlError> {
        let mut urls = given;
        // A byte order mark, which some editors write at the beginning of a file.
        let list = list.strip_prefix('\u{feff}').unwrap_or(list);
        for (line, text) in (1..).zip(list.lines()) {
            let url = without_comment(text).trim();
            if !url.is_empty() {
                let in_list = |error| ProbeUrlError::InList { line, error: Box::new(error) };
                urls.push(Self::parse(url).map_err(in_list)?);
            }
        }
        match urls.len() {
            0 => Err(ProbeUrlError::NoneInList),
            found if found > URLS_MAX => Err(ProbeUrlError::TooMany { found }),
            _ => Ok(urls),
        }
    }

    /// The target of a `Location` relative to this URL (RFC 3986, 5.2).
    ///
    /// # Errors
    /// The target cannot be measured.
    pub fn join(&self, location: &str) -> Result<Self, ProbeUrlError> {
        let scheme = if self.is_tls { "https" } else { "http" };
        let here = self.path.split('?').next().unwrap_or_default();
        let has_scheme = location.split(['/', '?', '#']).next().is_some_and(|it| it.contains(':'));
        let path = match location {
            absolute if has_scheme => return Self::parse(absolute),
            authority if authority.starts_with("//") => {
                return Self::parse(&format!("{scheme}:{authority}"));
            }
            path if path.starts_with('/') => without_dots(path),
            query if query.starts_with('?') => format!("{here}{query}"),
            fragment if fragment.is_empty() || fragment.starts_with('#') => self.path.clone(),
            relative => {
                let folder = here.rfind('/').map_or("/", |at| &here[..=at]);
                without_dots(&format!("{folder}{relative}"))
            }
        };
        Self::parse(&format!("{scheme}://{}{path}", self.authority))
    }

    /// The text as given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether its scheme is `https`.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Name or address, without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; by default that of the scheme.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Host and port in the form of a `Host` field.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Path and query.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for ProbeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The path of `reference` without `.` and `..` (RFC 3986, 5.2.4), and its query.
fn without_dots(reference: &str) -> String {
    let (path, query) = match reference.find('?') {
        Some(at) => reference.split_at(at),
        None => (reference.split('#').next().unwrap_or_default(), ""),
    };
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            other => kept.push(other),
        }
    }
    format!("/{}{query}", kept.join("/"))
}

/// Removes a comment; a `#` within a word is part of a URL.
fn without_comment(line: &str) -> &str {
    let begins =
        |(at, _): &(usize, &str)| line[..*at].chars().next_back().is_none_or(char::is_whitespace);
    line.match_indices('#').find(begins).map_or(line, |(at, _)| &line[..at])
}

/// The beginning of `text`, enough to identify it.
fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(80).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn parts(text: &str) -> (bool, String, u16, String, String) {
        let url = ProbeUrl::parse(text).unwrap();
        (url.is_tls, url.host, url.port, url.authority, url.path)
    }

    #[test]
    fn urls_are_taken_apart() {
        for (text, is_tls, host, port, authority, path) in [
            ("http://a", false, "a", 80, "a", "/"),
            ("HTTP://A/b?c=d#e", false, "A", 80, "A", "/b?c=d"),
            ("https://a.b:8443/x/", true, "a.b", 8443, "a.b:8443", "/x/"),
            ("https://a?q", true, "a", 443, "a", "/?q"),
            ("http://[::1]:80/", false, "::1", 80, "[::1]:80", "/"),
            ("http://[::1]", false, "::1", 80, "[::1]", "/"),
        ] {
            let expected = (is_tls, host.into(), port, authority.into(), path.into());
            assert_eq!(parts(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_url_is_refused_with_what_was_found() {
        for (text, found) in [
            ("localhost:8080/x", "no scheme: write http://localhost:8080/x"),
            ("/x", "no scheme"),
            ("a\u{202e}\x1b[31m", "write http://a\\u{202e}\\u{1b}[31m"),
            ("ftp://a/", "the scheme \"ftp\""),
            ("http://", "invalid"),
            ("http:///x", "invalid"),
            ("http://u:p@a/", "a user"),
            ("http://a:0/", "port 0"),
            ("http://a:99999/", "the port \":99999\""),
            ("http://a:b/", "the port \":b\""),
            ("http://a b/", "invalid"),
            ("http://a/\r\nX: y", "invalid"),
            ("http://a/ b", "invalid"),
        ] {
            let error = ProbeUrl::parse(text).unwrap_err().to_string();
            assert!(error.contains(found) && error.contains("expected http://"), "{text}: {error}");
        }
        let long = format!("http://a/{}", "x".repeat(URL_BYTES_MAX));
        assert!(ProbeUrl::parse(&long).unwrap_err().to_string().len() < 300);
    }

    #[test]
    fn lists_have_comments_and_name_the_line_that_is_wrong() {
        let gathered = |given: &str, list: &str| {
            let given = given.split_whitespace().map(|url| ProbeUrl::parse(url).unwrap());
            ProbeUrl::gather(given.collect(), list)
        };
        let list = "\u{feff}# sizes\n\n http://a/1 \r\nhttp://a/2#x\t# two\n";
        for (given, list, expected) in [
            ("", list, "http://a/1 http://a/2#x"),
            ("http://b/", list, "http://b/ http://a/1 http://a/2#x"),
            ("http://b/", "# none\n", "http://b/"),
            ("http://b/", "", "http://b/"),
        ] {
            let urls = gathered(given, list).unwrap();
            let texts: Vec<_> = urls.iter().map(ProbeUrl::as_str).collect();
            assert_eq!(texts.join(" "), expected, "{given} {list:?}");
        }
        let error = gathered("", "http://a/\ngopher://b/\n").unwrap_err().to_string();
        assert!(error.starts_with("line 2: ") && error.contains("gopher"), "{error}");
        assert_eq!(gathered("", "# nothing\n"), Err(ProbeUrlError::NoneInList));
        let many = "http://a/\n".repeat(URLS_MAX);
        assert!(gathered("", &many).is_ok());
        let found = URLS_MAX + 1;
        assert_eq!(gathered("http://b/", &many), Err(ProbeUrlError::TooMany { found }));
    }

    /// Rows of RFC 3986, 5.4, and other forms that servers send.
    #[test]
    fn locations_are_resolved() {
        let base = ProbeUrl::parse("http://a:81/b/c/d;p?q").unwrap();
        for (location, target) in [
            ("http://n:8/x", "http://n:8/x"),
            ("https://n/x", "https://n/x"),
            ("//n/x", "http://n/x"),
            ("/x?y", "http://a:81/x?y"),
            ("?y", "http://a:81/b/c/d;p?y"),
            ("#s", "http://a:81/b/c/d;p?q"),
            ("", "http://a:81/b/c/d;p?q"),
            ("g", "http://a:81/b/c/g"),
            ("./g/", "http://a:81/b/c/g/"),
            ("..", "http://a:81/b/"),
            ("../../../g", "http://a:81/g"),
            ("g?y/../x", "http://a:81/b/c/g?y/../x"),
            ("g;x=1/../y", "http://a:81/b/c/y"),
        ] {
            assert_eq!(base.join(location).unwrap().as_str(), target, "{location}");
        }
        assert!(base.join("javascript:alert(1)").is_err());
        assert!(base.join("ftp://a/").is_err());
    }
}
