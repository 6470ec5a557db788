//! Replies: byte by byte, and every protocol violation with its error.

use skep_ajp::{AjpError, AjpEvent, AjpExchange, AjpSettings};
use skep_http::gateway::GatewayRequest;
use skep_http::{BodyFraming, Method, Reject};

use crate::peer;
use crate::requests::get;

pub(crate) fn exchange(request: &GatewayRequest<'_>) -> AjpExchange {
    AjpExchange::start(&mut Vec::new(), request, &AjpSettings::default()).unwrap()
}

/// The events of a reply, with the pieces of its body joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Head(String),
    Body(Vec<u8>),
    Flush,
    Wants(usize),
    End,
}

/// Receives `bytes` in pieces that end at `ends`, without answering requests for data.
pub(crate) fn hear(
    exchange: &mut AjpExchange,
    bytes: &[u8],
    ends: &[usize],
) -> (Vec<Said>, Option<AjpError>) {
    let mut said = Vec::new();
    let mut start = 0;
    for end in ends {
        loop {
            let received = match exchange.receive(&bytes[start..*end]) {
                Ok(received) => received,
                Err(error) => {
                    assert_eq!(exchange.receive(b"AB").unwrap_err(), error, "an error must stay");
                    return (said, Some(error));
                }
            };
            let input = &bytes[start..*end];
            start += received.consumed;
            match received.event {
                None => {
                    assert_eq!(start, *end, "bytes are left without an event");
                    break;
                }
                Some(AjpEvent::Head(head)) => {
                    said.push(Said::Head(String::from_utf8_lossy(&head.bytes).into_owned()));
                }
                Some(AjpEvent::Body(range)) => {
                    assert!(!range.is_empty());
                    match said.last_mut() {
                        Some(Said::Body(body)) => body.extend(&input[range]),
                        _ => said.push(Said::Body(input[range].to_vec())),
                    }
                }
                Some(AjpEvent::Flush) => said.push(Said::Flush),
                Some(AjpEvent::Wants(bytes)) => said.push(Said::Wants(bytes)),
                Some(AjpEvent::End) => said.push(Said::End),
            }
        }
    }
    (said, None)
}

fn error_of(request: &GatewayRequest<'_>, bytes: &[u8]) -> AjpError {
    let (_, error) = hear(&mut exchange(request), bytes, &[bytes.len()]);
    error.unwrap_or_else(|| panic!("taken: {}", bytes.escape_ascii()))
}

#[test]
fn a_reply_is_read_byte_by_byte_as_specified() {
    let bytes: &[&[u8]] = &[
        b"AB\x00\x1d\x04\x00\xc8\x00\x03200\x00\x00\x02",
        b"\xa0\x01\x00\x01a\0",
        b"\x00\x01X\0\x00\x03y z\0",
        b"AB\x00\x04\x03\x00\x00\x00",
        b"AB\x00\x07\x03\x00\x03one\x00",
        // Without the byte after the data.
        b"AB\x00\x06\x03\x00\x03two",
        b"AB\x00\x02\x05\x01",
    ];
    let mut bytes = bytes.concat();
    bytes[3] = (bytes.windows(2).skip(4).position(|it| it == b"AB").unwrap()) as u8;
    let mut exchange = exchange(&get());
    let (said, error) = hear(&mut exchange, &bytes, &[bytes.len()]);
    let head = "HTTP/1.1 200 OK\r\nContent-Type: a\r\nX: y z\r\nTransfer-Encoding: chunked\r\n\r\n";
    let expected =
        [Said::Head(head.to_owned()), Said::Flush, Said::Body(b"onetwo".to_vec()), Said::End];
    assert_eq!((said.as_slice(), error), (&expected[..], None));
    assert!(exchange.is_reusable(0) && !exchange.is_reusable(1));
    assert_eq!(exchange.close(), Ok(()));
    assert_eq!(exchange.receive(b"A"), Err(AjpError::BehindEnd));
}

#[test]
fn a_connection_is_reused_only_when_both_sides_are_in_step() {
    let reply = |reuse| [peer::headers(200, &[]), peer::end(reuse)].concat();
    let reusable = |request: &GatewayRequest<'_>, before: Vec<u8>, reuse| {
        let mut exchange = exchange(request);
        let bytes = [before, reply(reuse)].concat();
        assert_eq!(hear(&mut exchange, &bytes, &[bytes.len()]).1, None);
        exchange.is_reusable(0)
    };
    let post = GatewayRequest { method: Method::Post, body: BodyFraming::Length(9), ..get() };
    let chunked = GatewayRequest { method: Method::Post, body: BodyFraming::Chunked, ..get() };
    assert!(reusable(&get(), vec![], 1));
    assert!(!reusable(&get(), vec![], 0));
    assert!(!reusable(&get(), vec![], 2));
    assert!(!reusable(&post, vec![], 1), "the first packet was not sent");
    assert!(reusable(&chunked, vec![], 1), "nobody asked");
    assert!(!reusable(&chunked, peer::ask(10), 1), "a question was not answered");
    // Including the packet that the server waits for.
    let mut exchange = exchange(&post);
    assert_eq!((exchange.wanted(), exchange.body_head(4)), (9, [0x12, 0x34, 0, 6, 0, 4]));
    let bytes = reply(1);
    hear(&mut exchange, &bytes, &[bytes.len()]);
    assert!(exchange.is_reusable(0), "the rest of the body was not wanted");
}

#[test]
fn questions_for_data_are_answered_once_each() {
    let body = BodyFraming::Length(9);
    let mut exchange = exchange(&GatewayRequest { method: Method::Post, body, ..get() });
    let _ = exchange.body_head(4);
    assert_eq!((exchange.wanted(), exchange.is_awaited()), (0, false));
    let ask = peer::ask(8186);
    assert_eq!(hear(&mut exchange, &ask, &[3, 7]).0, [Said::Wants(5)]);
    let _ = exchange.body_head(5);
    assert_eq!(hear(&mut exchange, &ask, &[7]).0, [Said::Wants(0)]);
    assert!(exchange.is_awaited());
    assert_eq!(exchange.body_end(), [0x12, 0x34, 0, 2, 0, 0]);
    assert_eq!(hear(&mut exchange, &ask, &[7]).1, Some(AjpError::AskedBehindEnd));
}

#[test]
fn replies_without_a_body_have_none_whatever_is_sent() {
    let chunk = peer::chunk(b"not for you");
    for (method, status) in [(Method::Head, 200), (Method::Get, 204), (Method::Get, 304)] {
        let bytes = [peer::headers(status, &[]), chunk.clone(), peer::end(1)].concat();
        let mut exchange = exchange(&GatewayRequest { method, ..get() });
        let (said, error) = hear(&mut exchange, &bytes, &[bytes.len()]);
        assert!(matches!(said[..], [Said::Head(_), Said::End]), "{said:?}");
        assert!(error.is_none() && exchange.is_reusable(0));
    }
}

#[test]
fn bodies_are_as_long_as_announced() {
    let head = peer::headers(200, &[("Content-Length", "5")]);
    let whole = [head.clone(), peer::chunk(b"abc"), peer::chunk(b"de"), peer::end(1)].concat();
    let (said, error) = hear(&mut exchange(&get()), &whole, &[whole.len()]);
    assert_eq!((&said[1..], error), (&[Said::Body(b"abcde".to_vec()), Said::End][..], None));
    let short = [head.clone(), peer::chunk(b"abc"), peer::end(1)].concat();
    assert_eq!(error_of(&get(), &short), AjpError::BodyShort { missing_bytes: 2 });
    let long = [head, peer::chunk(b"abcdef"), peer::end(1)].concat();
    let (said, error) = hear(&mut exchange(&get()), &long, &[long.len()]);
    assert_eq!(
        (&said[1..], error),
        (&[Said::Body(b"abcde".to_vec())][..], Some(AjpError::BodyLong))
    );
}

#[test]
fn a_packet_out_of_turn_is_refused() {
    let head = peer::headers(200, &[]);
    let unexpected = |bytes: &[u8]| match error_of(&get(), bytes) {
        AjpError::Unexpected { found, .. } => found,
        other => panic!("{other}"),
    };
    assert_eq!(unexpected(&peer::end(1)), "END_RESPONSE");
    assert_eq!(unexpected(&peer::chunk(b"a")), "SEND_BODY_CHUNK");
    assert_eq!(unexpected(&[head.clone(), head.clone()].concat()), "a second SEND_HEADERS");
    assert_eq!(unexpected(&peer::reply(&[9])), "CPONG");
    // A flush before the head has no effect (httpd sends it).
    let flush = [peer::chunk(b""), head.clone(), peer::end(1)].concat();
    let (said, error) = hear(&mut exchange(&get()), &flush, &[flush.len()]);
    assert!(matches!(said[..], [Said::Head(_), Said::End]) && error.is_none());
    // CVE-2022-1319: a second reply on the same connection.
    let twice = [head.clone(), peer::end(1), head, peer::end(1)].concat();
    assert_eq!(error_of(&get(), &twice), AjpError::BehindEnd);
    assert_eq!(error_of(&get(), &peer::ask(0)), AjpError::AskedForNothing);
    assert_eq!(error_of(&get(), &[peer::ask(9), peer::ask(9)].concat()), AjpError::AskedTwice);
    let post = GatewayRequest { method: Method::Post, body: BodyFraming::Length(9), ..get() };
    assert_eq!(error_of(&post, &peer::ask(9)), AjpError::AskedTwice);
    assert_eq!(exchange(&get()).close(), Err(AjpError::Closed));
}

#[test]
fn lengths_that_lie_are_refused() {
    let get = get();
    let head = peer::headers(200, &[]);
    assert_eq!(error_of(&get, b"HTTP"), AjpError::Magic(b'H', b'T'));
    assert_eq!(error_of(&get, &[0x12, 0x34, 0, 1]), AjpError::Magic(0x12, 0x34));
    for (payload, bytes) in [(8189_u16, 8193), (0xffff, 65539)] {
        let packet = [b"AB", &payload.to_be_bytes()[..]].concat();
        let expected = AjpError::PacketLong { bytes, bytes_max: 8192 };
        assert_eq!(error_of(&get, &packet), expected);
    }
    let length = |bytes: &[u8]| match error_of(&get, bytes) {
        AjpError::PacketLength { expected, found, .. } => (expected, found),
        other => panic!("{other}"),
    };
    assert_eq!(length(b"AB\0\0"), (1, 0));
    assert_eq!(length(&peer::reply(&[6, 0])), (3, 2));
    assert_eq!(length(&peer::reply(&[6, 0, 9, 0])), (3, 4));
    assert_eq!(length(&[head.clone(), peer::reply(&[5])].concat()), (2, 1));
    assert_eq!(length(&[head.clone(), peer::reply(&[5, 1, 1])].concat()), (2, 3));
    for kind in [0, 1, 2, 7, 8, 10, 255] {
        assert_eq!(error_of(&get, &peer::reply(&[kind, 0])), AjpError::Type(kind));
    }
    // CVE-2026-34059 and similar cases.
    for (payload, chunk_bytes) in [
        (&[3, 0, 1][..], 1),
        (&[3, 0, 3, 1, 2], 3),
        (&[3, 0, 1, 1, 0, 0], 1),
        (&[3, 0xff, 0xff, 0], 0xffff),
        (&[3, 0, 0, 0, 0], 0),
    ] {
        let expected = AjpError::ChunkLength { packet_bytes: payload.len(), chunk_bytes };
        let bytes = [head.clone(), peer::reply(payload)].concat();
        assert_eq!(error_of(&get, &bytes), expected);
    }
    // A chunk without room for its own length is never parsed as one.
    let bytes = [head, peer::reply(&[3]), peer::reply(&[3])].concat();
    assert!(matches!(error_of(&get, &bytes), AjpError::ChunkLength { .. }));
}

#[test]
fn heads_that_lie_are_refused() {
    let error = |payload: &[&[u8]]| error_of(&get(), &peer::reply(&payload.concat()));
    let start: &[u8] = b"\x04\x00\xc8\x00\x02OK\x00";
    assert_eq!(error(&[b"\x04"]), AjpError::HeadCut("a status"));
    assert_eq!(error(&[b"\x04\x00"]), AjpError::HeadCut("a status"));
    assert_eq!(error(&[b"\x04\x00\xc8\xff\xfe"]), AjpError::HeadCut("a reason phrase"));
    assert_eq!(error(&[start, b"\x00"]), AjpError::HeadCut("the number of fields"));
    assert_eq!(error(&[start, b"\xff\xff"]), AjpError::HeadCut("a field's name"));
    assert_eq!(error(&[start, b"\x00\x01\xff\xff"]), AjpError::HeadCut("a field's name"));
    assert_eq!(error(&[start, b"\x00\x01\x00\x01X"]), AjpError::HeadCut("a field's name"));
    // Tomcat truncates a head that is too large for it before a value.
    assert_eq!(error(&[start, b"\x00\x01\xa0\x01"]), AjpError::HeadCut("a field's value"));
    assert_eq!(error(&[start, b"\x00\x01\xa0\x01\xff\xff"]), AjpError::HeadCut("a field's value"));
    assert_eq!(error(&[start, b"\x00\x01\xa0\x01\x00\x01x"]), AjpError::HeadCut("a field's value"));
    // CVE-2026-34032: no NUL.
    assert_eq!(error(&[start, b"\x00\x01\xa0\x01\x00\x01xy"]), AjpError::StringEnd(b'y'));
    assert_eq!(error(&[start, b"\x00\x00rest"]), AjpError::HeadTail(4));
    for code in [0, 0x0c, 0xff] {
        let field = [0, 1, 0xa0, code, 0, 0, 0];
        assert_eq!(error(&[start, &field]), AjpError::NameCode(code));
    }
}

#[test]
fn heads_that_no_http_server_could_send_are_refused() {
    let refused =
        |status, fields: &[(&str, &str)]| match error_of(&get(), &peer::headers(status, fields)) {
            AjpError::Head(reject) => reject,
            other => panic!("{other}"),
        };
    let upstream = Reject::by_upstream;
    assert_eq!(refused(200, &[("X", "a\r\nSet-Cookie: b=c")]), upstream(Reject::FIELD_VALUE));
    assert_eq!(refused(200, &[("X", "a\0b")]), upstream(Reject::FIELD_VALUE));
    assert_eq!(refused(200, &[("X y", "a")]), upstream(Reject::FIELD_NAME));
    assert_eq!(refused(200, &[("", "a")]), upstream(Reject::FIELD_NAME_EMPTY));
    assert_eq!(refused(103, &[]), upstream(Reject::STATUS_CODE));
    assert_eq!(refused(65535, &[]), upstream(Reject::STATUS_CODE));
    let lengths = [("Content-Length", "5"), ("Content-Length", "6")];
    assert_eq!(refused(200, &lengths), upstream(Reject::LENGTH_REPEATED));
    assert_eq!(refused(200, &[("X", ""); 101]), upstream(Reject::TOO_MANY_FIELDS));
    // CVE-2026-33523: a reason phrase with control characters is dropped.
    let payload = b"\x04\x00\xc8\x00\x04\r\nX:\x00\x00\x00";
    let bytes = peer::reply(payload);
    let (said, error) = hear(&mut exchange(&get()), &bytes, &[bytes.len()]);
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!((said, error), (vec![Said::Head(head.to_owned())], None));
}

#[test]
fn errors_say_what_was_expected_and_what_found() {
    let texts = [
        AjpError::Magic(0x48, 0x54).to_string(),
        AjpError::HeadCut("a field's value").to_string(),
        AjpError::Head(Reject::FIELD_VALUE).to_string(),
    ];
    assert!(texts[0].contains("found 48 54"), "{}", texts[0]);
    assert!(texts[1].contains("packetSize"), "{}", texts[1]);
    assert!(texts[2].contains("field-value"), "{}", texts[2]);
}
