//! Checks of the syntax of one string for each [`Form`].

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::kind::Form;
use crate::limits::{NAME_BYTES_MAX, ROUTE_PATH_BYTES_MAX, STRING_BYTES_MAX, WILDCARDS_MAX};

impl Form {
    /// Returns the string in normalized form (host names in lower case), or a hint why it is
    /// refused, if there is one.
    pub(crate) fn accept(self, text: &str) -> Result<String, Option<String>> {
        if text.is_empty() {
            return Err(None);
        }
        if text.len() > STRING_BYTES_MAX {
            return Err(Some(format!("at most {STRING_BYTES_MAX} bytes")));
        }
        match self {
            Self::Name => name(text)?,
            Self::Path | Self::AccessLog => no_control(text)?,
            Self::FileName => file_name(text)?,
            Self::UrlPath => url_path(text)?,
            Self::UrlPattern => url_path(text.strip_suffix('*').unwrap_or(text))?,
            Self::RoutePattern => route_pattern(text)?,
            Self::UrlTarget => url_target(text)?,
            Self::Authority => return authority(text),
            Self::HostPattern => return host_pattern(text),
            Self::FieldValue => field_value(text)?,
            Self::FieldPattern => field_pattern(text)?,
            Self::Prose => prose(text)?,
            Self::Network => network(text)?,
            Self::OriginUrl => origin_url(text)?,
            Self::Method => method(text)?,
            Self::FieldName => field_name(text)?,
            Self::NamePattern => name_pattern(text)?,
            Self::ContentCoding => content_coding(text)?,
            Self::MediaType => media_type(text)?,
        }
        Ok(text.to_owned())
    }

    /// The expected syntax, for messages and the reference.
    pub(crate) fn expected(self) -> &'static str {
        match self {
            Self::Name => "a name of letters, digits, `.`, `_` and `-`",
            Self::Path => "a path",
            Self::FileName => "a file name",
            Self::UrlPath => "a URL path such as \"/a/b.html\"",
            Self::UrlPattern => "a URL path such as \"/a.html\" or \"/a/*\"",
            Self::RoutePattern => "a URL path such as \"/a.html\", \"/a/*\" or \"*.php\"",
            Self::UrlTarget => "a URL or URL path such as \"/b.html\" or \"https://example.org/*\"",
            Self::Authority => "a host and port such as \"www1.example.org:8080\"",
            Self::HostPattern => "a host name such as \"example.org\" or \"*.example.org\"",
            Self::FieldValue => "the value of a header field",
            Self::FieldPattern => {
                "the value of a header field, the beginning of one and `*`, or `*`"
            }
            Self::Prose => "a text",
            Self::AccessLog => "\"off\", \"-\" or a path",
            Self::Method => "a method such as \"POST\"",
            Self::FieldName => "the name of a header field",
            Self::NamePattern => "a name such as \"lang\" or \"utm_*\"",
            Self::ContentCoding => "\"zstd\", \"br\" or \"gzip\"",
            Self::MediaType => "a media type such as \"text/css\" or \"text/*\"",
            Self::OriginUrl => "an origin such as \"http://10.0.0.9:8080/base\"",
            Self::Network => "a network such as \"192.0.2.0/24\" or \"2001:db8::/32\"",
        }
    }
}

type FormResult = Result<(), Option<String>>;

/// Succeeds if `holds`; otherwise returns the hint `why`.
fn require(holds: bool, why: &str) -> FormResult {
    if holds { Ok(()) } else { Err(Some(why.to_owned())) }
}

fn name(text: &str) -> FormResult {
    require(text.len() <= NAME_BYTES_MAX, &format!("at most {NAME_BYTES_MAX} characters"))?;
    let in_alphabet = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    require(text.bytes().all(in_alphabet), "only letters, digits, `.`, `_` and `-`")?;
    let first_is_plain = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    require(first_is_plain, "it must begin with a letter or a digit")
}

/// A name of a cookie or a query parameter.
fn name_pattern(text: &str) -> FormResult {
    let name = text.strip_suffix('*').unwrap_or(text);
    let in_alphabet = |b: u8| b.is_ascii_graphic() && !b"=;,&?#*\"".contains(&b);
    require(name.bytes().all(in_alphabet), "without `=`, `&`, `;`, `,`; `*` can only be its end")
}

fn content_coding(text: &str) -> FormResult {
    if matches!(text, "zstd" | "br" | "gzip") { Ok(()) } else { Err(None) }
}

/// A media type (RFC 9110 8.3.1) without parameters.
fn media_type(text: &str) -> FormResult {
    let in_alphabet =
        |b: u8| b.is_ascii_digit() || b.is_ascii_lowercase() || b"!#$&-^_.+*".contains(&b);
    let is_token = |part: &str| !part.is_empty() && part.bytes().all(in_alphabet);
    let parts = text.split_once('/');
    let is_type = parts.is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype));
    require(is_type, "two names in small letters with one `/` between, without parameters")?;
    let wildcards = text.matches('*').count();
    require(wildcards <= WILDCARDS_MAX, &format!("at most {WILDCARDS_MAX} `*`"))
}

fn no_control(text: &str) -> FormResult {
    require(!text.chars().any(char::is_control), "no control characters")
}

fn prose(text: &str) -> FormResult {
    let is_line = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    require(text.chars().all(is_line), "no control characters but line ends and tabs")
}

fn file_name(text: &str) -> FormResult {
    no_control(text)?;
    require(!text.contains('/') && text != "." && text != "..", "without a folder")
}

/// A path in the form used for comparison with requests: no query, no `..`.
pub(crate) fn url_path(text: &str) -> FormResult {
    require(text.starts_with('/'), "it must begin with `/`")?;
    require(!text.contains('*'), "`*` can only be its end")?;
    path_bytes(text)
}

fn route_pattern(text: &str) -> FormResult {
    require(text.starts_with(['/', '*']), "it must begin with `/` or `*`")?;
    require(!text.contains("**"), "one `*` stands for any number of characters")?;
    let wildcards = text.matches('*').count();
    require(wildcards <= WILDCARDS_MAX, &format!("at most {WILDCARDS_MAX} `*`"))?;
    let len = text.len();
    require(len <= ROUTE_PATH_BYTES_MAX, &format!("at most {ROUTE_PATH_BYTES_MAX} bytes"))?;
    path_bytes(text)?;
    require(!text.contains("//"), "with single slashes: requests are compared so")?;
    plain_spelling(text)
}

/// Requires that exactly the necessary characters are escaped: requests are compared in this
/// spelling.
fn plain_spelling(text: &str) -> FormResult {
    let hint = "only what can't stand in a path is written as `%` and two digits, such as `%20`";
    let may_be_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte);
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = match (byte, tail) {
            (b'%', [high, low, tail @ ..]) => {
                let digit = |digit: u8| {
                    let value = char::from(digit).to_digit(16);
                    value.filter(|_| !digit.is_ascii_lowercase())
                };
                let byte = digit(*high).zip(digit(*low)).map(|(high, low)| (high * 16 + low) as u8);
                require(byte.is_some_and(|byte| !may_be_plain(byte)), hint)?;
                tail
            }
            (b'%', _) => return Err(Some(hint.to_owned())),
            (b'/', _) => tail,
            (byte, _) => {
                require(may_be_plain(*byte), hint)?;
                tail
            }
        };
    }
    Ok(())
}

fn path_bytes(text: &str) -> FormResult {
    url_bytes(text)?;
    require(!text.contains(['?', '#']), "without `?` and `#`")?;
    require(!text.split('/').any(|part| part == "." || part == ".."), "without `.` and `..`")
}

fn url_target(text: &str) -> FormResult {
    let absolute = text.starts_with("http://") || text.starts_with("https://");
    require(absolute || text.starts_with('/'), "it must begin with `/` or `https://`")?;
    url_bytes(text)?;
    let body = text.strip_suffix('*').unwrap_or(text);
    require(!body.contains('*'), "`*` can only be its end")
}

fn url_bytes(text: &str) -> FormResult {
    let hint = "other characters are written as `%` and two hex digits";
    let plain = |b: u8| b.is_ascii_graphic() && !matches!(b, b'"' | b'<' | b'>' | b'\\');
    require(text.bytes().all(plain), hint)
}

fn authority(text: &str) -> Result<String, Option<String>> {
    if text.parse::<SocketAddr>().is_ok() {
        return Ok(text.to_owned());
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') && !text.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    if let Some(port) = port {
        let number = port.parse::<u16>().is_ok_and(|port| port != 0);
        require(number, "the port is a number from 1 to 65535")?;
    }
    let host = host_name(host)?;
    Ok(port.map_or_else(|| host.clone(), |port| format!("{host}:{port}")))
}

fn host_pattern(text: &str) -> Result<String, Option<String>> {
    match text.strip_prefix("*.") {
        _ if text == "*" => Ok(text.to_owned()),
        Some(below) => Ok(format!("*.{}", host_name(below)?)),
        None => host_name(text),
    }
}

/// A host name (RFC 1123 section 2.1, with `_`) or IP address, in lower case.
fn host_name(text: &str) -> Result<String, Option<String>> {
    let in_brackets = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some(address) = in_brackets {
        let address: Ipv6Addr = address.parse().map_err(|_| None)?;
        return Ok(format!("[{address}]"));
    }
    require(text.is_ascii(), "names beyond ASCII are written in their `xn--` form")?;
    require(!text.contains(':'), "without a port; IPv6 addresses in `[` and `]`")?;
    require(!text.contains('*'), "`*` can only be its first label")?;
    let in_alphabet = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    let label_fits =
        |label: &str| !label.is_empty() && label.len() <= 63 && label.bytes().all(in_alphabet);
    let fits = text.len() <= 253 && text.split('.').all(label_fits);
    require(fits, "labels of letters, digits and `-`, with single dots between them")?;
    Ok(text.to_ascii_lowercase())
}

/// An IP address, or one with the number of its significant bits (RFC 4632).
fn network(text: &str) -> FormResult {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| None)?;
    let bits_max = if address.is_ipv4() { 32 } else { 128 };
    let fits = bits.is_none_or(|bits| bits.parse::<u8>().is_ok_and(|bits| bits <= bits_max));
    require(fits, &format!("after `/` comes a number from 0 to {bits_max}"))
}

/// Methods are case-sensitive (RFC 9110 9.1); all registered ones are in capitals.
fn method(text: &str) -> FormResult {
    let in_alphabet = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b"-_".contains(&b);
    require(text.len() <= 32 && text.bytes().all(in_alphabet), "in capital letters")?;
    require(!matches!(text, "CONNECT" | "TRACE"), "it never passes")
}

/// `http://HOST[:PORT][/BASE]`.
fn origin_url(text: &str) -> FormResult {
    let scheme = |name: &str| text.get(..name.len()).is_some_and(|s| s.eq_ignore_ascii_case(name));
    require(
        !scheme("https://"),
        "https is not supported: use http:// on a network that you trust, or put a proxy that \
         speaks TLS to the origin on this machine",
    )?;
    require(scheme("http://"), "it must begin with `http://`")?;
    let rest = &text["http://".len()..];
    let (host, base) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    require(!host.contains('@'), "without user and password")?;
    require(!text.contains(['?', '#']), "without `?` and `#`")?;
    authority(host)?;
    if base.is_empty() { Ok(()) } else { url_path(base) }
}

/// A field value (RFC 9110 section 5.5) without obs-text.
fn field_value(text: &str) -> FormResult {
    let plain = |b: u8| b.is_ascii_graphic() || matches!(b, b' ' | b'\t');
    require(text.bytes().all(plain), "only visible ASCII and spaces")?;
    require(text.trim() == text, "without spaces at its ends")
}

fn field_pattern(text: &str) -> FormResult {
    let literal = text.strip_suffix('*').unwrap_or(text);
    require(!literal.contains('*'), "`*` can only be its end")?;
    field_value(if literal.is_empty() { text } else { literal.trim_end() })
}

/// The name of any field (RFC 9110 section 5.6.2), or a hint.
pub(crate) fn any_field_name(text: &str) -> FormResult {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let fits = !text.is_empty() && text.len() <= STRING_BYTES_MAX && text.bytes().all(token);
    require(fits, "names of header fields are letters, digits and `-`")
}

/// A field name that a site may add (RFC 9110 section 5.6.2), or a hint. Fields that frame a
/// message are reserved for the server.
pub(crate) fn field_name(text: &str) -> FormResult {
    const OURS: &[&str] = &[
        "connection",
        "content-length",
        "date",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    any_field_name(text)?;
    let ours = OURS.iter().any(|name| name.eq_ignore_ascii_case(text));
    require(!ours, "the server sets this field itself")
}

/// The name of a CGI parameter (RFC 3875 4.1), or a hint. Parameters determined by the request
/// cannot be configured.
pub(crate) fn param_name(text: &str) -> FormResult {
    const OURS: &[&str] = &["CONTENT_LENGTH", "CONTENT_TYPE", "REQUEST_METHOD", "QUERY_STRING"];
    let in_alphabet = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let fits = !text.is_empty() && text.len() <= STRING_BYTES_MAX && text.bytes().all(in_alphabet);
    require(fits, "names of parameters are letters, digits and `_`")?;
    require(!OURS.contains(&text), "the request decides it")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each form, with accepted and refused strings.
    const CASES: &[(Form, &[&str], &[&str])] = &[
        (Form::Name, &["a", "node-1", "N_2.x"], &["", "a b", "-a", ".", "é", "a/b"]),
        (Form::Path, &["/srv", "a b", "é"], &["", "a\0b", "a\nb"]),
        (Form::FileName, &["index.html"], &["", "a/b", ".", ".."]),
        (Form::UrlPath, &["/", "/a/b%20c"], &["", "a", "/a b", "/*", "/a/../b", "/?q", "/é"]),
        (Form::UrlPattern, &["/a", "/a/*"], &["*", "/*/a", "a/*"]),
        (Form::UrlTarget, &["/", "https://a.b/?q#f", "/x/*"], &["a", "/*/*", "/a\r\nb: c"]),
        (
            Form::Authority,
            &["a.b", "a.b:80", "1.2.3.4:80", "[::1]:80", "[::1]"],
            &["", "a:0", "a:b", ":80", "a:99999", "::1", "a b", "a/b", "[x]"],
        ),
        (
            Form::HostPattern,
            &["example.org", "*.example.org", "*", "127.0.0.1", "[::1]"],
            &["", "a..b", "*.", "a.*", "**", "a:80", "é.org", "::1", "a b"],
        ),
        (Form::FieldValue, &["no-store", "a b"], &["", " a", "a\r\nb", "é"]),
        (
            Form::OriginUrl,
            &["http://a", "HTTP://a.b:80/", "http://[::1]:8080/a/b", "http://10.0.0.9/x"],
            &["a:80", "https://a", "ftp://a", "http://", "http:///a", "http://a:0", "http://u@a"],
        ),
        (Form::OriginUrl, &[], &["http://a/b?c", "http://a#b", "http://a/b c", "http://a/../b"]),
        (Form::NamePattern, &["utm_*", "a.b", "*"], &["", "a=b", "*a", "a b", "a;b"]),
        (Form::Method, &["GET", "M-SEARCH"], &["", "get", "TRACE", "CONNECT", "A B"]),
        (Form::FieldName, &["X-A"], &["", "a b", "Content-Length", "é"]),
        (Form::AccessLog, &["off", "-", "/var/log/a"], &["", "a\0"]),
    ];

    #[test]
    fn forms_accept_what_fits_and_refuse_the_rest() {
        for (form, good, bad) in CASES {
            for text in *good {
                assert!(form.accept(text).is_ok(), "{form:?} {text:?}");
            }
            for text in *bad {
                assert!(form.accept(text).is_err(), "{form:?} {text:?}");
            }
            let long = format!("/{}", "a".repeat(STRING_BYTES_MAX));
            assert!(form.accept(&long).is_err(), "{form:?} too long");
        }
    }

    #[test]
    fn host_names_are_kept_in_lower_case() {
        assert_eq!(Form::HostPattern.accept("*.Example.ORG"), Ok("*.example.org".into()));
        assert_eq!(Form::Authority.accept("WWW.example.org:80"), Ok("www.example.org:80".into()));
    }

    #[test]
    fn fields_that_frame_messages_are_not_for_sites() {
        assert!(field_name("X-Frame-Options").is_ok());
        for name in ["", "a b", "a:b", "Content-Length", "transfer-encoding", "é"] {
            assert!(field_name(name).is_err(), "{name}");
        }
    }
}
