//! FORWARD_REQUEST, byte by byte, and requests that do not fit.

use skep_ajp::limits::{PACKET_BYTES_DEFAULT, PACKET_BYTES_MAX};
use skep_ajp::{AjpExchange, AjpRequestError, AjpSettings, JkActivation, TlsAttributes};
use skep_http::gateway::GatewayRequest;
use skep_http::{BodyFraming, Method, Version};

use crate::peer;

/// A GET of `/a?x=1` from 192.0.2.7, port 4711.
pub(crate) fn get() -> GatewayRequest<'static> {
    GatewayRequest {
        method: Method::Get,
        target: b"/a?x=1",
        path: b"/a",
        query: Some(b"x=1"),
        version: Version::Http11,
        host: b"ex.org",
        fields: &[],
        client: ([192, 0, 2, 7], 4711).into(),
        local: ([192, 0, 2, 1], 80).into(),
        server_name: b"ex.org",
        server_port: 80,
        is_tls: false,
        body: BodyFraming::None,
    }
}

fn sent(request: &GatewayRequest<'_>, settings: &AjpSettings<'_>) -> peer::Forwarded {
    let mut out = b"before".to_vec();
    AjpExchange::start(&mut out, request, settings).unwrap();
    let (forwarded, behind) = peer::request(&out[6..]).expect("a packet");
    assert!(behind.is_empty() && out.starts_with(b"before"));
    forwarded
}

#[test]
fn a_request_is_written_byte_by_byte_as_specified() {
    let mut out = Vec::new();
    let settings = AjpSettings { secret: Some(b"k1"), ..AjpSettings::default() };
    AjpExchange::start(&mut out, &get(), &settings).unwrap();
    let expected: &[&[u8]] = &[
        b"\x12\x34\x00\x7f\x02\x02",
        b"\x00\x08HTTP/1.1\0",
        b"\x00\x02/a\0",
        b"\x00\x09192.0.2.7\0",
        b"\xff\xff",
        b"\x00\x06ex.org\0",
        b"\x00\x50\x00",
        b"\x00\x01\xa0\x0b\x00\x06ex.org\0",
        b"\x0c\x00\x02k1\0",
        b"\x05\x00\x03x=1\0",
        b"\x0a\x00\x0fAJP_REMOTE_PORT\0\x00\x044711\0",
        b"\x0a\x00\x0eAJP_LOCAL_ADDR\0\x00\x09192.0.2.1\0",
        b"\xff",
    ];
    assert_eq!(out.escape_ascii().to_string(), expected.concat().escape_ascii().to_string());
}

#[test]
fn every_method_arrives_as_itself() {
    for name in [
        "OPTIONS",
        "GET",
        "HEAD",
        "POST",
        "PUT",
        "DELETE",
        "TRACE",
        "PATCH",
        "QUERY",
        "M-SEARCH",
        "PROPFIND",
        "VERSION-CONTROL",
        "MKACTIVITY",
        "get",
    ] {
        let request = GatewayRequest { method: Method::of(name), ..get() };
        assert_eq!(sent(&request, &AjpSettings::default()).method, name);
    }
}

#[test]
fn only_attributes_that_tomcat_knows_are_sent() {
    let tls = TlsAttributes {
        protocol: Some(b"TLSv1.3"),
        cipher: Some(b"TLS_AES_128_GCM_SHA256"),
        key_bits: Some(128),
        session: Some(b"abc"),
        certificate: Some(b"-----BEGIN CERTIFICATE-----"),
    };
    let settings = AjpSettings {
        secret: Some(b"k"),
        tls,
        activation: Some(JkActivation::Disabled),
        ..AjpSettings::default()
    };
    let request = GatewayRequest { is_tls: true, method: Method::Patch, ..get() };
    let forwarded = sent(&request, &settings);
    assert!(forwarded.is_ssl);
    let names: Vec<&str> = forwarded.attributes.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "secret",
            "stored_method",
            "query_string",
            "ssl_cert",
            "ssl_cipher",
            "ssl_session",
            "ssl_key_size",
            "AJP_SSL_PROTOCOL",
            "AJP_REMOTE_PORT",
            "AJP_LOCAL_ADDR",
            "JK_LB_ACTIVATION",
        ]
    );
    assert_eq!(forwarded.attribute("ssl_key_size"), Some(&[0, 128][..]));
    assert_eq!(forwarded.attribute("JK_LB_ACTIVATION"), Some(&b"DIS"[..]));
    // For an unencrypted connection no TLS attributes are sent, whatever the settings.
    let forwarded = sent(&GatewayRequest { is_tls: false, ..request }, &settings);
    assert!(!forwarded.is_ssl && forwarded.attribute("ssl_cipher").is_none());
}

#[test]
fn the_body_has_one_length_and_it_comes_from_the_framing() {
    let fields: &[(&str, &[u8])] = &[
        ("Content-Length", b"7"),
        ("content-length", b"8"),
        ("Transfer-Encoding", b"chunked"),
        ("Connection", b"X-Hop"),
        ("X-Hop", b"1"),
        ("Accept", b"*/*"),
        ("X-A", b"1"),
        ("X-A", b"2"),
    ];
    for (body, length) in [
        (BodyFraming::Length(5), Some("5")),
        (BodyFraming::None, Some("0")),
        (BodyFraming::Chunked, None),
    ] {
        let request = GatewayRequest { method: Method::Post, fields, body, ..get() };
        let forwarded = sent(&request, &AjpSettings::default());
        let expected: Vec<&[u8]> = length.iter().map(|it| it.as_bytes()).collect();
        assert_eq!(forwarded.field("content-length"), expected);
        assert_eq!(forwarded.field("x-a"), [b"1", b"2"]);
        for name in ["transfer-encoding", "connection", "x-hop"] {
            assert!(forwarded.field(name).is_empty(), "{name} was sent");
        }
    }
    // A request without a body has no Content-Length.
    assert!(sent(&get(), &AjpSettings::default()).field("content-length").is_empty());
}

#[test]
fn a_head_of_exactly_a_packet_goes_and_one_byte_more_is_431() {
    for packet_bytes_max in [PACKET_BYTES_DEFAULT, PACKET_BYTES_MAX] {
        let settings = AjpSettings { packet_bytes_max, ..AjpSettings::default() };
        let mut out = Vec::new();
        AjpExchange::start(&mut out, &get(), &settings).unwrap();
        // Lengths and NULs of the name and the value.
        let room = packet_bytes_max - out.len() - "cookie2".len() - 6 + "cookie2".len() + 1;
        let fits = vec![b'x'; room];
        let fields: &[(&str, &[u8])] = &[("Cookie", &fits)];
        out.clear();
        AjpExchange::start(&mut out, &GatewayRequest { fields, ..get() }, &settings).unwrap();
        assert_eq!(out.len(), packet_bytes_max);
        assert_eq!(peer::request(&out).unwrap().0.field("cookie"), [&fits[..]]);

        let long = vec![b'x'; room + 1];
        let fields: &[(&str, &[u8])] = &[("Cookie", &long)];
        out.clear();
        let error = AjpExchange::start(&mut out, &GatewayRequest { fields, ..get() }, &settings)
            .unwrap_err();
        let (bytes, bytes_max) = (packet_bytes_max + 1, packet_bytes_max);
        assert_eq!(error, AjpRequestError::TooLarge { bytes, bytes_max });
        assert!(out.is_empty() && error.status() == 431, "{error}");
    }
}

#[test]
fn a_name_that_would_be_read_as_a_code_is_refused() {
    let name = "x".repeat(0xa00b);
    let fields: &[(&str, &[u8])] = &[(&name, b"1")];
    let settings = AjpSettings { packet_bytes_max: PACKET_BYTES_MAX, ..AjpSettings::default() };
    let mut out = Vec::new();
    let error = AjpExchange::start(&mut out, &GatewayRequest { fields, ..get() }, &settings);
    assert_eq!(error.unwrap_err(), AjpRequestError::NameLong { bytes: 0xa00b });
    assert!(out.is_empty());
}

#[test]
fn addresses_are_plain_also_of_ipv6_and_of_ipv4_in_ipv6() {
    let client = "[::ffff:192.0.2.9]:1".parse().unwrap();
    let local = "[2001:db8::1]:443".parse().unwrap();
    let forwarded = sent(&GatewayRequest { client, local, ..get() }, &AjpSettings::default());
    assert_eq!(forwarded.remote_addr, "192.0.2.9");
    assert_eq!(forwarded.remote_host, None);
    assert_eq!(forwarded.attribute("AJP_LOCAL_ADDR"), Some(&b"2001:db8::1"[..]));
}
