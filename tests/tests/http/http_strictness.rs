//! What the HTTP engine refuses, and what it must accept: raw bytes, by RFC section or CVE. Rules are those
//! of RFC 9112; where it allows a choice, the strict one.
//!
//! Each refused case is sent as a whole, byte by byte and in halves, followed by a canary request on the same
//! connection: an answer to that would be request smuggling.

use skep_tests::{RawClient, Response, Site, Skep};

const CANARY: &str = "the canary was asked for";
const TAIL: &[u8] = b"GET /canary.txt HTTP/1.1\r\nHost: test\r\n\r\n";

/// Rule, bytes of a request, correct statuses.
type Case = (&'static str, &'static [u8], &'static [u16]);

fn server() -> (Site, Skep) {
    let site = Site::new().with("canary.txt", CANARY).with("a.txt", "aaa").with("b.txt", "bb");
    let skep = Skep::serve(site.root(), &["--threads", "1"]);
    (site, skep)
}

/// Ways to split a request into writes.
fn deliveries(bytes: &[u8]) -> [Vec<&[u8]>; 3] {
    let (head, tail) = bytes.split_at(bytes.len() / 2);
    [vec![bytes], bytes.chunks(1).collect(), vec![head, tail]]
}

fn assert_refused(cases: &[Case]) {
    let (_site, skep) = server();
    for &(rule, bytes, statuses) in cases {
        let all = [bytes, TAIL].concat();
        for pieces in deliveries(&all) {
            let pieces_count = pieces.len();
            let mut client = skep.connect();
            client.send_pieces(pieces);
            let context =
                format!("{rule} ({pieces_count} pieces): {:?}", bytes.escape_ascii().to_string());
            let response = client.try_response().unwrap_or_else(|e| panic!("{context}: {e}"));
            assert!(statuses.contains(&response.status), "{context}: {}", response.head_text());
            assert!(response.says_close(), "{context}: {}", response.head_text());
            assert!(!response.text().contains(CANARY), "{context}");
            let rest = client.read_to_close();
            assert!(rest.is_empty(), "{context}: then {}", rest.escape_ascii());
        }
    }
    skep.connect().get("/a.txt").assert_status(200);
}

/// Sends bytes after which the connection may or may not continue, and returns all received bytes.
fn answer_to(skep: &Skep, pieces: Vec<&[u8]>) -> String {
    let mut client = skep.connect();
    client.send_pieces(pieces);
    client.finish_sending();
    String::from_utf8_lossy(&client.read_to_close()).into_owned()
}

#[test]
fn request_lines() {
    assert_refused(&[
        ("RFC 9112 3: no version (HTTP/0.9)", b"GET /\r\n\r\n", &[400]),
        ("RFC 9112 3: no target", b"GET HTTP/1.1\r\nHost: test\r\n\r\n", &[400]),
        ("RFC 9112 3: two spaces", b"GET  / HTTP/1.1\r\nHost: test\r\n\r\n", &[400]),
        ("RFC 9112 3: space before CRLF", b"GET / HTTP/1.1 \r\nHost: test\r\n\r\n", &[400]),
        ("RFC 9112 3: space in the target", b"GET /a b HTTP/1.1\r\nHost: test\r\n\r\n", &[400]),
        ("RFC 9112 3: tab as separator", b"GET\t/\tHTTP/1.1\r\nHost: test\r\n\r\n", &[400]),
        ("RFC 9112 3: space before the method", b" GET / HTTP/1.1\r\nHost: test\r\n\r\n", &[400]),
        ("RFC 9110 9.1: method is no token", b"G(T / HTTP/1.1\r\nHost: test\r\n\r\n", &[400]),
        ("RFC 9110 9.1: quote in the method", b"G\"T / HTTP/1.1\r\nHost: test\r\n\r\n", &[400]),
        ("RFC 9112 2.3: lower case", b"GET / http/1.1\r\nHost: test\r\n\r\n", &[400]),
        ("RFC 9112 2.3: other protocol", b"GET / HTTPS/1.1\r\nHost: test\r\n\r\n", &[400]),
        ("RFC 9112 2.3: no minor", b"GET / HTTP/1\r\nHost: test\r\n\r\n", &[400]),
        ("RFC 9112 2.3: two digits", b"GET / HTTP/1.10\r\nHost: test\r\n\r\n", &[400]),
        ("RFC 9112 2.3: leading zero", b"GET / HTTP/01.1\r\nHost: test\r\n\r\n", &[400]),
        ("RFC 9112 2.3: sign", b"GET / HTTP/+1.1\r\nHost: test\r\n\r\n", &[400]),
        ("RFC 9110 15.6.6: 2.0", b"GET / HTTP/2.0\r\nHost: test\r\n\r\n", &[505]),
        ("RFC 9110 15.6.6: 1.2", b"GET / HTTP/1.2\r\nHost: test\r\n\r\n", &[505]),
        ("RFC 9110 15.6.6: 0.9", b"GET / HTTP/0.9\r\nHost: test\r\n\r\n", &[505]),
        ("RFC 9113 3.4: preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[400, 505]),
        (
            "RFC 9112 2.2: CRLF twice before",
            b"\r\n\r\nGET / HTTP/1.1\r\nHost: test\r\n\r\n",
            &[400],
        ),
        ("RFC 9112 2.2: LF before", b"\nGET / HTTP/1.1\r\nHost: test\r\n\r\n", &[400]),
        ("a TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", &[400]),
        ("a PROXY preamble", b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\nGET / HTTP/1.1\r\n\r\n", &[400]),
    ]);
}

#[test]
fn targets() {
    assert_refused(&[
        ("RFC 9112 3.2: fragment", b"GET /a.txt#x HTTP/1.1\r\nHost: test\r\n\r\n", &[400]),
        ("RFC 9112 3.2: no slash", b"GET a.txt HTTP/1.1\r\nHost: test\r\n\r\n", &[400]),
        ("RFC 9112 3.2.4: asterisk with GET", b"GET * HTTP/1.1\r\nHost: test\r\n\r\n", &[400]),
        (
            "RFC 9110 9.3.6: CONNECT",
            b"CONNECT test:443 HTTP/1.1\r\nHost: test:443\r\n\r\n",
            &[400, 405, 501],
        ),
        (
            "RFC 9110 4.2.4: userinfo",
            b"GET http://u@test/a.txt HTTP/1.1\r\nHost: test\r\n\r\n",
            &[400],
        ),
        (
            "RFC 9112 3.2.2: not Host",
            b"GET http://other/a.txt HTTP/1.1\r\nHost: test\r\n\r\n",
            &[400],
        ),
        (
            "RFC 9112 3.2.2: no authority",
            b"GET http:///a.txt HTTP/1.1\r\nHost: test\r\n\r\n",
            &[400],
        ),
        (
            "RFC 9112 3.2.2: other scheme",
            b"GET ftp://test/a.txt HTTP/1.1\r\nHost: test\r\n\r\n",
            &[400],
        ),
        ("RFC 3986 2: control byte", b"GET /a\x01 HTTP/1.1\r\nHost: test\r\n\r\n", &[400]),
        ("RFC 3986 2: NUL", b"GET /a\0 HTTP/1.1\r\nHost: test\r\n\r\n", &[400]),
        ("RFC 3986 2: DEL", b"GET /a\x7f HTTP/1.1\r\nHost: test\r\n\r\n", &[400]),
        ("RFC 3986 2: beyond ASCII", b"GET /\xc3\xa9 HTTP/1.1\r\nHost: test\r\n\r\n", &[400]),
        ("RFC 3986 2: quote", b"GET /\"a HTTP/1.1\r\nHost: test\r\n\r\n", &[400]),
        ("RFC 3986 2: angle bracket", b"GET /<a> HTTP/1.1\r\nHost: test\r\n\r\n", &[400]),
    ]);
}

/// Their framing is unambiguous, so the connection may continue.
#[test]
fn paths_that_could_be_read_in_two_ways() {
    let cases = [
        ("RFC 3986 2.1: half an escape", "/a%2"),
        ("RFC 3986 2.1: no hex", "/a%zz"),
        ("encoded NUL", "/a.txt%00.html"),
        ("encoded line feed", "/a%0aX:"),
        ("encoded slash", "/%2fa.txt"),
        ("encoded backslash", "/..%5c..%5cetc"),
        ("backslash", "/..\\..\\etc"),
        ("above the root", "/../etc/passwd"),
        ("above the root, encoded", "/%2e%2e/etc/passwd"),
        ("above the root, half encoded", "/.%2E/a.txt"),
        ("above the root, deep", "/a/../../a.txt"),
    ];
    let (_site, skep) = server();
    for (rule, target) in cases {
        let mut client = skep.connect();
        let response = client.get(target);
        assert_eq!(response.status, 400, "{rule}: {}", response.head_text());
        match response.says_close() {
            true => client.assert_closed(),
            false => assert_eq!(client.get("/a.txt").assert_status(200).text(), "aaa"),
        }
    }
}

#[test]
fn fields() {
    assert_refused(&[
        (
            "RFC 9112 5.1: space before colon",
            b"GET / HTTP/1.1\r\nHost: test\r\nA : b\r\n\r\n",
            &[400],
        ),
        ("RFC 9112 5.1: in Host", b"GET / HTTP/1.1\r\nHost : test\r\n\r\n", &[400]),
        (
            "RFC 9112 5.1: tab before colon",
            b"GET / HTTP/1.1\r\nHost: test\r\nA\t: b\r\n\r\n",
            &[400],
        ),
        ("RFC 9112 5.2: folding", b"GET / HTTP/1.1\r\nHost: test\r\nA: b\r\n c\r\n\r\n", &[400]),
        (
            "RFC 9112 5.2: folding by tab",
            b"GET / HTTP/1.1\r\nHost: test\r\nA: b\r\n\tc\r\n\r\n",
            &[400],
        ),
        (
            "RFC 9112 2.2: space in front of the first",
            b"GET / HTTP/1.1\r\n A: b\r\nHost: test\r\n\r\n",
            &[400],
        ),
        ("RFC 9112 5: no colon", b"GET / HTTP/1.1\r\nHost: test\r\nAb\r\n\r\n", &[400]),
        ("RFC 9112 5: no name", b"GET / HTTP/1.1\r\nHost: test\r\n: b\r\n\r\n", &[400]),
        ("RFC 9110 5.1: no token", b"GET / HTTP/1.1\r\nHost: test\r\nA(b): c\r\n\r\n", &[400]),
        (
            "RFC 9110 5.1: space in the name",
            b"GET / HTTP/1.1\r\nHost: test\r\nA b: c\r\n\r\n",
            &[400],
        ),
        (
            "RFC 9110 5.1: beyond ASCII",
            b"GET / HTTP/1.1\r\nHost: test\r\n\xc3\xa9: c\r\n\r\n",
            &[400],
        ),
        ("RFC 9110 5.5: NUL", b"GET / HTTP/1.1\r\nHost: test\r\nA: b\0c\r\n\r\n", &[400]),
        ("RFC 9110 5.5: bell", b"GET / HTTP/1.1\r\nHost: test\r\nA: b\x07c\r\n\r\n", &[400]),
        ("RFC 9110 5.5: DEL", b"GET / HTTP/1.1\r\nHost: test\r\nA: b\x7fc\r\n\r\n", &[400]),
        ("RFC 9112 2.2: CR in a value", b"GET / HTTP/1.1\r\nHost: test\r\nA: b\rc\r\n\r\n", &[400]),
        ("RFC 9112 2.2: CR in a name", b"GET / HTTP/1.1\r\nHost: test\r\nA\rb: c\r\n\r\n", &[400]),
        (
            "RFC 9112 2.2: LF as end of a field",
            b"GET / HTTP/1.1\r\nHost: test\nA: b\r\n\r\n",
            &[400],
        ),
        ("RFC 9112 2.2: LF as end of the line", b"GET / HTTP/1.1\nHost: test\r\n\r\n", &[400]),
        ("RFC 9112 2.2: LF as end of the head", b"GET / HTTP/1.1\r\nHost: test\r\n\n", &[400]),
        ("RFC 9112 2.2: CR CR LF", b"GET / HTTP/1.1\r\nHost: test\r\r\n\r\n", &[400]),
        (
            "RFC 9110 10.1.1: unknown expectation",
            b"GET / HTTP/1.1\r\nHost: test\r\nExpect: magic\r\n\r\n",
            &[417],
        ),
    ]);
}

#[test]
fn hosts() {
    assert_refused(&[
        ("RFC 9112 3.2: none", b"GET / HTTP/1.1\r\n\r\n", &[400]),
        ("RFC 9112 3.2: two", b"GET / HTTP/1.1\r\nHost: test\r\nHost: test\r\n\r\n", &[400]),
        ("RFC 9112 3.2: two that differ", b"GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", &[400]),
        ("RFC 9112 3.2: list", b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", &[400]),
        ("RFC 9110 7.2: space", b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", &[400]),
        ("RFC 9110 7.2: path", b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", &[400]),
        ("RFC 9110 7.2: userinfo", b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", &[400]),
        ("RFC 9110 7.2: port is no number", b"GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", &[400]),
        ("RFC 9110 7.2: port too large", b"GET / HTTP/1.1\r\nHost: a:99999\r\n\r\n", &[400]),
        ("RFC 9110 7.2: open bracket", b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", &[400]),
        ("RFC 9110 7.2: query", b"GET / HTTP/1.1\r\nHost: a?b\r\n\r\n", &[400]),
    ]);
}

#[test]
fn lengths_and_codings() {
    assert_refused(&[
        ("RFC 9112 6.3: both", b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", &[400]),
        ("RFC 9112 6.3: both, other order", b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n", &[400]),
        ("RFC 9112 6.3: empty", b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: \r\n\r\n", &[400]),
        ("RFC 9112 6.3: sign", b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: +5\r\n\r\nhello", &[400]),
        ("RFC 9112 6.3: negative", b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: -5\r\n\r\nhello", &[400]),
        ("RFC 9112 6.3: hex", b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0x5\r\n\r\nhello", &[400]),
        ("RFC 9112 6.3: space within", b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5 5\r\n\r\nhello", &[400]),
        ("RFC 9112 6.3: point", b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5.0\r\n\r\nhello", &[400]),
        ("RFC 9112 6.3: underscore", b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1_0\r\n\r\nhello", &[400]),
        ("RFC 9112 6.3: two that differ", b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", &[400]),
        ("RFC 9112 6.3: two alike", b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", &[400]),
        ("RFC 9112 6.3: list", b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5, 5\r\n\r\nhello", &[400]),
        ("RFC 9112 6.3: 2^64", b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 18446744073709551616\r\n\r\n", &[400]),
        ("RFC 9112 6.3: 2^64+5 wraps to 5", b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 18446744073709551621\r\n\r\nhello", &[400]),
        ("RFC 9112 6.1: in HTTP/1.0", b"POST / HTTP/1.0\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", &[400]),
        ("RFC 9112 6.3: chunked isn't last", b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", &[400, 501]),
        ("RFC 9112 6.1: chunked twice", b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", &[400, 501]),
        ("RFC 9112 6.1: two fields", b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", &[400]),
        ("RFC 9112 6.1: identity", b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: identity\r\n\r\n", &[400, 501]),
        ("RFC 9112 6.1: unknown coding", b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", &[400, 501]),
        ("CVE-2019-16276 kind: xchunked", b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", &[400, 501]),
        ("CVE-2019-18277 kind: vertical tab", b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n", &[400]),
        ("quoted chunked", b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", &[400, 501]),
        ("empty coding", b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: \r\n\r\n0\r\n\r\n", &[400, 501]),
        ("GET with both", b"GET /a.txt HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", &[400]),
    ]);
}

/// The server may answer before it reads the body (which nothing here needs), or after. A broken body must
/// not be considered complete, with the bytes after it parsed as a request.
#[test]
fn broken_bodies_end_the_connection() {
    let cases: &[(&str, &[u8])] = &[
        ("RFC 9112 7.1: sign", b"+5\r\nhello\r\n0\r\n\r\n"),
        ("RFC 9112 7.1: 0x", b"0x5\r\nhello\r\n0\r\n\r\n"),
        ("RFC 9112 7.1: no digit", b"\r\nhello\r\n0\r\n\r\n"),
        ("RFC 9112 7.1: no hex", b"g\r\nhello\r\n0\r\n\r\n"),
        ("RFC 9112 7.1: space in front", b" 5\r\nhello\r\n0\r\n\r\n"),
        ("RFC 9112 7.1: 17 digits", b"10000000000000005\r\nhello\r\n0\r\n\r\n"),
        ("RFC 9112 7.1: too large", b"ffffffffffffffff\r\nhello\r\n0\r\n\r\n"),
        ("RFC 9112 7.1: LF behind the size", b"5\nhello\r\n0\r\n\r\n"),
        ("RFC 9112 7.1: CR behind the size", b"5\rhello\r\n0\r\n\r\n"),
        ("RFC 9112 7.1: data too long", b"5\r\nhelloo\r\n0\r\n\r\n"),
        ("RFC 9112 7.1: LF behind the data", b"5\r\nhello\n0\r\n\r\n"),
        ("RFC 9112 7.1: nothing behind the data", b"5\r\nhello0\r\n\r\n"),
        ("RFC 9112 7.1.1: LF in an extension", b"5;a\nb\r\nhello\r\n0\r\n\r\n"),
        ("RFC 9112 7.1.1: CR in an extension", b"5;a\rb\r\nhello\r\n0\r\n\r\n"),
        ("RFC 9112 7.1.1: NUL in an extension", b"5;a\0b\r\nhello\r\n0\r\n\r\n"),
        ("RFC 9112 7.1.2: trailer without colon", b"5\r\nhello\r\n0\r\nfoo\r\n\r\n"),
        ("RFC 9112 7.1.2: folded trailer", b"5\r\nhello\r\n0\r\na: b\r\n c\r\n\r\n"),
        ("RFC 9112 7.1.2: LF behind a trailer", b"5\r\nhello\r\n0\r\na: b\n\r\n"),
        ("RFC 9112 7.1: LF at the end", b"5\r\nhello\r\n0\r\n\n"),
    ];
    let (_site, skep) = server();
    for method in ["POST", "GET"] {
        let head =
            format!("{method} /a.txt HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
        for (rule, body) in cases {
            let all = [head.as_bytes(), body, TAIL].concat();
            for pieces in deliveries(&all) {
                let answer = answer_to(&skep, pieces);
                assert!(answer.starts_with("HTTP/1.1 "), "{method} {rule}: {answer}");
                let answers = answer.matches("HTTP/1.1 ").count();
                assert!(answers == 1 && !answer.contains(CANARY), "{method} {rule}: {answer}");
            }
        }
    }
}

/// CVE-2025-4366: an answer from the cache left the body in the connection.
#[test]
fn a_body_is_never_taken_for_a_request() {
    let (_site, skep) = server();
    skep.connect().get("/a.txt").assert_status(200);
    let body = "GET /canary.txt HTTP/1.1\r\nHost: test\r\n\r\n";
    let by_length = format!("Content-Length: {}\r\n\r\n{body}", body.len());
    let by_chunks =
        format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "BREW"] {
        for framed in [&by_length, &by_chunks] {
            let all = format!("{method} /a.txt HTTP/1.1\r\nHost: test\r\n{framed}");
            for pieces in deliveries(all.as_bytes()) {
                let answer = answer_to(&skep, pieces);
                let answers = answer.matches("HTTP/1.1 ").count();
                assert!(answers == 1 && !answer.contains(CANARY), "{all}: {answer}");
            }
        }
    }
}

#[test]
fn a_whole_body_may_be_followed_by_the_next_request() {
    let (_site, skep) = server();
    let bodies = [
        "Content-Length: 5\r\n\r\nhello",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "Transfer-Encoding: Chunked\r\n\r\n5;a=b\r\nhello\r\n00\r\nx: y\r\n\r\n",
        "Content-Length: 0\r\n\r\n",
    ];
    for body in bodies {
        let all = format!(
            "GET /a.txt HTTP/1.1\r\nHost: test\r\n{body}GET /b.txt HTTP/1.1\r\nHost: test\r\n\r\n"
        );
        for pieces in deliveries(all.as_bytes()) {
            let mut client = skep.connect();
            client.send_pieces(pieces);
            let first = client.response();
            first.assert_status(200);
            if !first.says_close() {
                assert_eq!(client.response().assert_status(200).text(), "bb");
            }
        }
    }
}

#[test]
fn a_body_cut_short_gets_no_second_answer() {
    let (_site, skep) = server();
    let heads = ["Content-Length: 50\r\n\r\nhel", "Transfer-Encoding: chunked\r\n\r\n5\r\nhe"];
    for head in heads {
        let all = format!("GET /a.txt HTTP/1.1\r\nHost: test\r\n{head}");
        let answer = answer_to(&skep, vec![all.as_bytes()]);
        assert!(answer.matches("HTTP/1.1 ").count() <= 1, "{answer}");
    }
}

#[test]
fn a_head_cut_short_is_not_answered_as_a_request() {
    let (_site, skep) = server();
    let whole = b"GET /canary.txt HTTP/1.1\r\nHost: test\r\n\r\n";
    for end in 0..whole.len() {
        let answer = answer_to(&skep, vec![&whole[..end]]);
        assert!(!answer.contains(CANARY) && !answer.contains(" 200 "), "{end}: {answer}");
    }
}

#[test]
fn what_the_rfc_wants_accepted() {
    let (_site, skep) = server();
    let good: &[(&str, &str)] = &[
        ("RFC 9112 2.2: one CRLF before", "\r\nGET /a.txt HTTP/1.1\r\nHost: test\r\n\r\n"),
        ("RFC 9112 3.2.2: absolute form", "GET http://test/a.txt HTTP/1.1\r\nHost: test\r\n\r\n"),
        ("RFC 9112 3.2.2: its case", "GET HTTP://TEST/a.txt HTTP/1.1\r\nHost: test\r\n\r\n"),
        ("RFC 9110 5.1: case of names", "GET /a.txt HTTP/1.1\r\nhOST: test\r\n\r\n"),
        ("RFC 9112 5: no space", "GET /a.txt HTTP/1.1\r\nHost:test\r\n\r\n"),
        ("RFC 9112 5: much space", "GET /a.txt HTTP/1.1\r\nHost: \t test \t \r\n\r\n"),
        ("RFC 9110 5.5: empty value", "GET /a.txt HTTP/1.1\r\nHost: test\r\nA:\r\n\r\n"),
        ("RFC 9110 7.2: port", "GET /a.txt HTTP/1.1\r\nHost: test:8080\r\n\r\n"),
        ("RFC 9110 7.2: IPv6", "GET /a.txt HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"),
        (
            "RFC 9110 5.3: list over two fields",
            "GET /a.txt HTTP/1.1\r\nHost: test\r\nAccept: a/b\r\nAccept: c/d\r\n\r\n",
        ),
        ("RFC 3986 3.4: any query", "GET /a.txt?x=/../%2f&y[]={} HTTP/1.1\r\nHost: test\r\n\r\n"),
        ("RFC 3986 6.2.2: needless escape", "GET /%61.t%78t HTTP/1.1\r\nHost: test\r\n\r\n"),
        ("RFC 3986 5.2.4: dot segments", "GET /x/../././a.txt HTTP/1.1\r\nHost: test\r\n\r\n"),
    ];
    for (rule, request) in good {
        for pieces in deliveries(request.as_bytes()) {
            let mut client = skep.connect();
            client.send_pieces(pieces);
            let response = client.try_response().unwrap_or_else(|e| panic!("{rule}: {e}"));
            assert_eq!((response.status, response.text().as_str()), (200, "aaa"), "{rule}");
            assert!(!response.says_close(), "{rule}");
        }
    }
}

/// Returns the response without Date, which may change.
fn without_date(response: &Response) -> String {
    let text = String::from_utf8_lossy(&response.raw).into_owned();
    text.lines().filter(|line| !line.to_ascii_lowercase().starts_with("date:")).collect()
}

#[test]
fn pipelined_requests_are_answered_in_order_however_they_are_cut() {
    let (_site, skep) = server();
    let requests = b"GET /a.txt HTTP/1.1\r\nHost: test\r\n\r\n\
        HEAD /b.txt HTTP/1.1\r\nHost: test\r\n\r\n\
        GET /none HTTP/1.1\r\nHost: test\r\n\r\n\
        GET /b.txt HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    // The Cache-Status field changes after the first request.
    let ask = |pieces: [&[u8]; 2]| {
        let mut client = skep.connect();
        client.send_pieces(pieces);
        let responses = ["GET", "HEAD", "GET", "GET"].map(|m| client.try_response_to(m).unwrap());
        client.assert_closed();
        responses
    };
    ask([requests, b""]);
    let whole = ask([requests, b""]);
    assert_eq!(whole.each_ref().map(|r| r.status), [200, 200, 404, 200]);
    assert_eq!((whole[0].text(), whole[3].text()), ("aaa".into(), "bb".into()));
    assert_eq!(whole[1].header("content-length"), Some("2"));
    for cut in 1..requests.len() {
        let (one, two) = requests.split_at(cut);
        let cut_answer = ask([one, two]);
        assert_eq!(
            cut_answer.each_ref().map(without_date),
            whole.each_ref().map(without_date),
            "{cut}"
        );
    }
}

#[test]
fn a_deep_pipeline_is_answered_whole() {
    const DEPTH: usize = 1000;
    let (_site, skep) = server();
    let mut client = skep.connect();
    client.send("GET /a.txt HTTP/1.1\r\nHost: test\r\n\r\n".repeat(DEPTH));
    for _ in 0..DEPTH {
        assert_eq!(client.response().assert_status(200).text(), "aaa");
    }
}

#[test]
fn nothing_behind_an_error_is_answered_but_all_before_it() {
    let (_site, skep) = server();
    let mut client = skep.connect();
    let good = "GET /a.txt HTTP/1.1\r\nHost: test\r\n\r\n";
    client.send(format!("{good}{good}GET / HTTP/1.1\r\nHost : x\r\n\r\n{good}"));
    client.response().assert_status(200);
    client.response().assert_status(200);
    client.response().assert_status(400);
    client.assert_closed();
}

#[test]
fn connections_stay_open_or_close_as_asked() {
    let (_site, skep) = server();
    let ask = |version: &str, fields: &str| -> (RawClient, Response) {
        let mut client = skep.connect();
        client.send(format!("GET /a.txt HTTP/{version}\r\nHost: test\r\n{fields}\r\n"));
        let response = client.response();
        (client, response)
    };
    for (version, fields) in [("1.1", ""), ("1.0", "Connection: keep-alive\r\n")] {
        let (mut client, response) = ask(version, fields);
        assert!(!response.says_close(), "{version} {fields}");
        client.get("/b.txt").assert_status(200);
    }
    for (version, fields) in [
        ("1.1", "Connection: close\r\n"),
        ("1.1", "Connection: x, CLOSE\r\n"),
        ("1.1", "Connection: keep-alive\r\nConnection: close\r\n"),
        ("1.0", ""),
        ("1.0", "Connection: close\r\n"),
    ] {
        let (mut client, response) = ask(version, fields);
        assert!(version == "1.0" || response.says_close(), "{version} {fields}");
        client.assert_closed();
    }
}

#[test]
fn http10_needs_no_host_and_gets_no_chunks() {
    let (_site, skep) = server();
    let mut client = skep.connect();
    client.send("GET /a.txt HTTP/1.0\r\n\r\n");
    let response = client.response();
    assert_eq!(response.assert_status(200).text(), "aaa");
    assert_eq!(response.header("transfer-encoding"), None);
}

#[test]
fn an_expectation_gets_a_final_answer_without_the_body() {
    let (_site, skep) = server();
    let mut client = skep.connect();
    client.send(
        "POST /a.txt HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
    );
    let response = client.response();
    response.assert_status(405);
    if response.says_close() {
        return client.assert_closed();
    }
    // RFC 9110, section 10.1.1: then the next five bytes are the body, whatever they are.
    client.send("GET /GET /b.txt HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(client.response().assert_status(200).text(), "bb");
}

#[test]
fn half_closed_clients_get_their_answers() {
    let (_site, skep) = server();
    let mut client = skep.connect();
    client
        .send("GET /a.txt HTTP/1.1\r\nHost: test\r\n\r\nGET /b.txt HTTP/1.1\r\nHost: test\r\n\r\n");
    client.finish_sending();
    assert_eq!(client.response().text(), "aaa");
    assert_eq!(client.response().text(), "bb");
    client.assert_closed();
}
