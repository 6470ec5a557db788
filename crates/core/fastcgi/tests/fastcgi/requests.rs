//! Requests, byte by byte, and those that cannot be encoded.

use skep_fastcgi::limits::CONTENT_BYTES_MAX;
use skep_fastcgi::{FcgiExchange, FcgiRequestError, FcgiSettings, ScriptRule};
use skep_http::gateway::GatewayRequest;
use skep_http::limits::RESPONSE_HEAD;
use skep_http::{BodyFraming, Method, Version};

use crate::peer;

/// A GET of `/a.php/b?x=1` from 192.0.2.7, port 4711.
pub(crate) fn get() -> GatewayRequest<'static> {
    GatewayRequest {
        method: Method::Get,
        target: b"/a.php/b?x=1",
        path: b"/a.php/b",
        query: Some(b"x=1"),
        version: Version::Http11,
        host: b"ex.org:8080",
        fields: &[],
        client: ([192, 0, 2, 7], 4711).into(),
        local: ([192, 0, 2, 1], 80).into(),
        server_name: b"ex.org",
        server_port: 80,
        is_tls: false,
        body: BodyFraming::None,
    }
}

pub(crate) fn php() -> FcgiSettings<'static> {
    FcgiSettings {
        root: b"/srv",
        script: ScriptRule::Extension { extension: b".php", index: b"index.php" },
        ..FcgiSettings::default()
    }
}

fn sent(request: &GatewayRequest<'_>, settings: &FcgiSettings<'_>) -> peer::Begun {
    let mut out = b"before".to_vec();
    FcgiExchange::start(&mut out, request, settings).unwrap();
    assert!(out.starts_with(b"before"));
    peer::request(&out[6..]).expect("records that php-fpm takes")
}

fn refused(request: &GatewayRequest<'_>, settings: &FcgiSettings<'_>) -> FcgiRequestError {
    let mut out = b"before".to_vec();
    let error = FcgiExchange::start(&mut out, request, settings).unwrap_err();
    assert_eq!(out, b"before", "{error}");
    error
}

#[test]
fn a_probe_is_written_byte_by_byte_as_specified() {
    let mut out = Vec::new();
    FcgiExchange::probe(&mut out, b"/ping", b"", &RESPONSE_HEAD).unwrap();
    let expected: &[&[u8]] = &[
        b"\x01\x01\x00\x01\x00\x08\x00\x00",
        b"\x00\x01\x00\x00\x00\x00\x00\x00",
        b"\x01\x04\x00\x01\x00\x8e\x00\x00",
        b"\x0b\x05SCRIPT_NAME/ping",
        b"\x0f\x05SCRIPT_FILENAME/ping",
        b"\x0b\x05REQUEST_URI/ping",
        b"\x0c\x00QUERY_STRING",
        b"\x0e\x03REQUEST_METHODGET",
        b"\x0f\x08SERVER_PROTOCOLHTTP/1.1",
        b"\x11\x07GATEWAY_INTERFACECGI/1.1",
        b"\x01\x04\x00\x01\x00\x00\x00\x00",
        b"\x01\x05\x00\x01\x00\x00\x00\x00",
    ];
    assert_eq!(out.escape_ascii().to_string(), expected.concat().escape_ascii().to_string());
    assert!(peer::request(&out).unwrap().is_whole);
}

#[test]
fn parameters_are_those_of_rfc_3875_and_of_php() {
    let fields: &[(&str, &[u8])] =
        &[("Content-Type", b"text/plain"), ("Authorization", b"Basic x")];
    let request = GatewayRequest { fields, ..get() };
    let begun = sent(&request, &php());
    assert!(begun.is_whole && begun.body.is_empty() && !begun.keep_conn);
    let expected: &[(&str, &[u8])] = &[
        ("SCRIPT_FILENAME", b"/srv/a.php"),
        ("SCRIPT_NAME", b"/a.php"),
        ("DOCUMENT_ROOT", b"/srv"),
        ("DOCUMENT_URI", b"/a.php/b"),
        ("PATH_INFO", b"/b"),
        ("PATH_TRANSLATED", b"/srv/b"),
        ("REQUEST_METHOD", b"GET"),
        ("REQUEST_URI", b"/a.php/b?x=1"),
        ("QUERY_STRING", b"x=1"),
        ("SERVER_PROTOCOL", b"HTTP/1.1"),
        ("REMOTE_ADDR", b"192.0.2.7"),
        ("REMOTE_PORT", b"4711"),
        ("SERVER_ADDR", b"192.0.2.1"),
        ("SERVER_PORT", b"80"),
        ("SERVER_NAME", b"ex.org"),
        ("REQUEST_SCHEME", b"http"),
        ("GATEWAY_INTERFACE", b"CGI/1.1"),
        ("SERVER_SOFTWARE", b"skep"),
        ("REDIRECT_STATUS", b"200"),
        ("HTTP_HOST", b"ex.org:8080"),
        ("CONTENT_TYPE", b"text/plain"),
        ("HTTP_AUTHORIZATION", b"Basic x"),
    ];
    let found: Vec<(&str, &[u8])> =
        begun.params.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
    assert_eq!(found, expected);
}

#[test]
fn parameters_that_are_not_always_there() {
    let begun = sent(&GatewayRequest { path: b"/", query: None, is_tls: true, ..get() }, &php());
    assert_eq!(begun.param("SCRIPT_FILENAME"), Some(&b"/srv/index.php"[..]));
    assert_eq!(begun.param("QUERY_STRING"), Some(&b""[..]));
    assert_eq!((begun.param("PATH_INFO"), begun.param("PATH_TRANSLATED")), (None, None));
    assert_eq!(begun.param("HTTPS"), Some(&b"on"[..]));
    assert_eq!(begun.param("REQUEST_SCHEME"), Some(&b"https"[..]));
    assert_eq!(begun.param("CONTENT_LENGTH"), None);
    let post = GatewayRequest { method: Method::Post, ..get() };
    assert_eq!(sent(&post, &php()).param("CONTENT_LENGTH"), Some(&b"0"[..]));
}

#[test]
fn no_field_is_read_as_another_one() {
    let fields: &[(&str, &[u8])] = &[
        ("X-Good", b"1"),
        ("x-good", b"2"),
        ("Cookie", b"a=1"),
        ("Cookie", b"b=2"),
        // CVE-2016-5385, httpoxy.
        ("Proxy", b"http://evil/"),
        ("X_Forwarded_For", b"6.6.6.6"),
        ("X_Good", b"3"),
        // PHP reads a dot as `_`, too.
        ("X.Good", b"4"),
        ("X!Good", b"5"),
        // CVE-2024-8927.
        ("Redirect-Status", b"200"),
        ("Content_Length", b"9"),
        // Framing and hop-by-hop fields: omitted, but not counted as dropped.
        ("Content-Length", b"0"),
        ("Connection", b"x-hop"),
        ("X-Hop", b"1"),
        ("Transfer-Encoding", b"chunked"),
    ];
    let mut out = Vec::new();
    let request = GatewayRequest { fields, ..get() };
    let exchange = FcgiExchange::start(&mut out, &request, &php()).unwrap();
    assert_eq!(exchange.dropped_fields(), 7);
    let begun = peer::request(&out).unwrap();
    let http: Vec<&str> = begun
        .params
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| name.starts_with("HTTP_"))
        .collect();
    assert_eq!(http, ["HTTP_HOST", "HTTP_X_GOOD", "HTTP_COOKIE"]);
    assert_eq!(begun.param("HTTP_X_GOOD"), Some(&b"1, 2"[..]));
    assert_eq!(begun.param("HTTP_COOKIE"), Some(&b"a=1; b=2"[..]));
}

#[test]
fn parameters_of_the_config_replace_others() {
    let params: &[(&[u8], &[u8])] =
        &[(b"SERVER_NAME", b"mine"), (b"HTTP_X_A", b"fixed"), (b"PHP_VALUE", b"a=b")];
    let settings = FcgiSettings { params, ..php() };
    let fields: &[(&str, &[u8])] = &[("X-A", b"the client's")];
    let begun = sent(&GatewayRequest { fields, ..get() }, &settings);
    assert_eq!(begun.param("SERVER_NAME"), Some(&b"mine"[..]));
    assert_eq!(begun.param("HTTP_X_A"), Some(&b"fixed"[..]));
    assert_eq!(begun.param("PHP_VALUE"), Some(&b"a=b"[..]));
}

#[test]
fn what_cannot_be_asked_has_a_status() {
    let refuse = |path: &'static [u8]| refused(&GatewayRequest { path, ..get() }, &php());
    assert_eq!(refuse(b"/a.php/%0A").status(), 400);
    assert_eq!(refuse(b"/a.html").status(), 404);
    let body = BodyFraming::Chunked;
    let error = refused(&GatewayRequest { body, ..get() }, &php());
    assert_eq!((error, error.status()), (FcgiRequestError::LengthUnknown, 411));
}

#[test]
fn pairs_are_never_split_over_records_and_one_that_does_not_fit_is_431() {
    // Both lengths take four bytes.
    let room = CONTENT_BYTES_MAX - "HTTP_X_B".len() - 5;
    let (fits, long, small) = (vec![b'x'; room], vec![b'x'; room + 1], vec![b'y'; 40_000]);
    let fields: &[(&str, &[u8])] =
        &[("X-A", &small), ("X-B", &fits), ("X-C", b"1"), ("X-D", &small)];
    let begun = sent(&GatewayRequest { fields, ..get() }, &php());
    assert_eq!(begun.param("HTTP_X_A"), Some(&small[..]));
    assert_eq!(begun.param("HTTP_X_B"), Some(&fits[..]));
    assert_eq!(begun.param("HTTP_X_D"), Some(&small[..]));
    let mut longest = 0;
    for more in 0..64 {
        let fields: &[(&str, &[u8])] = &[("X-A", &fits[..room - 400 - more])];
        let mut out = Vec::new();
        FcgiExchange::start(&mut out, &GatewayRequest { fields, ..get() }, &php()).unwrap();
        let (_, _, mut rest) = peer::record(&out).unwrap();
        while let Some((4, content, behind)) = peer::record(rest) {
            longest = longest.max(content.len());
            rest = behind;
        }
    }
    assert_eq!(longest, CONTENT_BYTES_MAX);
    let fields: &[(&str, &[u8])] = &[("X-B", &long)];
    let error = refused(&GatewayRequest { fields, ..get() }, &php());
    assert_eq!(error, FcgiRequestError::ParamLong { bytes: CONTENT_BYTES_MAX + 1 });
    assert_eq!(error.status(), 431);
}

#[test]
fn bodies_are_sent_in_records_and_end() {
    let body = BodyFraming::Length(100_000);
    let mut out = Vec::new();
    let request = GatewayRequest { method: Method::Put, body, ..get() };
    let settings = FcgiSettings { keep_conn: true, ..php() };
    let mut exchange = FcgiExchange::start(&mut out, &request, &settings).unwrap();
    let begun = peer::request(&out).unwrap();
    assert!(begun.keep_conn && !begun.is_whole);
    assert_eq!(begun.param("CONTENT_LENGTH"), Some(&b"100000"[..]));
    for bytes in [CONTENT_BYTES_MAX, 100_000 - CONTENT_BYTES_MAX] {
        assert_eq!((exchange.wanted(), exchange.is_awaited()), (bytes, true));
        out.extend(exchange.body_head(bytes));
        out.extend(vec![b'b'; bytes]);
    }
    assert_eq!((exchange.wanted(), exchange.is_awaited()), (0, true));
    assert_eq!(exchange.body_end(), [1, 5, 0, 1, 0, 0, 0, 0]);
    out.extend([1, 5, 0, 1, 0, 0, 0, 0]);
    assert!(!exchange.is_awaited());
    let begun = peer::request(&out).unwrap();
    assert!(begun.is_whole && begun.body == [b'b'; 100_000]);
}

#[test]
#[should_panic(expected = "an end before the body's")]
fn a_body_cannot_end_early() {
    let request = GatewayRequest { body: BodyFraming::Length(5), ..get() };
    let mut exchange = FcgiExchange::start(&mut Vec::new(), &request, &php()).unwrap();
    let _ = exchange.body_head(3);
    let _ = exchange.body_end();
}

#[test]
#[should_panic(expected = "more body than was announced")]
fn a_body_cannot_be_longer() {
    let request = GatewayRequest { body: BodyFraming::Length(5), ..get() };
    let mut exchange = FcgiExchange::start(&mut Vec::new(), &request, &php()).unwrap();
    let _ = exchange.body_head(6);
}
