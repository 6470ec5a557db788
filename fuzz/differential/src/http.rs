//! A parser of HTTP/1.1 for both ends of the rig. It does not judge validity: it parses the output of
//! proxies, which should be well-formed, and reports where it is not. It shares no code with the codec under
//! test.

/// A head: its first line, and its fields with names in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The first line.
    pub(crate) start: String,
    /// Names and values.
    pub(crate) fields: Vec<(String, Vec<u8>)>,
}

/// How the end of a body is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// After this many bytes.
    Length(usize),
    /// After the last chunk.
    Chunked,
    /// By the end of the connection.
    Close,
    /// It cannot be determined.
    Unclear,
}

impl Head {
    /// Parses the head at the start of `bytes`, and returns it with its length; `None` if it is incomplete.
    pub(crate) fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let len = bytes.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
        let text = &bytes[..len - 4];
        let mut lines =
            text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let start = latin(lines.next().unwrap_or_default());
        let field = |line: &[u8]| {
            let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
            let value = line.get(colon + 1..).unwrap_or_default().trim_ascii();
            (latin(&line[..colon]).to_ascii_lowercase(), value.to_vec())
        };
        Some((Self { start, fields: lines.map(field).collect() }, len))
    }

    /// The values of all lines of a field.
    pub(crate) fn all<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s [u8]> {
        self.fields
            .iter()
            .filter(move |(known, _)| known == name)
            .map(|(_, value)| value.as_slice())
    }

    /// The word with this number in the first line.
    pub(crate) fn word(&self, number: usize) -> &str {
        self.start.split(' ').nth(number).unwrap_or_default()
    }

    /// How the end of the body is determined; `default` applies if no field states it.
    pub(crate) fn framing(&self, default: Framing) -> Framing {
        let mut codings = self.all("transfer-encoding");
        let mut lengths = self.all("content-length");
        match (codings.next(), lengths.next()) {
            (None, None) => default,
            (Some(coding), None)
                if coding.eq_ignore_ascii_case(b"chunked") && codings.next().is_none() =>
            {
                Framing::Chunked
            }
            (None, Some(digits)) if lengths.next().is_none() => {
                let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
                let number = std::str::from_utf8(digits).ok().filter(|_| plain);
                number.and_then(|it| it.parse().ok()).map_or(Framing::Unclear, Framing::Length)
            }
            _ => Framing::Unclear,
        }
    }
}

/// The result of reading a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// The complete body, and the number of bytes that it occupied.
    Whole(Vec<u8>, usize),
    /// An incomplete body, as far as it was received.
    Part(Vec<u8>),
    /// It is not HTTP.
    Malformed,
}

/// Reads a body at the start of `bytes`. `is_over`: no more bytes will follow.
pub(crate) fn body(framing: Framing, bytes: &[u8], is_over: bool) -> Body {
    match framing {
        Framing::Length(len) => match bytes.get(..len) {
            Some(body) => Body::Whole(body.to_vec(), len),
            None => Body::Part(bytes.to_vec()),
        },
        Framing::Close if is_over => Body::Whole(bytes.to_vec(), bytes.len()),
        Framing::Close => Body::Part(bytes.to_vec()),
        Framing::Chunked => chunks(bytes),
        Framing::Unclear => Body::Malformed,
    }
}

fn chunks(bytes: &[u8]) -> Body {
    let mut body = Vec::new();
    let mut at = 0;
    let line = |at: usize| {
        let end = bytes.get(at..)?.windows(2).position(|end| end == b"\r\n")?;
        Some((&bytes[at..at + end], at + end + 2))
    };
    loop {
        let Some((size, next)) = line(at) else { return Body::Part(body) };
        let digits =
            size.split(|byte| matches!(byte, b';' | b' ' | b'\t')).next().unwrap_or_default();
        let digits =
            std::str::from_utf8(digits).ok().filter(|it| it.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(size) = digits.and_then(|it| usize::from_str_radix(it, 16).ok()) else {
            return Body::Malformed;
        };
        at = next;
        if size == 0 {
            break;
        }
        let Some(piece) = bytes.get(at..at.saturating_add(size)) else {
            body.extend(bytes.get(at..).unwrap_or_default());
            return Body::Part(body);
        };
        body.extend(piece);
        match bytes.get(at + size..at + size + 2) {
            Some(b"\r\n") => at += size + 2,
            Some(_) => return Body::Malformed,
            None => return Body::Part(body),
        }
    }
    loop {
        let Some((trailer, next)) = line(at) else { return Body::Part(body) };
        at = next;
        if trailer.is_empty() {
            return Body::Whole(body, at);
        }
    }
}

/// Converts each byte to one character.
pub(crate) fn latin(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn heads_and_bodies_are_read_to_the_byte() {
        let (head, len) = Head::read(b"GET / HTTP/1.1\r\nHost: a\r\nX:  y \r\n\r\nrest").unwrap();
        assert_eq!((head.word(1), len), ("/", 35));
        assert_eq!(head.all("x").collect::<Vec<_>>(), [b"y"]);
        let wire = b"3;a\r\nabc\r\n0\r\nT: 1\r\n\r\nrest";
        assert_eq!(body(Framing::Chunked, wire, false), Body::Whole(b"abc".to_vec(), 21));
        for end in 0..21 {
            assert!(matches!(body(Framing::Chunked, &wire[..end], false), Body::Part(_)), "{end}");
        }
        assert_eq!(body(Framing::Chunked, b"3\r\nabcX\r\n", false), Body::Malformed);
        assert_eq!(body(Framing::Length(2), b"abc", false), Body::Whole(b"ab".to_vec(), 2));
    }
}
