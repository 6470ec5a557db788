//! Requests, chunked bodies and responses: the framing cases. Each is parsed as a whole and byte by
//! byte; both must give the same result.

use skep_http::{
    BodyDecoder, BodyFraming, BodyLimits, FieldSlots, HeadLimits, HeadScanner, Method, Reject,
    RequestHead, ResponseFraming, Version, parse_request, parse_response,
};

use super::table::{check, parse};

const REQUESTS: &str = include_str!("requests.txt");
const CHUNKED: &str = include_str!("chunked.txt");
const RESPONSES: &str = include_str!("responses.txt");
const CHUNKED_HEAD: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

/// The number of bytes that arrive at once.
const PIECES: [usize; 4] = [usize::MAX, 1, 2, 7];

#[test]
fn requests() {
    check("requests", REQUESTS, 2, |case| {
        same_for_all_pieces(|piece| request_verdict(&case.columns[1], piece))
    });
}

#[test]
fn chunked_bodies() {
    check("chunked bodies", CHUNKED, 2, |case| {
        same_for_all_pieces(|piece| chunked_verdict(&case.columns[1], piece))
    });
}

#[test]
fn chunked_bodies_behind_their_head() {
    for case in parse(CHUNKED, 2) {
        let message = [CHUNKED_HEAD, &case.columns[1]].concat();
        let verdict = request_verdict(&message, usize::MAX);
        let refused = case.columns[0].starts_with(b"4");
        assert_eq!(verdict == case.columns[0], refused, "{}", case.name);
        assert_eq!(verdict.starts_with(b"ok"), !refused, "{}", case.name);
    }
}

#[test]
fn responses() {
    check("responses", RESPONSES, 2, |case| {
        let space = case.columns[1].iter().position(|b| *b == b' ').unwrap();
        let (method, bytes) = case.columns[1].split_at(space);
        let method = Method::of(std::str::from_utf8(method).unwrap());
        same_for_all_pieces(|piece| response_verdict(method, &bytes[1..], piece))
    });
}

#[test]
fn framing_cases_are_many() {
    let framing = parse(REQUESTS, 2).len() + parse(CHUNKED, 2).len();
    println!("request and body framing: {framing} cases");
    assert!(framing >= 200);
}

fn same_for_all_pieces(verdict_of: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    let whole = verdict_of(PIECES[0]);
    for piece in &PIECES[1..] {
        let pieces = verdict_of(*piece);
        if pieces != whole {
            let text = format!("in pieces of {piece}: ").into_bytes();
            return [text, pieces, b", whole: ".to_vec(), whole].concat();
        }
    }
    whole
}

/// Passes growing prefixes of the bytes to a scanner.
fn scan(mut scanner: HeadScanner, bytes: &[u8], piece: usize) -> Result<Option<usize>, Reject> {
    let mut arrived = 0;
    while arrived < bytes.len() {
        arrived = arrived.saturating_add(piece).min(bytes.len());
        if let Some(end) = scanner.scan(&bytes[..arrived], &HeadLimits::default())? {
            return Ok(Some(end));
        }
    }
    Ok(None)
}

fn refusal(reject: Reject) -> Vec<u8> {
    reject.to_string().into_bytes()
}

fn request_verdict(bytes: &[u8], piece: usize) -> Vec<u8> {
    let end = match scan(HeadScanner::default(), bytes, piece) {
        Ok(Some(end)) => end,
        Ok(None) => return b"more".to_vec(),
        Err(reject) => return refusal(reject),
    };
    let mut slots = FieldSlots::new();
    match parse_request(&mut slots, &bytes[..end], &HeadLimits::default()) {
        Err(reject) => refusal(reject),
        Ok(head) => match body_of(head.framing.into(), &bytes[end..], piece) {
            Ok(body) => [request_summary(&head), body.summary()].concat(),
            Err(reject) => refusal(reject),
        },
    }
}

fn request_summary(head: &RequestHead<'_, '_>) -> Vec<u8> {
    let mut out = format!("ok {} ", head.method.as_str()).into_bytes();
    out.extend_from_slice(head.path);
    if let Some(query) = head.query {
        out.push(b'?');
        out.extend_from_slice(query);
    }
    out.push(b' ');
    out.extend_from_slice(if head.host.is_empty() { b"-" } else { head.host });
    let framing = match head.framing {
        BodyFraming::None => "none".to_owned(),
        BodyFraming::Length(bytes) => format!("length={bytes}"),
        BodyFraming::Chunked => "chunked".to_owned(),
    };
    let keep = if head.keep_alive { "keep" } else { "close" };
    let expect = if head.expect_continue { " continue" } else { "" };
    out.extend(format!(" {} {framing} {keep}{expect}", version(head.version)).into_bytes());
    if let Some(protocols) = head.upgrade {
        out.extend_from_slice(b" upgrade=");
        out.extend_from_slice(protocols);
    }
    out
}

fn version(version: Version) -> &'static str {
    match version {
        Version::Http10 => "1.0",
        Version::Http11 => "1.1",
    }
}

struct Body {
    payload: Vec<u8>,
    done: bool,
    rest: usize,
}

impl Body {
    fn summary(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.payload.is_empty() {
            out.extend_from_slice(b" body=");
            out.extend_from_slice(&self.payload);
        }
        if !self.done {
            out.extend_from_slice(b" truncated");
        }
        if self.rest > 0 {
            out.extend(format!(" rest={}", self.rest).into_bytes());
        }
        out
    }
}

/// Feeds a decoder; unconsumed bytes are passed again with the next piece.
fn body_of(framing: ResponseFraming, bytes: &[u8], piece: usize) -> Result<Body, Reject> {
    let mut decoder = BodyDecoder::new(framing, &BodyLimits::default())?;
    let mut payload = Vec::new();
    let (mut taken, mut arrived) = (0, 0);
    while !decoder.is_done() && arrived < bytes.len() {
        arrived = arrived.saturating_add(piece).min(bytes.len());
        while taken < arrived {
            let decoded = decoder.decode(&bytes[taken..arrived])?;
            assert!(decoded.data.end <= decoded.consumed, "payload outside of what was consumed");
            payload.extend_from_slice(&bytes[taken..][decoded.data]);
            taken += decoded.consumed;
            if decoded.done {
                break;
            }
            assert!(decoded.consumed > 0, "bytes are there, yet nothing is consumed");
        }
    }
    let done = decoder.finish().is_ok();
    Ok(Body { payload, done, rest: if done { bytes.len() - taken } else { 0 } })
}

fn chunked_verdict(bytes: &[u8], piece: usize) -> Vec<u8> {
    match body_of(ResponseFraming::Chunked, bytes, piece) {
        Err(reject) => refusal(reject),
        Ok(body) if !body.done => [b"more ", &*body.payload].concat(),
        Ok(body) if body.rest == 0 => [b"ok ", &*body.payload].concat(),
        Ok(body) => {
            let rest = format!(" rest={}", body.rest).into_bytes();
            [b"ok ", &*body.payload, &*rest].concat()
        }
    }
}

fn response_verdict(request_method: Method<'_>, bytes: &[u8], piece: usize) -> Vec<u8> {
    let end = match scan(HeadScanner::response(), bytes, piece) {
        Ok(Some(end)) => end,
        Ok(None) => return b"more".to_vec(),
        Err(reject) => return refusal(reject.by_upstream()),
    };
    let mut slots = FieldSlots::new();
    let parsed = parse_response(&mut slots, &bytes[..end], request_method, &HeadLimits::default());
    let head = match parsed {
        Ok(head) => head,
        Err(reject) => return refusal(reject),
    };
    let framing = match head.framing {
        ResponseFraming::None => "none".to_owned(),
        ResponseFraming::Length(bytes) => format!("length={bytes}"),
        ResponseFraming::Chunked => "chunked".to_owned(),
        ResponseFraming::UntilClose => "until-close".to_owned(),
    };
    let mut out = format!("ok {}", head.status);
    if !head.reason.is_empty() {
        out += &format!(" {}", head.reason);
    }
    let keep = if head.keep_alive { "keep" } else { "close" };
    out += &format!(" {} {framing} {keep}", version(head.version));
    if let Some(protocol) = head.upgrade {
        out += &format!(" upgrade={}", protocol.escape_ascii());
    }
    out.into_bytes()
}
