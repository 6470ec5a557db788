//! Replies: byte by byte, and every protocol violation with its error.

use skep_fastcgi::limits::STDERR_BYTES_MAX;
use skep_fastcgi::{FcgiError, FcgiEvent, FcgiExchange, FcgiRefusal, FcgiSettings};
use skep_http::gateway::GatewayRequest;
use skep_http::{BodyFraming, Method, Reject};

use crate::peer;
use crate::requests::{get, php};

pub(crate) fn exchange(request: &GatewayRequest<'_>) -> FcgiExchange {
    let settings = FcgiSettings { keep_conn: true, ..php() };
    FcgiExchange::start(&mut Vec::new(), request, &settings).unwrap()
}

/// The events of a reply, with the pieces of its body joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Head(String),
    Body(Vec<u8>),
    Stderr(String),
    End(u32),
}

/// Receives `bytes` in pieces that end at `ends`. STDERR lines are listed first, since they may
/// occur anywhere.
pub(crate) fn hear(
    exchange: &mut FcgiExchange,
    bytes: &[u8],
    ends: &[usize],
) -> (Vec<Said>, Option<FcgiError>) {
    let (mut lines, mut said) = (Vec::new(), Vec::new());
    let mut error = None;
    let mut start = 0;
    'all: for end in ends {
        loop {
            let input = &bytes[start..*end];
            let received = match exchange.receive(input) {
                Ok(received) => received,
                Err(it) => {
                    assert_eq!(exchange.receive(b"").unwrap_err(), it, "an error must stay");
                    assert_eq!(exchange.close(), Err(it));
                    error = Some(it);
                    break 'all;
                }
            };
            start += received.consumed;
            match received.event {
                None => {
                    assert_eq!(start, *end, "bytes are left without an event");
                    break;
                }
                Some(FcgiEvent::Head(head)) => {
                    said.push(Said::Head(String::from_utf8_lossy(&head.bytes).into_owned()));
                }
                Some(FcgiEvent::Body(range)) => {
                    assert!(!range.is_empty());
                    match said.last_mut() {
                        Some(Said::Body(body)) => body.extend(&input[range]),
                        _ => said.push(Said::Body(input[range].to_vec())),
                    }
                }
                Some(FcgiEvent::Stderr(line)) => {
                    assert!(!line.is_empty() && !line.contains(&b'\n'));
                    lines.push(Said::Stderr(String::from_utf8_lossy(&line).into_owned()));
                }
                Some(FcgiEvent::End { app_status }) => said.push(Said::End(app_status)),
            }
        }
    }
    lines.extend(said);
    (lines, error)
}

fn said(bytes: &[u8]) -> Vec<Said> {
    let (said, error) = hear(&mut exchange(&get()), bytes, &[bytes.len()]);
    assert_eq!(error, None, "{said:?}");
    said
}

fn error_of(bytes: &[u8]) -> FcgiError {
    let (said, error) = hear(&mut exchange(&get()), bytes, &[bytes.len()]);
    error.unwrap_or_else(|| panic!("taken: {} as {said:?}", bytes.escape_ascii()))
}

#[test]
fn a_reply_of_php_fpm_is_read() {
    // As php-fpm 8.2 writes it: without a record that ends STDOUT.
    let bytes: &[&[u8]] = &[
        b"\x01\x07\x00\x01\x00\x06\x02\x00oops!\nPP",
        b"\x01\x06\x00\x01\x00\x31\x07\x00Status: 404 Not Found\r\nContent-type: text/html\r\n\r\n",
        b"PPPPPPP",
        b"\x01\x06\x00\x01\x00\x05\x03\x00hello\0\0\0",
        b"\x01\x03\x00\x01\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
    ];
    let mut bytes = bytes.concat();
    let content = b"Status: 404 Not Found\r\nContent-type: text/html\r\n\r\n".len();
    bytes[16 + 5] = content as u8;
    let mut exchange = exchange(&get());
    let (found, error) = hear(&mut exchange, &bytes, &[bytes.len()]);
    let head =
        "HTTP/1.1 404 Not Found\r\nContent-type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n";
    let expected = [
        Said::Stderr("oops!".to_owned()),
        Said::Head(head.to_owned()),
        Said::Body(b"hello".to_vec()),
        Said::End(0),
    ];
    assert_eq!((&found[..], error), (&expected[..], None));
    assert!(exchange.is_reusable(0) && !exchange.is_reusable(1));
    assert_eq!(exchange.close(), Ok(()));
    assert_eq!(exchange.receive(b"\x01"), Err(FcgiError::BehindEnd));
}

#[test]
fn heads_of_cgi_become_heads_of_http() {
    for (head, first, last) in [
        ("Content-Type: a\n\n", "HTTP/1.1 200 OK", "Content-Type: a"),
        ("Content-Type:a\r\n\r\n", "HTTP/1.1 200 OK", "Content-Type: a"),
        ("Location: http://x/\r\n\r\n", "HTTP/1.1 302 Found", "Location: http://x/"),
        // RFC 3875 6.2.2: not followed here.
        ("Location: /local\r\n\r\n", "HTTP/1.1 302 Found", "Location: /local"),
        ("Status: 201\r\nLocation: /l\r\n\r\n", "HTTP/1.1 201 Created", "Location: /l"),
        ("status:  599 Odd\r\nA: b\r\n\r\n", "HTTP/1.1 599 ", "A: b"),
        ("Transfer-Encoding: chunked\r\nA: b\r\n\r\n", "HTTP/1.1 200 OK", "A: b"),
        ("Connection: A\r\nA: b\r\nC: d\r\n\r\n", "HTTP/1.1 200 OK", "C: d"),
    ] {
        let bytes = [peer::stdout(head.as_bytes()), peer::end(0, 0)].concat();
        let expected = format!("{first}\r\n{last}\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!(said(&bytes), [Said::Head(expected), Said::End(0)], "{head}");
    }
}

#[test]
fn heads_and_lines_go_over_many_records() {
    let mut bytes = Vec::new();
    for piece in b"Content-Type: a\r\n\r\nbody".chunks(1) {
        bytes.extend(peer::reply(6, piece, 3));
        bytes.extend(peer::stderr(b"a"));
    }
    bytes.extend(peer::stdout(b""));
    bytes.extend(peer::reply(3, &[0, 0, 0, 7, 0, 0, 0, 0], 255));
    let head = "HTTP/1.1 200 OK\r\nContent-Type: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let expected = [
        Said::Stderr("a".repeat(23)),
        Said::Head(head.to_owned()),
        Said::Body(b"body".to_vec()),
        Said::End(7),
    ];
    assert_eq!(said(&bytes), expected);
}

#[test]
fn a_connection_is_reused_only_when_both_sides_are_in_step() {
    let bytes = [peer::stdout(b"A: b\r\n\r\n"), peer::end(0, 0)].concat();
    let mut kept = exchange(&get());
    hear(&mut kept, &bytes, &[bytes.len()]);
    assert!(kept.is_reusable(0));
    let mut not_asked_to = FcgiExchange::start(&mut Vec::new(), &get(), &php()).unwrap();
    hear(&mut not_asked_to, &bytes, &[bytes.len()]);
    assert!(!not_asked_to.is_reusable(0));
    // The reply is complete before the request body is.
    let mut early = exchange(&GatewayRequest { body: BodyFraming::Length(9), ..get() });
    assert_eq!(hear(&mut early, &bytes, &[bytes.len()]).1, None);
    assert!(!early.is_reusable(0));
}

#[test]
fn replies_without_a_body_have_none_whatever_is_sent() {
    for (method, status) in [(Method::Head, 200), (Method::Get, 204), (Method::Get, 304)] {
        let head = format!("Status: {status}\r\nA: b\r\n\r\nnot for you");
        let bytes = [peer::stdout(head.as_bytes()), peer::stdout(b"nor this"), peer::end(0, 0)];
        let bytes = bytes.concat();
        let (said, error) =
            hear(&mut exchange(&GatewayRequest { method, ..get() }), &bytes, &[bytes.len()]);
        assert!(matches!(said[..], [Said::Head(_), Said::End(0)]), "{said:?}");
        assert_eq!(error, None);
    }
}

#[test]
fn bodies_are_as_long_as_announced() {
    let reply = |body: &[u8]| {
        [peer::stdout(b"Content-Length: 5\r\n\r\n"), peer::stdout(body), peer::end(0, 0)].concat()
    };
    assert_eq!(said(&reply(b"abcde"))[1..], [Said::Body(b"abcde".to_vec()), Said::End(0)]);
    assert_eq!(error_of(&reply(b"abc")), FcgiError::BodyShort { missing_bytes: 2 });
    let (found, error) = hear(&mut exchange(&get()), &reply(b"abcdef"), &[reply(b"abcdef").len()]);
    let expected = (&[Said::Body(b"abcde".to_vec())][..], Some(FcgiError::BodyLong));
    assert_eq!((&found[1..], error), expected);
}

#[test]
fn records_that_lie_are_refused() {
    let head = peer::stdout(b"A: b\r\n\r\n");
    assert_eq!(error_of(b"HTTP/1.1"), FcgiError::Version(b'H'));
    assert_eq!(error_of(&[1, 6, 0, 2, 0, 0, 0, 0]), FcgiError::RequestId(2));
    assert_eq!(error_of(&[1, 6, 0, 0, 0, 0, 0, 0]), FcgiError::RequestId(0));
    for kind in [0, 1, 2, 4, 5, 8, 9, 10, 11, 12, 255] {
        assert_eq!(error_of(&peer::reply(kind, b"", 0)), FcgiError::Type(kind));
    }
    for length in [0, 7, 9] {
        let bytes = [head.clone(), peer::reply(3, &vec![0; length], 0)].concat();
        assert_eq!(error_of(&bytes), FcgiError::EndLength(length));
    }
    let bytes = [head.clone(), peer::stdout(b""), peer::stdout(b"more")].concat();
    assert_eq!(error_of(&bytes), FcgiError::StdoutEnded);
    let bytes = [head.clone(), peer::end(0, 0), head].concat();
    assert_eq!(error_of(&bytes), FcgiError::BehindEnd);
    assert_eq!(error_of(&peer::end(254, 0)), FcgiError::NoHead { app_status: 254 });
    let bytes = [peer::stdout(b"A: b\r\n"), peer::end(0, 0)].concat();
    assert_eq!(error_of(&bytes), FcgiError::NoHead { app_status: 0 });
    assert_eq!(exchange(&get()).close(), Err(FcgiError::Closed));
}

#[test]
fn refusals_are_told_apart() {
    for (status, refusal) in [
        (1, FcgiRefusal::CantMultiplex),
        (2, FcgiRefusal::Overloaded),
        (3, FcgiRefusal::UnknownRole),
        (9, FcgiRefusal::Other(9)),
    ] {
        assert_eq!(error_of(&peer::end(0, status)), FcgiError::Refused(refusal));
    }
}

#[test]
fn heads_that_no_http_server_could_send_are_refused() {
    let error = |head: &str| error_of(&peer::stdout(head.as_bytes()));
    let refused = |head: &str| match error(head) {
        FcgiError::Head(reject) => reject,
        other => panic!("{head}: {other}"),
    };
    let upstream = Reject::by_upstream;
    for (head, reject) in [
        ("A: b\rSet-Cookie: c\r\n\r\n", Reject::FIELD_VALUE),
        ("A: b\0\r\n\r\n", Reject::FIELD_VALUE),
        ("A: b\r\n folded\r\n\r\n", Reject::FIELD_NO_COLON),
        ("A: b\r\n fol: ded\r\n\r\n", Reject::FIELD_NAME),
        ("A : b\r\n\r\n", Reject::FIELD_NAME),
        (": b\r\n\r\n", Reject::FIELD_NAME_EMPTY),
        ("HTTP/1.1 200 OK\r\n\r\n", Reject::FIELD_NO_COLON),
        ("<html>\n\n", Reject::FIELD_NO_COLON),
        ("Status: 100\r\n\r\n", Reject::STATUS_CODE),
        ("Status: 600\r\n\r\n", Reject::STATUS_CODE),
        ("Content-Length: 5\r\nContent-Length: 5\r\n\r\n", Reject::LENGTH_REPEATED),
        ("Content-Length: 5, 5\r\n\r\n", Reject::LENGTH_INVALID),
        ("Status: 204\r\nContent-Length: 5\r\n\r\n", Reject::BODY_FORBIDDEN),
    ] {
        assert_eq!(refused(head), upstream(reject), "{head:?}");
    }
    for head in [
        "Status: 20\r\n\r\n",
        "Status: 2000\r\n\r\n",
        "Status: ok\r\n\r\n",
        "Status:\r\n\r\n",
        "Status: 200\r\nStatus: 200\r\n\r\n",
    ] {
        assert_eq!(error(head), FcgiError::Status, "{head:?}");
    }
    for head in ["\r\n", "\n", "\n\n"] {
        assert_eq!(error(head), FcgiError::HeadEmpty, "{head:?}");
    }
}

#[test]
fn a_head_without_an_end_is_bounded() {
    let bytes_max = FcgiSettings::default().reply_head.head_bytes_max;
    let record = peer::stdout(&[b"A: ", &[b'x'; 8000][..], b"\r\n"].concat());
    let bytes = record.repeat(bytes_max / 8000 + 1);
    assert_eq!(error_of(&bytes), FcgiError::HeadLong { bytes_max });
}

#[test]
fn stderr_is_bounded_and_never_fails_a_reply() {
    let line = [&[b'e'; 999][..], b"\n"].concat();
    let mut bytes = peer::stderr(&line).repeat(1000);
    bytes.extend(peer::stdout(b"A: b\r\n\r\n"));
    bytes.extend(peer::stderr(b"last"));
    bytes.extend(peer::end(0, 0));
    let mut exchange = exchange(&get());
    let (found, error) = hear(&mut exchange, &bytes, &[bytes.len()]);
    let kept: usize =
        found.iter().map(|it| if let Said::Stderr(it) = it { it.len() } else { 0 }).sum();
    assert_eq!((kept, error, found.last()), (STDERR_BYTES_MAX, None, Some(&Said::End(0))));
    assert_eq!(exchange.stderr_dropped_bytes(), 999 * 1000 + 4 - STDERR_BYTES_MAX as u64);
}

#[test]
fn what_a_failed_reply_complained_of_last_is_there() {
    let mut exchange = exchange(&get());
    let bytes = [peer::stderr(b"PHP Fatal error"), peer::end(0, 0)].concat();
    let (_, error) = hear(&mut exchange, &bytes, &[bytes.len()]);
    assert_eq!(error, Some(FcgiError::NoHead { app_status: 0 }));
    assert_eq!(exchange.stderr_rest(), Some(b"PHP Fatal error".to_vec()));
    assert_eq!(exchange.stderr_rest(), None);
}
