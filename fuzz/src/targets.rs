//! The targets. Each accepts any bytes; each `assert` is an invariant from the codec's documentation.

use skep_http::conditional::evaluate;
use skep_http::forward::{
    Claims, Forward, ForwardReply, HostPolicy, write_request, write_response,
};
use skep_http::negotiate::{AcceptEncoding, Encoding, EncodingSet, prefers_json};
use skep_http::path::{self, Path, Reading};
use skep_http::range::{RangeVerdict, ranges};
use skep_http::{
    BodyDecoder, BodyFraming, BodyLimits, FieldSlots, HeadLimits, HeadScanner, HttpDate, Known,
    Method, Reject, RequestHead, ResponseFraming, ResponseHead, Underscores, Validators, Version,
    encode, parse_request, parse_response,
};
use skep_units::stable_hash;

use crate::{caching, gateways, handoffs, machines, streams};

/// Accepts any bytes; panics if an invariant is violated.
pub type Target = fn(&[u8]);

/// Every target by name.
pub const ALL: &[(&str, Target)] = &[
    ("request_head", request_head),
    ("body", body),
    ("response_head", response_head),
    ("path", path),
    ("range_conditions", range_conditions),
    ("datagram", machines::datagram),
    ("message", machines::message),
    ("cache_handshake", streams::handshake),
    ("cache_frames", streams::frames),
    ("cache_message", streams::message),
    ("part_head", streams::part_head),
    ("ajp_reply", gateways::ajp_reply),
    ("caching", caching::caching),
    ("fastcgi_reply", gateways::fastcgi_reply),
    ("gateway_request", gateways::gateway_request),
    ("lccp", handoffs::lccp),
];

const HEAD_LIMITS: HeadLimits = HeadLimits {
    head_bytes_max: 4096,
    fields_max: 20,
    target_bytes_max: 512,
    underscores: Underscores::Drop,
};
const BODY_LIMITS: BodyLimits = BodyLimits {
    body_bytes_max: 4096,
    chunk_line_bytes_max: 64,
    chunk_ext_bytes_max: 256,
    trailer_bytes_max: 256,
    trailer_fields_max: 4,
};
/// Limits for forwarded heads: what a head within [`HEAD_LIMITS`] may grow to.
const NEXT_LIMITS: HeadLimits = HeadLimits {
    head_bytes_max: 16 * 1024,
    fields_max: 60,
    target_bytes_max: 512,
    underscores: Underscores::Refuse,
};
const DATE: &[u8; 29] = b"Sun, 06 Nov 1994 08:49:37 GMT";

/// A request, from its first byte: its end and verdict are the same however it is split; an accepted request
/// is safe to route and to forward.
pub fn request_head(data: &[u8]) {
    let mut slots = FieldSlots::new();
    let unscanned = parse_request(&mut slots, data, &HEAD_LIMITS).is_ok();
    let end = match scan_all_ways(HeadScanner::default(), data) {
        Ok(Some(end)) => end,
        verdict => {
            assert!(!unscanned, "parsed although the scanner says {verdict:?}");
            return;
        }
    };
    let mut slots = FieldSlots::new();
    let Ok(head) = parse_request(&mut slots, &data[..end], &HEAD_LIMITS) else { return };
    check_request(&head);
    for claims in [Claims::Replace, Claims::Extend] {
        check_forwarded(&head, claims);
    }
}

fn check_request(head: &RequestHead<'_, '_>) {
    assert!(head.path.starts_with(b"/") || head.path == b"*");
    assert!(head.target.len() <= HEAD_LIMITS.target_bytes_max);
    assert!(head.fields.iter().len() <= HEAD_LIMITS.fields_max);
    assert!(head.method.as_str() != "CONNECT");
    assert!(head.version == Version::Http10 || !head.host.is_empty());
    assert!(head.fields.all("host").count() <= 1);
    assert!(head.fields.known(Known::Host).is_none_or(|host| host == head.host));
    let (length, coding) =
        (head.fields.get("content-length"), head.fields.get("transfer-encoding"));
    match head.framing {
        BodyFraming::None => assert!(coding.is_none() && length.is_none_or(|l| l == b"0")),
        BodyFraming::Length(bytes) => {
            assert!(coding.is_none() && head.fields.all("content-length").count() == 1);
            assert_eq!(length, Some(bytes.to_string().as_bytes()));
        }
        BodyFraming::Chunked => {
            assert!(length.is_none() && head.version == Version::Http11);
            assert!(coding.is_some_and(|c| c.eq_ignore_ascii_case(b"chunked")));
        }
    }
    assert!(!head.expect_continue || head.framing != BodyFraming::None);
    for (name, value) in head.fields.iter() {
        assert!(!name.is_empty() && !name.contains(['_', ' ', '\r', '\n']));
        assert!(!value.iter().any(|b| matches!(b, 0 | b'\r' | b'\n' | 0x7f)));
        assert!(!value.starts_with(b" ") && !value.ends_with(b"\t"));
        if let Some(known) = Known::of(name.as_bytes()) {
            let first = head.fields.get(name);
            assert!(known.as_str().eq_ignore_ascii_case(name) && head.fields.known(known) == first);
            assert!(head.fields.known_all(known).eq(head.fields.all(name)));
        }
    }
}

/// A forwarded request is parsed by the next hop as the same request.
fn check_forwarded(head: &RequestHead<'_, '_>, claims: Claims) {
    let forward = Forward {
        client: [192, 0, 2, 1].into(),
        proto: "http",
        host: HostPolicy::Keep,
        claims,
        target: None,
        server_name: None,
        upgrade: true,
        without: &[],
        extra: b"",
    };
    let mut out = Vec::new();
    write_request(&mut out, head, &forward);
    let limits = HEAD_LIMITS.behind_a_hop();
    assert_eq!(HeadScanner::default().scan(&out, &limits), Ok(Some(out.len())));
    let mut slots = FieldSlots::new();
    let next = match parse_request(&mut slots, &out, &limits) {
        Ok(next) => next,
        Err(reject) => panic!("{reject}: {}", out.escape_ascii()),
    };
    assert_eq!((next.method, next.path, next.query), (head.method, head.path, head.query));
    assert_eq!(next.framing, head.framing);
    assert!(next.keep_alive && next.version == Version::Http11 && !next.expect_continue);
    assert!(next.upgrade.is_none() || next.upgrade == head.upgrade);
    assert!(next.fields.all("te").all(|codings| codings == b"trailers"));
    for field in ["trailer", "keep-alive", "proxy", "proxy-connection", "http2-settings"] {
        assert!(next.fields.get(field).is_none(), "{field} was passed on");
    }
    assert_eq!(
        (next.fields.all("x-forwarded-for").count(), next.fields.all("forwarded").count()),
        (1, 1)
    );
    assert!(
        claims == Claims::Extend || next.fields.known(Known::XForwardedFor) == Some(b"192.0.2.1")
    );
}

/// The verdict of a scanner, which must not depend on how the input is split.
fn scan_all_ways(scanner: HeadScanner, data: &[u8]) -> Result<Option<usize>, Reject> {
    let whole = scan(scanner, data, |_| data.len());
    assert_eq!(scan(scanner, data, |_| 1), whole, "byte by byte");
    assert_eq!(scan(scanner, data, pieces(data)), whole, "in pieces");
    if let Ok(Some(end)) = whole {
        assert!(data[..end].ends_with(b"\r\n\r\n") && end <= HEAD_LIMITS.head_bytes_max);
    }
    whole
}

fn scan(
    mut scanner: HeadScanner,
    data: &[u8],
    piece_at: impl Fn(usize) -> usize,
) -> Result<Option<usize>, Reject> {
    let mut arrived = 0;
    while arrived < data.len() {
        arrived = (arrived + piece_at(arrived)).min(data.len());
        if let Some(end) = scanner.scan(&data[..arrived], &HEAD_LIMITS)? {
            return Ok(Some(end));
        }
    }
    Ok(None)
}

/// Lengths of pieces, from 1 to 64, that depend on the input alone.
fn pieces(data: &[u8]) -> impl Fn(usize) -> usize {
    let key = stable_hash(data, 0);
    move |at| 1 + (stable_hash(&at.to_le_bytes(), key) % 64) as usize
}

/// A body in each framing: the same payload however it is split, within the limit, and the same when it is
/// encoded again.
pub fn body(data: &[u8]) {
    for framing in [
        ResponseFraming::Chunked,
        ResponseFraming::Length(1 + data.len() as u64 / 2),
        ResponseFraming::UntilClose,
        ResponseFraming::None,
    ] {
        let whole = decode(framing, data, |_| data.len());
        assert_eq!(decode(framing, data, |_| 1), whole, "byte by byte");
        assert_eq!(decode(framing, data, pieces(data)), whole, "in pieces");
        let Ok((payload, taken, done)) = whole else { continue };
        assert!(payload.len() as u64 <= BODY_LIMITS.body_bytes_max && payload.len() <= taken);
        assert!(done || taken == data.len(), "bytes are left, yet the body has not ended");
        check_encoded(&payload);
    }
}

type Decoded = Result<(Vec<u8>, usize, bool), Reject>;

fn decode(framing: ResponseFraming, data: &[u8], piece_at: impl Fn(usize) -> usize) -> Decoded {
    let mut decoder = BodyDecoder::new(framing, &BODY_LIMITS)?;
    let (mut payload, mut taken, mut arrived) = (Vec::new(), 0, 0);
    while arrived < data.len() && !decoder.is_done() {
        arrived = (arrived + piece_at(arrived)).min(data.len());
        while taken < arrived && !decoder.is_done() {
            let decoded = match decoder.decode(&data[taken..arrived]) {
                Ok(decoded) => decoded,
                Err(reject) => {
                    assert_eq!(decoder.decode(b"0\r\n\r\n"), Err(reject), "an error must stay");
                    return Err(reject);
                }
            };
            assert!(decoded.consumed > 0 && decoded.consumed <= arrived - taken);
            assert!(decoded.data.start <= decoded.data.end);
            assert!(decoded.data.end <= decoded.consumed);
            assert_eq!(decoded.done, decoder.is_done());
            payload.extend_from_slice(&data[taken..][decoded.data]);
            taken += decoded.consumed;
        }
    }
    Ok((payload, taken, decoder.is_done()))
}

fn check_encoded(payload: &[u8]) {
    let mut encoded = Vec::new();
    for piece in payload.chunks(100) {
        encode::write_chunk_head(&mut encoded, piece.len());
        encoded.extend_from_slice(piece);
        encoded.extend_from_slice(encode::CHUNK_END);
    }
    encoded.extend_from_slice(b"0\r\n\r\n");
    let again = decode(ResponseFraming::Chunked, &encoded, |_| encoded.len());
    assert_eq!(again, Ok((payload.to_vec(), encoded.len(), true)));
}

/// A response to a GET and to a HEAD (a first word other than `HTTP/…`, as in the seeds, is removed).
pub fn response_head(data: &[u8]) {
    let words = [&b"GET "[..], b"HEAD ", b"POST "];
    let data = words.iter().find_map(|word| data.strip_prefix(*word)).unwrap_or(data);
    let verdict = scan_all_ways(HeadScanner::response(), data);
    for method in [Method::Get, Method::Head] {
        let mut slots = FieldSlots::new();
        let parsed = parse_response(&mut slots, data, method, &HEAD_LIMITS);
        let Ok(Some(end)) = verdict else {
            assert!(parsed.is_err(), "parsed although the scanner says {verdict:?}");
            continue;
        };
        let mut slots = FieldSlots::new();
        match parse_response(&mut slots, &data[..end], method, &HEAD_LIMITS) {
            Ok(head) => check_response(&head, method),
            Err(reject) => assert_eq!(reject.status, 502),
        }
    }
}

fn check_response(head: &ResponseHead<'_, '_>, method: Method<'_>) {
    assert!((100..600).contains(&head.status));
    let no_body = method == Method::Head || head.status < 200 || matches!(head.status, 204 | 304);
    assert!(!no_body || head.framing == ResponseFraming::None);
    assert!(!head.keep_alive || head.framing != ResponseFraming::UntilClose);
    for version in [Version::Http10, Version::Http11] {
        let reply = ForwardReply {
            version,
            keep_alive: true,
            date: DATE,
            trailers: true,
            without: &[],
            extra: &[],
        };
        let mut out = Vec::new();
        let framing = write_response(&mut out, head, &reply);
        assert_eq!(HeadScanner::response().scan(&out, &NEXT_LIMITS), Ok(Some(out.len())));
        let mut slots = FieldSlots::new();
        let next = match parse_response(&mut slots, &out, method, &NEXT_LIMITS) {
            Ok(next) => next,
            Err(reject) => panic!("{reject}: {}", out.escape_ascii()),
        };
        assert_eq!(next.status, head.status);
        assert_eq!(next.keep_alive, framing != ResponseFraming::UntilClose);
        assert!(head.status < 200 || next.fields.all("date").count() == 1);
        // An empty body without a length is unambiguous only where no body is possible.
        let told = no_body || head.fields.known(Known::ContentLength).is_some();
        assert!(next.framing == framing || (framing == ResponseFraming::None && !told));
        let chunked = framing == ResponseFraming::Chunked;
        assert!(!chunked || version == Version::Http11);
        assert_eq!(head.framing == ResponseFraming::None, framing == ResponseFraming::None);
    }
}

/// A path: the parsed form contains nothing ambiguous.
pub fn path(data: &[u8]) {
    for reading in [Reading::Files, Reading::Origins] {
        if let Ok(read) = path::read(data, reading) {
            check_path(data, reading, &read);
        }
    }
    let [name, target] = [Reading::Files, Reading::Origins].map(|it| path::read(data, it));
    // A byte that is neither a separator nor part of a parameter has the same meaning for all parsers.
    let is_odd = data.windows(2).any(|pair| pair == b"//");
    if let (Ok(name), Ok(target), false) = (name, target, is_odd) {
        assert_eq!(name.into_place(), target.into_place());
    }
}

fn check_path(data: &[u8], reading: Reading, read: &Path<'_>) {
    let (target, key) = (read.target(), read.key());
    assert!(target.starts_with(b"/") && key.starts_with(b"/"));
    assert!(!target.iter().any(|b| *b < 0x20 || matches!(b, 0x7f | b'\\')));
    let segments: Vec<&[u8]> = key[1..].split(|b| *b == b'/').collect();
    let Some((last, inner)) = segments.split_last() else { return };
    assert!(segments.iter().all(|s| *s != b"." && *s != b".."), "a dot segment");
    assert!(!data.ends_with(b"/") || last.is_empty(), "the trailing slash got lost");
    assert!(target.len() <= data.len() && key.len() <= target.len());
    assert!(read.key_as_sent().is_none_or(|sent| sent == data && sent == key));
    assert_eq!(path::read(target, reading).as_ref(), Ok(read));
    match reading {
        Reading::Files => {
            assert!(inner.iter().all(|segment| !segment.is_empty()), "an empty segment inside");
            assert!(!key.iter().any(|b| *b < 0x20 || matches!(b, 0x7f | b'\\')));
        }
        Reading::Origins => {
            assert_eq!(key, target);
            // As parsed by a server that removes parameters before it resolves dots.
            let cut =
                |s: &&[u8]| s.split(|b| *b == b';').next().is_some_and(|s| s == b"." || s == b"..");
            assert!(!segments.iter().any(cut), "dots with parameters");
        }
    }
    let place = read.clone().into_place();
    assert_eq!(path::place(&place), place);
    assert!(!place.windows(2).any(|pair| pair == b"//"));
    let behind = read.behind(&place[..1]).map(<[u8]>::len);
    assert!(behind.is_some_and(|len| len < target.len()));
    assert!(skep_http::mime::for_path(key).contains('/'));
}

/// Field lines of a GET: which part of an object to send, and in which form.
pub fn range_conditions(data: &[u8]) {
    let _ = (prefers_json(Some(data)), skep_http::Host::parse(data));
    if let Some(date) = HttpDate::parse(data, 1_795_000_000) {
        assert_eq!(HttpDate::parse(&date.format(), 0), Some(date));
    }
    // The first byte determines the length: small lengths are the corner cases.
    let len_bytes = data.first().map_or(0, |byte| u64::from(*byte) * 5);
    let message = [b"GET / HTTP/1.1\r\nHost: a\r\n", data, b"\r\n\r\n"].concat();
    let Ok(Some(end)) = HeadScanner::default().scan(&message, &NEXT_LIMITS) else { return };
    let mut slots = FieldSlots::new();
    let Ok(head) = parse_request(&mut slots, &message[..end], &NEXT_LIMITS) else { return };
    let current = Validators { etag: "\"v1\"", last_modified: Some(784_111_777) };
    let _ = evaluate(&head, &current, 1_795_000_000);
    let made = 784_111_770 + len_bytes;
    for ranges_max in [0, 1, 5] {
        check_ranges(&ranges(&head, &current, made, len_bytes, ranges_max), len_bytes, ranges_max);
    }
    check_coding(&AcceptEncoding::parse(&head));
}

fn check_ranges(verdict: &RangeVerdict, len_bytes: u64, ranges_max: usize) {
    let RangeVerdict::Parts(parts) = verdict else { return };
    assert!(!parts.is_empty() && parts.len() <= ranges_max);
    assert!(parts.iter().all(|part| part.start < part.end && part.end <= len_bytes));
    let mut sorted = parts.to_vec();
    sorted.sort_by_key(|part| part.start);
    assert!(sorted.windows(2).all(|pair| pair[0].end < pair[1].start), "parts overlap or touch");
}

fn check_coding(accept: &AcceptEncoding) {
    for bits in 0..8 {
        let there = EncodingSet { br: bits & 1 != 0, zstd: bits & 2 != 0, gzip: bits & 4 != 0 };
        let chosen = accept.choose(there);
        assert!(chosen.is_none_or(|encoding| there.has(encoding)), "chose what is not there");
        // With fewer encodings available, it chooses the same one or the second best.
        if let Some(best) = accept.choose(EncodingSet { br: true, zstd: true, gzip: true }) {
            assert!(!there.has(best) || chosen == Some(best));
        }
    }
    assert!(Encoding::ALL.iter().all(|encoding| !encoding.as_str().is_empty()));
}
