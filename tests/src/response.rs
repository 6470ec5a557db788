//! Responses as they came, parsed without leniency: what a client could read in
//! two ways is an error.

use crate::client::ClientError;

/// One whole response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// Names as sent, and values without the space around them.
    pub headers: Vec<(String, String)>,
    /// The body, chunks put together.
    pub body: Vec<u8>,
    /// Every byte of the response.
    pub raw: Vec<u8>,
}

/// How a response's body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(usize),
    Chunked,
    Close,
}

impl Response {
    /// The value of a field that may occur once; `None` without it.
    ///
    /// # Panics
    /// When it occurs more than once.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.header_all(name);
        let first = values.next();
        assert!(values.next().is_none(), "more than one {name}:\n{}", self.head_text());
        first
    }

    /// All values of a field.
    pub fn header_all(&self, name: &str) -> impl Iterator<Item = &str> {
        let same = move |(field, _): &&(String, String)| field.eq_ignore_ascii_case(name);
        self.headers.iter().filter(same).map(|(_, value)| value.as_str())
    }

    /// What the cache did, as far as the reply says it.
    #[track_caller]
    pub fn cache_status(&self) -> &str {
        self.header("cache-status").unwrap_or("none")
    }

    /// Whether the server said that it will close the connection.
    pub fn says_close(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    /// The body as text, bad UTF-8 replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Asserts the status, showing the whole head when it's another.
    #[track_caller]
    pub fn assert_status(&self, status: u16) -> &Self {
        assert_eq!(self.status, status, "status of:\n{}", self.head_text());
        self
    }

    /// Asserts the value of a field.
    #[track_caller]
    pub fn assert_header(&self, name: &str, value: &str) -> &Self {
        assert_eq!(self.header(name), Some(value), "{name} of:\n{}", self.head_text());
        self
    }

    /// The head as it came.
    pub fn head_text(&self) -> String {
        let end = find(&self.raw, b"\r\n\r\n").unwrap_or(self.raw.len());
        String::from_utf8_lossy(&self.raw[..end]).into_owned()
    }
}

/// Reads a head (with its empty line): a response without its body, and how the
/// body ends.
pub(crate) fn parse_head(head: &[u8], method: &str) -> Result<(Response, Framing), ClientError> {
    let text = std::str::from_utf8(head).map_err(|_| malformed("head beyond UTF-8", head))?;
    let text = text.strip_suffix("\r\n\r\n").ok_or_else(|| malformed("unended head", head))?;
    let mut lines = text.split("\r\n");
    let status = parse_status_line(lines.next().unwrap_or_default())
        .ok_or_else(|| malformed("status line", head))?;
    let headers: Option<Vec<_>> = lines.map(parse_field).collect();
    let headers = headers.ok_or_else(|| malformed("field", head))?;
    let response = Response { status, headers, body: Vec::new(), raw: head.to_vec() };
    let framing = framing(&response, method).ok_or_else(|| malformed("framing", head))?;
    Ok((response, framing))
}

/// A chunk's size line without its CRLF; extensions are allowed.
pub(crate) fn parse_chunk_size(line: &[u8]) -> Option<usize> {
    let line = std::str::from_utf8(line).ok()?;
    let digits = line.split(';').next()?;
    let only_hex = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    only_hex.then(|| usize::from_str_radix(digits, 16).ok())?
}

pub(crate) fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

pub(crate) fn malformed(what: &str, bytes: &[u8]) -> ClientError {
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(400)]).into_owned();
    ClientError::Malformed(format!("{what} in {shown:?}"))
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

    fn parse(head: &str) -> Result<(Response, Framing), ClientError> {
        parse_head(head.as_bytes(), "GET")
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
    fn doubtful_heads_are_errors() {
        let bad = [
            "HTTP/1.1 200\r\n\r\n",
            "HTTP/1.1 200 OK\n\n",
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
    }

    #[test]
    fn chunk_sizes() {
        assert_eq!(parse_chunk_size(b"1aF"), Some(0x1af));
        assert_eq!(parse_chunk_size(b"0;x=y"), Some(0));
        for bad in [&b""[..], b" 1", b"+1", b"0x1", b"1 "] {
            assert_eq!(parse_chunk_size(bad), None);
        }
    }
}
