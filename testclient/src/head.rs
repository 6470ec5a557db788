//! Heads of responses, parsed strictly: anything ambiguous is an error.

use std::fmt;

use crate::limits::{HEAD_BYTES_MAX, SHOWN_BYTES_MAX};
use crate::response::{Response, find};

/// How a response's body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// After so many bytes.
    Length(usize),
    /// After the last chunk.
    Chunked,
    /// With the connection.
    Close,
}

/// What came is no HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The part of the response.
    pub what: &'static str,
    /// The beginning of it.
    shown: String,
}

impl Malformed {
    pub(crate) fn new(what: &'static str, bytes: &[u8]) -> Self {
        let shown = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
        Self { what, shown: String::from_utf8_lossy(shown).into_owned() }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {:?}", self.what, self.shown)
    }
}

impl std::error::Error for Malformed {}

/// Reads the head at the beginning of `bytes`, of the response to `method`: a [`Response`] whose
/// `raw` is the head and whose body is still to come, and how that will end. `None`: not all of
/// the head has come.
pub fn parse_head(bytes: &[u8], method: &str) -> Result<Option<(Response, Framing)>, Malformed> {
    let Some(end) = find(bytes, b"\r\n\r\n") else {
        let is_endless = bytes.len() > HEAD_BYTES_MAX;
        return if is_endless { Err(Malformed::new("endless head", bytes)) } else { Ok(None) };
    };
    let head = &bytes[..end + 4];
    let malformed = |what| move || Malformed::new(what, head);
    let text = str::from_utf8(&head[..end]).map_err(|_| malformed("head beyond UTF-8")())?;
    let mut lines = text.split("\r\n");
    let status = parse_status_line(lines.next().unwrap_or_default());
    let status = status.ok_or_else(malformed("status line"))?;
    let headers = lines.map(parse_field).collect::<Option<_>>().ok_or_else(malformed("field"))?;
    let response = Response { status, headers, body: Vec::new(), raw: head.to_vec() };
    let framing = framing(&response, method).ok_or_else(malformed("framing"))?;
    Ok(Some((response, framing)))
}

fn parse_status_line(line: &str) -> Option<u16> {
    let rest = line.strip_prefix("HTTP/1.1 ").or_else(|| line.strip_prefix("HTTP/1.0 "))?;
    let (digits, reason) = rest.split_once(' ')?;
    let good = digits.len() == 3 && !reason.chars().any(char::is_control);
    digits.parse().ok().filter(|status| good && (100..600).contains(status))
}

fn parse_field(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once(':')?;
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let good = !name.is_empty() && name.bytes().all(token) && !value.chars().any(char::is_control);
    good.then(|| (name.to_owned(), value.trim_matches(' ').to_owned()))
}

/// RFC 9112 section 6.3, for responses. `None`: ambiguous.
fn framing(response: &Response, method: &str) -> Option<Framing> {
    let lengths: Vec<_> = response.header_all("content-length").collect();
    let codings: Vec<_> = response.header_all("transfer-encoding").collect();
    let no_body = method == "HEAD" || matches!(response.status, 100..=199 | 204 | 304);
    let framing = match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Framing::Close,
        ([length], []) if length.bytes().all(|b| b.is_ascii_digit()) => {
            Framing::Length(length.parse().ok()?)
        }
        ([], [coding]) if coding.eq_ignore_ascii_case("chunked") => Framing::Chunked,
        _ => return None,
    };
    Some(if no_body { Framing::Length(0) } else { framing })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(head: &str) -> Result<(Response, Framing), Malformed> {
        parse_head(head.as_bytes(), "GET").map(|read| read.expect("a whole head"))
    }

    #[test]
    fn heads_are_read() {
        let (response, framing) =
            parse("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX:\r\n\r\n").unwrap();
        assert_eq!((response.status, framing), (200, Framing::Length(3)));
        assert_eq!(response.header("content-length"), Some("3"));
        assert_eq!(response.header("x"), Some(""));
        assert_eq!(parse("HTTP/1.1 204 No Content\r\n\r\n").unwrap().1, Framing::Length(0));
        assert_eq!(parse("HTTP/1.0 200 OK\r\n\r\n").unwrap().1, Framing::Close);
    }

    #[test]
    fn a_head_is_what_stands_before_the_body_and_there_when_all_of_it_is() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        for end in 0..head.len() {
            assert_eq!(parse_head(&head[..end], "GET"), Ok(None));
        }
        let (response, _) = parse_head(&[head, &b"hello"[..]].concat(), "GET").unwrap().unwrap();
        assert_eq!(response.raw, head);
        let endless = vec![b'a'; HEAD_BYTES_MAX + 1];
        assert_eq!(parse_head(&endless, "GET").unwrap_err().what, "endless head");
        assert_eq!(parse_head(&endless[1..], "GET"), Ok(None));
    }

    #[test]
    fn doubtful_heads_are_errors() {
        let bad = [
            "hello\r\n\r\n",
            "HTTP/1.1 200\r\n\r\n",
            "HTTP/1.1 200 OK\n\n\r\n\r\n",
            "HTTP/1.1 2000 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA b: c\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: c\n\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        ];
        for head in bad {
            assert!(parse(head).is_err(), "{head:?}");
        }
        // Nothing but an empty line ends a head.
        assert_eq!(parse_head(b"HTTP/1.1 200 OK\n\n", "GET"), Ok(None));
    }
}
