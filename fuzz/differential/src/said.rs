//! What an origin's reply contains, as parsed by RFC 9112 6.3: what a client may receive of it, however it is
//! mutated, and whatever other peers do with it. It shares no code with the codec under test.

use crate::case::{Answer, Case};
use crate::client::Response;
use crate::compare::Did;
use crate::http::{self, Body, Framing, Head, latin};

/// The parsed content of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    status: u16,
    /// The body; `None` if its end cannot be determined, so that a proxy must cut the response off.
    body: Option<Vec<u8>>,
}

/// What clients of Skep received that the origin did not send, as text: this is wrong even if another peer
/// fails in the same way.
pub(crate) fn unsaid(case: &Case, skep: &Did) -> Option<String> {
    let heard = &skep.heard.responses;
    for (at, response) in heard.iter().enumerate() {
        if skep.passed.get(at).is_some() && is_said(case, skep, at) {
            continue;
        }
        if !is_own(response) {
            let body = response.body.as_deref().map(latin);
            return Some(format!("response {at}: {:?}, body {body:?}", response.head.start));
        }
        if heard.len() > skep.passed.len() {
            // Skep's own response to a request that it did not forward: from here on numbers do not
            // correspond.
            return None;
        }
    }
    None
}

/// Whether the response with this number is what the origin sent, or the beginning of it.
pub(crate) fn is_said(case: &Case, did: &Did, at: usize) -> bool {
    let (Some(passed), Some(heard)) = (did.passed.get(at), did.heard.responses.get(at)) else {
        return false;
    };
    let said = read(&case.answer(at), passed.head.word(0));
    said.is_some_and(|said| {
        said.status == heard.status && (heard.body.is_none() || heard.body == said.body)
    })
}

/// Whether a proxy generated the response: an error other than those that origins send here.
fn is_own(response: &Response) -> bool {
    matches!(response.status, 400..=599) && !matches!(response.status, 403 | 404 | 416 | 500)
}

/// Parses an answer; `None` if it is not a valid reply, and must be refused.
fn read(answer: &Answer, method: &str) -> Option<Said> {
    let mut bytes = &answer.bytes[..];
    loop {
        let (head, len) = Head::read(bytes)?;
        let status = is_head(&bytes[..len]).then(|| status(&head.start)).flatten()?;
        bytes = &bytes[len..];
        match status {
            101 => return None,
            100..=199 => {}
            _ => return of_final(&head, status, bytes, answer.closes, method),
        }
    }
}

fn of_final(head: &Head, status: u16, rest: &[u8], closes: bool, method: &str) -> Option<Said> {
    let framing = match method == "HEAD" || matches!(status, 204 | 304) {
        true => Framing::Length(0),
        false => framing(head)?,
    };
    let body = match http::body(framing, rest, closes) {
        Body::Whole(body, _) => Some(body),
        Body::Part(_) | Body::Malformed => None,
    };
    Some(Said { status, body })
}

/// RFC 9112 6.3: a transfer coding overrides a length; several lengths must be equal. `None` if the message
/// must be refused.
fn framing(head: &Head) -> Option<Framing> {
    let codings: Vec<_> = head.all("transfer-encoding").collect();
    if let [coding] = codings[..] {
        let is_it = coding.eq_ignore_ascii_case(b"chunked") && !head.start.starts_with("HTTP/1.0");
        return is_it.then_some(Framing::Chunked);
    }
    if !codings.is_empty() {
        return None;
    }
    let lengths = head.all("content-length").flat_map(|line| line.split(|byte| *byte == b','));
    let mut told = None;
    for digits in lengths.map(<[u8]>::trim_ascii) {
        let is_plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        let length = std::str::from_utf8(digits).ok().filter(|_| is_plain)?.parse().ok()?;
        if told.is_some_and(|told| told != length) {
            return None;
        }
        told = Some(length);
    }
    Some(told.map_or(Framing::Close, Framing::Length))
}

/// The status by RFC 9112 4: `HTTP/1.1 SP 3DIGIT`, and a reason.
fn status(start: &str) -> Option<u16> {
    let rest = start.strip_prefix("HTTP/1.1 ").or_else(|| start.strip_prefix("HTTP/1.0 "))?;
    let word = rest.split(' ').next().filter(|word| word.len() == 3)?;
    let digits = word.bytes().all(|byte| byte.is_ascii_digit());
    word.parse().ok().filter(|status| digits && matches!(status, 100..=599))
}

/// Whether each line ends in CR LF, and those of fields are `name: value`.
fn is_head(bytes: &[u8]) -> bool {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let text = &bytes[..bytes.len() - 4];
    let mut lines = text.split(|byte| *byte == b'\n');
    let last = lines.clone().count() - 1;
    let ends = lines.clone().enumerate().all(|(at, line)| at == last || line.ends_with(b"\r"));
    lines.next();
    ends && lines.all(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return false };
        colon > 0
            && line[..colon].iter().all(is_token)
            && !line[colon..].iter().any(|byte| matches!(byte, b'\0' | b'\r'))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn of(bytes: &str, method: &str) -> Option<(u16, Option<String>)> {
        let answer = Answer { bytes: bytes.as_bytes().to_vec(), closes: false };
        read(&answer, method).map(|said| (said.status, said.body.as_deref().map(latin)))
    }

    #[test]
    fn a_reply_says_what_its_framing_says() {
        let chunks = "2\r\nab\r\n0\r\n\r\n";
        let whole = |body: &str| Some((200, Some(body.to_owned())));
        for (fields, rest, said) in [
            ("Content-Length: 2\r\n", "abc", whole("ab")),
            ("Content-Length: 2\r\nContent-Length: 2\r\n", "ab", whole("ab")),
            ("Content-Length: 2\r\nContent-Length: 1\r\n", "ab", None),
            ("Content-Length: +2\r\n", "ab", None),
            ("Content-Length: 3\r\n", "ab", Some((200, None))),
            ("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", chunks, whole("ab")),
            ("Transfer-Encoding: gzip\r\n", chunks, None),
            ("Transfer-Encoding : chunked\r\n", chunks, None),
            ("X: a\nY: b\r\n", "", None),
            ("", "ab", Some((200, None))),
        ] {
            let reply = format!("HTTP/1.1 200 OK\r\n{fields}\r\n{rest}");
            assert_eq!(of(&reply, "GET"), said, "{reply:?}");
        }
        let no_body = "HTTP/1.1 103 Hm\r\n\r\nHTTP/1.1 204 No\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(of(no_body, "GET"), Some((204, Some(String::new()))));
        let reply = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
        assert_eq!(of(reply, "HEAD"), whole(""));
        assert_eq!(of("HTTP/1.1 2000 OK\r\n\r\n", "GET"), None);
    }
}
