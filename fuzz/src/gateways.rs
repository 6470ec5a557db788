//! The targets for replies of application servers (AJP13, FastCGI) and for requests to them, and their seeds.

use std::ops::Range;

use skep_ajp::{AjpEvent, AjpExchange, AjpSettings};
use skep_fastcgi::limits::{STDERR_BYTES_MAX, STDERR_LINE_BYTES_MAX};
use skep_fastcgi::{FcgiEvent, FcgiExchange, FcgiSettings, ScriptRule};
use skep_http::gateway::{GatewayHead, GatewayRequest};
use skep_http::path::{self, Reading};
use skep_http::{
    BodyFraming, FieldSlots, HeadLimits, HeadScanner, Method, ResponseFraming, Underscores,
    Version, parse_request, parse_response,
};
use skep_units::stable_hash;

#[path = "../../crates/core/ajp/tests/ajp/peer.rs"]
#[expect(dead_code, reason = "tests read bodies, too")]
mod ajp_peer;
#[path = "../../crates/core/fastcgi/tests/fastcgi/peer.rs"]
mod fcgi_peer;

/// Limits for replies, so low that they are reached.
const REPLY_LIMITS: HeadLimits = HeadLimits {
    head_bytes_max: 1024,
    fields_max: 12,
    target_bytes_max: 512,
    underscores: Underscores::Pass,
};
const REQUEST_LIMITS: HeadLimits = HeadLimits {
    head_bytes_max: 4096,
    fields_max: 20,
    target_bytes_max: 512,
    underscores: Underscores::Pass,
};
/// The length of the bodies of requests.
const BODY_BYTES: u64 = 50;

/// The content of a reply in either protocol, with the pieces of its body joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Said {
    head: Option<GatewayHead>,
    body: Vec<u8>,
    /// AJP: flushes and requests for body chunks; FastCGI: lines of STDERR.
    others: Vec<Vec<u8>>,
    is_ended: bool,
    is_reusable: bool,
    error: Option<String>,
}

impl Said {
    fn body(&mut self, input: &[u8], range: Range<usize>) {
        assert!(!range.is_empty() && self.head.is_some() && !self.is_ended);
        self.body.extend_from_slice(&input[range]);
    }

    fn head(&mut self, head: GatewayHead) {
        assert!(self.head.is_none() && self.body.is_empty() && !self.is_ended);
        self.head = Some(head);
    }

    /// Checks that the head is valid HTTP, and that the body has the stated length.
    fn check(&self, method: Method<'_>) {
        let Some(head) = &self.head else {
            return assert!(!self.is_ended, "an end without a head");
        };
        let mut slots = FieldSlots::new();
        let read = match parse_response(&mut slots, &head.bytes, method, &REPLY_LIMITS) {
            Ok(read) => read,
            Err(reject) => panic!("{reject}: {}", head.bytes.escape_ascii()),
        };
        assert_eq!((read.status, read.framing), (head.status, head.framing));
        assert!((200..600).contains(&read.status) && read.keep_alive && read.upgrade.is_none());
        assert_eq!(
            HeadScanner::response().scan(&head.bytes, &REPLY_LIMITS),
            Ok(Some(head.bytes.len()))
        );
        for field in ["connection", "keep-alive", "te", "trailer", "upgrade", "proxy-connection"] {
            assert!(read.fields.get(field).is_none(), "{field} was passed on");
        }
        let announced = match head.framing {
            ResponseFraming::None => 0,
            ResponseFraming::Length(bytes) => bytes,
            ResponseFraming::Chunked => self.body.len() as u64,
            ResponseFraming::UntilClose => panic!("these protocols have an end"),
        };
        let sent = self.body.len() as u64;
        assert!(sent <= announced && (!self.is_ended || sent == announced));
        assert!(!self.is_reusable || self.is_ended);
    }
}

/// A servlet engine's bytes: the same events however they are split, a valid HTTP head, and a body of the
/// stated length.
pub fn ajp_reply(data: &[u8]) {
    let request = request_of(data);
    let whole = hear_ajp(&request, data, |_| data.len());
    whole.check(request.method);
    assert_eq!(hear_ajp(&request, data, pieces(data)), whole, "in pieces");
}

/// The same for the bytes of a FastCGI application.
pub fn fastcgi_reply(data: &[u8]) {
    let request = request_of(data);
    let whole = hear_fcgi(&request, data, |_| data.len());
    whole.check(request.method);
    assert!(whole.others.iter().all(|line| line.len() <= STDERR_LINE_BYTES_MAX));
    assert!(whole.others.iter().map(Vec::len).sum::<usize>() <= STDERR_BYTES_MAX);
    assert_eq!(hear_fcgi(&request, data, pieces(data)), whole, "in pieces");
}

/// A client's request, as servers parse it that receive it by AJP and by FastCGI.
pub fn gateway_request(data: &[u8]) {
    let Ok(Some(end)) = HeadScanner::default().scan(data, &REQUEST_LIMITS) else { return };
    let mut slots = FieldSlots::new();
    let Ok(head) = parse_request(&mut slots, &data[..end], &REQUEST_LIMITS) else { return };
    let Ok(path) = path::read(head.path, Reading::Origins) else { return };
    let fields: Vec<(&str, &[u8])> = head.fields.iter().collect();
    let request = GatewayRequest {
        method: head.method,
        target: head.target.as_bytes(),
        path: path.target(),
        query: head.query,
        version: head.version,
        host: head.host,
        fields: &fields,
        body: head.framing,
        ..plain()
    };
    check_ajp(&request);
    for script in [
        ScriptRule::Extension { extension: b".php", index: b"index.php" },
        ScriptRule::Always(b"/index.php"),
        ScriptRule::Below { mount: b"/a" },
    ] {
        check_fcgi(&request, script);
    }
}

fn check_ajp(request: &GatewayRequest<'_>) {
    let mut out = Vec::new();
    let settings = AjpSettings { secret: Some(b"secret"), ..AjpSettings::default() };
    let Ok(exchange) = AjpExchange::start(&mut out, request, &settings) else {
        return assert!(out.is_empty());
    };
    assert!(out.len() <= settings.packet_bytes_max);
    let is_owed = matches!(request.body, BodyFraming::Length(_));
    assert_eq!((exchange.is_awaited(), exchange.wanted() > 0), (is_owed, is_owed));
    let (read, behind) = ajp_peer::request(&out).expect("a packet that servers read");
    assert!(behind.is_empty());
    assert_eq!(read.method, request.method.as_str());
    assert_eq!(
        (read.uri.as_slice(), read.attribute("query_string")),
        (request.path, request.query)
    );
    assert_eq!(read.attribute("secret"), Some(&b"secret"[..]));
    let lengths = read.field("content-length");
    let length = request.content_length().map(|it| it.to_string());
    assert!(lengths.iter().copied().eq(length.iter().map(|it| it.as_bytes())));
    for name in ["transfer-encoding", "connection", "proxy", "expect", "te", "upgrade"] {
        assert!(read.field(name).is_empty(), "{name} was sent");
    }
    assert!(read.field("host").len() <= 1);
}

fn check_fcgi(request: &GatewayRequest<'_>, script: ScriptRule<'_>) {
    let mut out = Vec::new();
    let settings = FcgiSettings { root: b"/srv", script, ..FcgiSettings::default() };
    let exchange = match FcgiExchange::start(&mut out, request, &settings) {
        Ok(exchange) => exchange,
        Err(error) => {
            assert!(out.is_empty() && matches!(error.status(), 400 | 404 | 411 | 431));
            return;
        }
    };
    let read = fcgi_peer::request(&out).expect("records that php-fpm reads");
    assert_eq!((read.is_whole, exchange.wanted() > 0), (!exchange.is_awaited(), !read.is_whole));
    let param = |name| read.param(name).unwrap_or_default();
    let (name, info) = (param("SCRIPT_NAME"), param("PATH_INFO"));
    assert_eq!(param("SCRIPT_FILENAME"), [b"/srv", name].concat());
    for path in [name, info] {
        assert!(path.is_empty() || path.starts_with(b"/"));
        assert!(!path.iter().any(u8::is_ascii_control));
        assert!(!path.split(|byte| *byte == b'/').any(|it| it == b"." || it == b".."));
    }
    assert!(read.param("HTTP_PROXY").is_none() && read.param("HTTP_CONTENT_LENGTH").is_none());
    let mut names: Vec<&String> = read.params.iter().map(|(name, _)| name).collect();
    names.sort();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "a parameter was sent twice");
    let is_variable = |name: &&&String| {
        name.bytes().all(|it| it.is_ascii_uppercase() || it.is_ascii_digit() || it == b'_')
    };
    assert_eq!(names.iter().filter(is_variable).count(), names.len());
    assert!(!names.iter().any(|name| name.starts_with("HTTP_REDIRECT_")));
}

/// The request that is answered; it depends on the bytes.
fn request_of(data: &[u8]) -> GatewayRequest<'static> {
    match stable_hash(data, 0) % 4 {
        0 => GatewayRequest { method: Method::Head, ..plain() },
        1 => {
            let body = BodyFraming::Length(BODY_BYTES);
            GatewayRequest { method: Method::Post, body, ..plain() }
        }
        _ => plain(),
    }
}

fn hear_ajp(request: &GatewayRequest<'_>, data: &[u8], piece_at: impl Fn(usize) -> usize) -> Said {
    let settings = AjpSettings { reply_head: REPLY_LIMITS, ..AjpSettings::default() };
    let mut exchange =
        AjpExchange::start(&mut Vec::new(), request, &settings).expect("it is small");
    let mut said = Said::default();
    let (mut taken, mut arrived, mut sent) = (0, 0, 0);
    if exchange.is_awaited() {
        let _ = exchange.body_head(1);
        sent += 1;
    }
    while arrived < data.len() {
        arrived = (arrived + piece_at(arrived)).min(data.len());
        loop {
            let input = &data[taken..arrived];
            let received = match exchange.receive(input) {
                Ok(received) => received,
                Err(error) => {
                    assert_eq!(exchange.receive(b""), Err(error), "an error must stay");
                    assert!(!exchange.is_reusable(0) && exchange.close() == Err(error));
                    said.error = Some(error.to_string());
                    return said;
                }
            };
            taken += received.consumed;
            assert!(!said.is_ended || received.event.is_none());
            match received.event {
                None => break assert_eq!(taken, arrived, "bytes are left without an event"),
                Some(AjpEvent::Head(head)) => said.head(head),
                Some(AjpEvent::Body(range)) => said.body(input, range),
                Some(AjpEvent::Flush) => said.others.push(Vec::new()),
                Some(AjpEvent::Wants(bytes)) => {
                    assert!(exchange.is_awaited() && bytes == exchange.wanted());
                    said.others.push(bytes.to_string().into_bytes());
                    let _ = match bytes {
                        0 => exchange.body_end(),
                        _ => exchange.body_head(bytes.min(10)),
                    };
                    sent += bytes.min(10) as u64;
                    assert!(!exchange.is_awaited() && exchange.wanted() == 0);
                }
                Some(AjpEvent::End) => said.is_ended = true,
            }
        }
    }
    assert!(sent <= BODY_BYTES);
    said.is_reusable = exchange.is_reusable(0);
    assert_eq!(exchange.close().is_ok(), said.is_ended);
    said
}

fn hear_fcgi(request: &GatewayRequest<'_>, data: &[u8], piece_at: impl Fn(usize) -> usize) -> Said {
    let settings =
        FcgiSettings { reply_head: REPLY_LIMITS, keep_conn: true, ..FcgiSettings::default() };
    let mut exchange =
        FcgiExchange::start(&mut Vec::new(), request, &settings).expect("it is small");
    let mut said = Said::default();
    let (mut taken, mut arrived) = (0, 0);
    while arrived < data.len() {
        arrived = (arrived + piece_at(arrived)).min(data.len());
        loop {
            let input = &data[taken..arrived];
            let received = match exchange.receive(input) {
                Ok(received) => received,
                Err(error) => {
                    assert_eq!(exchange.receive(b""), Err(error), "an error must stay");
                    assert!(!exchange.is_reusable(0) && exchange.close() == Err(error));
                    said.error = Some(error.to_string());
                    said.others.extend(exchange.stderr_rest());
                    return said;
                }
            };
            taken += received.consumed;
            assert!(!said.is_ended || received.event.is_none());
            match received.event {
                None => break assert_eq!(taken, arrived, "bytes are left without an event"),
                Some(FcgiEvent::Head(head)) => said.head(head),
                Some(FcgiEvent::Body(range)) => said.body(input, range),
                Some(FcgiEvent::Stderr(line)) => {
                    assert!(!line.is_empty() && !line.contains(&b'\n'));
                    said.others.push(line);
                }
                Some(FcgiEvent::End { .. }) => said.is_ended = true,
            }
        }
    }
    said.is_reusable = exchange.is_reusable(0);
    assert_eq!(exchange.close().is_ok(), said.is_ended);
    said
}

/// Lengths of pieces that depend only on the bytes; one byte each for some inputs.
fn pieces(data: &[u8]) -> impl Fn(usize) -> usize {
    let key = stable_hash(data, 1);
    let bytes_max = if key.is_multiple_of(4) { 1 } else { 64 };
    move |at| 1 + (stable_hash(&at.to_le_bytes(), key) % bytes_max) as usize
}

fn plain() -> GatewayRequest<'static> {
    GatewayRequest {
        method: Method::Get,
        target: b"/a",
        path: b"/a",
        query: None,
        version: Version::Http11,
        host: b"a",
        fields: &[],
        client: ([192, 0, 2, 1], 1).into(),
        local: ([192, 0, 2, 2], 80).into(),
        server_name: b"a",
        server_port: 80,
        is_tls: false,
        body: BodyFraming::None,
    }
}

/// The fields of the seeds.
const FIELDS: [&[(&str, &str)]; 4] = [
    &[],
    &[("Content-Type", "text/html"), ("Content-Length", "5")],
    &[("Content-Length", "12"), ("Set-Cookie", "a=b"), ("Set-Cookie", "c=d"), ("X", "y")],
    &[("Location", "/x"), ("Connection", "X, close"), ("Transfer-Encoding", "chunked")],
];

/// Replies of servlet engines.
pub fn ajp_replies() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for status in [200, 204, 302, 304, 500] {
        for fields in FIELDS {
            let head = ajp_peer::headers(status, fields);
            let chunks =
                [ajp_peer::chunk(b"hello"), ajp_peer::chunk(b""), ajp_peer::chunk(b" world!")];
            let asked = [ajp_peer::ask(8186), ajp_peer::ask(7)].concat();
            seeds.push([&head[..], &chunks.concat(), &ajp_peer::end(1)].concat());
            seeds.push([&head[..], &chunks[0], &ajp_peer::end(1)].concat());
            seeds.push([&asked, &head[..], &ajp_peer::end(0)].concat());
        }
    }
    seeds.push(ajp_peer::reply(&[9]));
    seeds
}

/// Replies of FastCGI applications.
pub fn fastcgi_replies() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (at, line_end) in ["\r\n", "\n", "\r\n", "\n"].into_iter().enumerate() {
        for fields in FIELDS {
            let lines: String =
                fields.iter().map(|(name, value)| format!("{name}: {value}{line_end}")).collect();
            let head = format!("Status: {}{line_end}{lines}{line_end}", [200, 404, 304, 599][at]);
            let hello = [head.as_bytes(), b"hello"].concat();
            let end = fcgi_peer::end(0, 0);
            let stderr = fcgi_peer::stderr(b"a line\nand another");
            let padded = fcgi_peer::reply(6, &hello, 5);
            let split: Vec<u8> = hello.chunks(9).flat_map(fcgi_peer::stdout).collect();
            let whole = fcgi_peer::stdout(&[head.as_bytes(), b"hello world!"].concat());
            seeds.push([&padded[..], &end].concat());
            seeds.push([&stderr[..], &split, &fcgi_peer::stdout(b""), &end].concat());
            seeds.push([&whole[..], &stderr, &end].concat());
            seeds.push([&whole[..], &fcgi_peer::end(7, at as u8)].concat());
        }
    }
    seeds
}
