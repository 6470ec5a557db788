//! Heads for the next hop: which fields are dropped, added and rewritten.

use skep_http::forward::{
    Claims, Forward, ForwardReply, HostPolicy, write_last_chunk, write_request, write_response,
};
use skep_http::{
    FieldSlots, HeadLimits, Method, ResponseFraming, Underscores, Version, parse_request,
    parse_response,
};

const DATE: &[u8; 29] = b"Sun, 06 Nov 1994 08:49:37 GMT";

fn plain() -> Forward<'static> {
    Forward {
        client: [192, 0, 2, 1].into(),
        proto: "http",
        host: HostPolicy::Keep,
        claims: Claims::Replace,
        target: None,
        server_name: None,
        upgrade: true,
        without: &[],
        extra: b"",
    }
}

/// The head for the next hop, as lines.
fn forwarded(head: &str, forward: &Forward<'_>) -> Vec<String> {
    let mut slots = FieldSlots::new();
    let head = parse_request(&mut slots, head.as_bytes(), &HeadLimits::default()).unwrap();
    let mut out = Vec::new();
    write_request(&mut out, &head, forward);
    lines(out)
}

fn lines(head: Vec<u8>) -> Vec<String> {
    let head = String::from_utf8(head).unwrap();
    let head = head.strip_suffix("\r\n\r\n").expect("a head ends with an empty line");
    head.split("\r\n").map(str::to_owned).collect()
}

/// Values of a field, by name.
fn values<'a>(lines: &'a [String], name: &str) -> Vec<&'a str> {
    let fields = lines[1..].iter().filter_map(|line| line.split_once(": "));
    fields.filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
}

#[test]
fn the_most_that_a_hop_adds_fits_what_the_next_one_takes() {
    let host = format!("{}:65535", vec!["a".repeat(63); 4].join("."));
    let ordinary = "X:\r\n".repeat(98);
    for line in ["Connection: upgrade\r\nUpgrade: w\r\n", "A:\r\nB:\r\n"] {
        for (method, claims) in
            [("GET", Claims::Replace), ("POST", Claims::Replace), ("POST", Claims::Extend)]
        {
            let text = format!("{method} / HTTP/1.0\r\nHost: {host}\r\n{ordinary}\r\n");
            let text = text.replacen("X:\r\nX:\r\n", line, 1);
            let mut slots = FieldSlots::new();
            let head = parse_request(&mut slots, text.as_bytes(), &HeadLimits::default()).unwrap();
            let client = "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap();
            let mut out = Vec::new();
            write_request(&mut out, &head, &Forward { client, claims, ..plain() });
            let own = HeadLimits {
                head_bytes_max: text.len(),
                fields_max: head.fields.iter().count(),
                ..HeadLimits::default()
            };
            assert!(out.len() <= own.behind_a_hop().head_bytes_max, "{} bytes", out.len());
            let mut slots = FieldSlots::new();
            let next = parse_request(&mut slots, &out, &own.behind_a_hop()).unwrap();
            assert!(next.fields.iter().count() > head.fields.iter().count());
        }
    }
}

#[test]
fn ordinary_request_gains_what_a_proxy_must_say() {
    let out = forwarded("GET /p?q HTTP/1.1\r\nHost: ex.org:8080\r\nAccept: */*\r\n\r\n", &plain());
    assert_eq!(
        out,
        [
            "GET /p?q HTTP/1.1",
            "Host: ex.org:8080",
            "Accept: */*",
            "Forwarded: for=192.0.2.1;host=\"ex.org:8080\";proto=http",
            "X-Forwarded-For: 192.0.2.1",
            "X-Forwarded-Proto: http",
            "X-Forwarded-Host: ex.org:8080",
            "Via: 1.1 skep",
        ]
    );
}

#[test]
fn absolute_and_http10_requests_become_origin_form_and_http11() {
    let out = forwarded("GET http://ex.org/p?q HTTP/1.1\r\nHost: ex.org\r\n\r\n", &plain());
    assert_eq!(out[0], "GET /p?q HTTP/1.1");
    let out = forwarded("GET /p HTTP/1.0\r\n\r\n", &plain());
    assert_eq!(out[0], "GET /p HTTP/1.1");
    assert_eq!(values(&out, "host"), ["localhost"]);
    assert_eq!(values(&out, "via"), ["1.0 skep"]);
    assert_eq!(values(&out, "forwarded"), ["for=192.0.2.1;proto=http"]);
    let out = forwarded("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", &plain());
    assert_eq!(out[0], "OPTIONS * HTTP/1.1");
}

#[test]
fn host_target_and_extra_fields_are_ours_to_set() {
    let forward = Forward {
        host: HostPolicy::Set(b"inner:81"),
        target: Some(b"/other"),
        extra: b"X-Request-Id: 7\r\n",
        ..plain()
    };
    let out = forwarded("GET /p?q HTTP/1.1\r\nHost: ex.org\r\n\r\n", &forward);
    assert_eq!(out[0], "GET /other HTTP/1.1");
    assert_eq!(values(&out, "host"), ["inner:81"]);
    assert_eq!(values(&out, "x-forwarded-host"), ["ex.org"]);
    assert_eq!(values(&out, "x-request-id"), ["7"]);
}

#[test]
fn hop_by_hop_fields_stay_on_their_hop() {
    let out = forwarded(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-Secret, host\r\nKeep-Alive: 5\r\n\
         Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic x\r\nTE: gzip\r\n\
         Trailer: X\r\nX-Secret: 1\r\nx-secret: 2\r\nX-Kept: 3\r\nUpgrade: foo\r\n\
         HTTP2-Settings: AAA\r\nExpect: 100-continue\r\n\r\n",
        &plain(),
    );
    for dropped in [
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "te",
        "trailer",
        "x-secret",
        "upgrade",
        "http2-settings",
        "expect",
    ] {
        assert!(values(&out, dropped).is_empty(), "{dropped}");
    }
    assert_eq!(values(&out, "x-kept"), ["3"]);
    assert_eq!(values(&out, "host"), ["a"], "Connection cannot name Host away");
}

#[test]
fn cve_2016_5385_httpoxy_proxy_field_is_dropped() {
    let out = forwarded("GET / HTTP/1.1\r\nHost: a\r\nProxy: http://evil\r\n\r\n", &plain());
    assert!(values(&out, "proxy").is_empty());
}

#[test]
fn claims_of_strangers_are_dropped() {
    let head = "GET / HTTP/1.1\r\nHost: a\r\nForwarded: for=6.6.6.6\r\nX-Forwarded-For: 6.6.6.6\r\n\
                X-Forwarded-Proto: https\r\nX-Forwarded-Host: bank\r\nX-Forwarded-Port: 443\r\n\
                X-Forwarded-Prefix: /x\r\nX-Real-IP: 6.6.6.6\r\n\r\n";
    let out = forwarded(head, &plain());
    assert!(!out.iter().any(|line| line.contains("6.6.6.6") || line.contains("bank")), "{out:?}");
    assert_eq!(values(&out, "x-forwarded-proto"), ["http"]);
    assert!(values(&out, "x-forwarded-port").is_empty());
    assert!(values(&out, "x-forwarded-prefix").is_empty());
}

#[test]
fn claims_of_trusted_proxies_are_added_to() {
    let head = "GET / HTTP/1.1\r\nHost: a\r\nForwarded: for=6.6.6.6\r\nX-Forwarded-For: 6.6.6.6\r\n\
                X-Forwarded-For: 7.7.7.7\r\nX-Forwarded-Proto: https\r\n\r\n";
    let out = forwarded(head, &Forward { claims: Claims::Extend, ..plain() });
    assert_eq!(values(&out, "forwarded"), ["for=6.6.6.6, for=192.0.2.1;host=\"a\";proto=http"]);
    assert_eq!(values(&out, "x-forwarded-for"), ["6.6.6.6, 7.7.7.7, 192.0.2.1"]);
    assert_eq!(values(&out, "x-forwarded-proto"), ["https"]);
    assert_eq!(values(&out, "x-forwarded-host"), ["a"]);
}

#[test]
fn what_a_trusted_proxy_says_in_one_family_of_fields_is_said_in_the_other() {
    let extended = |fields: &str| {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let out = forwarded(&head, &Forward { claims: Claims::Extend, ..plain() });
        let all = ["forwarded", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"];
        all.map(|name| values(&out, name).join(" | "))
    };
    let own = "for=192.0.2.1;host=\"a\";proto=http";
    for (fields, standard, clients, scheme, host) in [
        (
            "X-Forwarded-For: 9.9.9.9\r\nX-Forwarded-Proto: https\r\n",
            &*format!("for=9.9.9.9;host=\"a\";proto=https, {own}"),
            "9.9.9.9, 192.0.2.1",
            "https",
            "a",
        ),
        (
            "X-Forwarded-For: 2001:db8::1, 9.9.9.9:1234, x\r\nX-Forwarded-Host: b:81\r\n",
            &*format!(
                "for=\"[2001:db8::1]\";host=\"b:81\";proto=http, for=9.9.9.9, for=unknown, {own}"
            ),
            "2001:db8::1, 9.9.9.9:1234, x, 192.0.2.1",
            "http",
            "b:81",
        ),
        // A proxy that states only the scheme.
        (
            "X-Forwarded-Proto: https\r\n",
            "for=192.0.2.1;host=\"a\";proto=https",
            "192.0.2.1",
            "https",
            "a",
        ),
        (
            "Forwarded: for=\"[2001:db8::1]:80\";PROTO=https;host=\"b,c;d\"\r\nForwarded: for=9.9.9.9\r\n",
            &*format!("for=\"[2001:db8::1]:80\";PROTO=https;host=\"b,c;d\", for=9.9.9.9, {own}"),
            "2001:db8::1, 9.9.9.9, 192.0.2.1",
            "https",
            "a",
        ),
        // Nothing can break out of its parameter.
        (
            "X-Forwarded-Proto: a\"b\r\nX-Forwarded-Host: a\";proto=https\r\n",
            own,
            "192.0.2.1",
            "a\"b",
            "a\";proto=https",
        ),
        ("Forwarded: for=\"[\r\n", &*format!("for=\"[, {own}"), "192.0.2.1", "http", "a"),
    ] {
        assert_eq!(extended(fields), [standard, clients, scheme, host], "{fields}");
    }
    let many = format!("X-Forwarded-For: {}9.9.9.9\r\n", "1.1.1.1, ".repeat(100));
    let last = &extended(&many)[0];
    assert!(last.ends_with(&format!(", for=9.9.9.9, {own}")) && last.len() < 300, "{last}");
    // If both families are present, one may be the client's own.
    let lies = "X-Forwarded-For: 9.9.9.9\r\nForwarded: for=6.6.6.6;proto=https;host=evil\r\n";
    assert_eq!(extended(lies)[1..], ["9.9.9.9, 192.0.2.1", "http", "a"]);
}

#[test]
fn addresses_are_written_as_rfc7239_wants_them() {
    let v6 = Forward { client: "2001:db8::1".parse().unwrap(), proto: "https", ..plain() };
    let out = forwarded("GET / HTTP/1.1\r\nHost: a\r\n\r\n", &v6);
    assert_eq!(values(&out, "forwarded"), ["for=\"[2001:db8::1]\";host=\"a\";proto=https"]);
    assert_eq!(values(&out, "x-forwarded-for"), ["2001:db8::1"]);
    let mapped = Forward { client: "::ffff:192.0.2.9".parse().unwrap(), ..plain() };
    let out = forwarded("GET / HTTP/1.1\r\nHost: a\r\n\r\n", &mapped);
    assert_eq!(values(&out, "x-forwarded-for"), ["192.0.2.9"]);
}

#[test]
fn framing_is_written_anew() {
    let framing = |head: &str| {
        let out = forwarded(head, &plain());
        (values(&out, "content-length").join(","), values(&out, "transfer-encoding").join(","))
    };
    let of = |method, field| format!("{method} / HTTP/1.1\r\nHost: a\r\n{field}\r\n");
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(framing(&of("POST", "content-LENGTH:  5\r\n")), pair("5", ""));
    assert_eq!(framing(&of("POST", "Transfer-Encoding: CHUNKED\r\n")), pair("", "chunked"));
    assert_eq!(framing(&of("POST", "")), pair("0", ""));
    assert_eq!(framing(&of("DELETE", "Content-Length: 0\r\n")), pair("0", ""));
    assert_eq!(framing(&of("GET", "")), pair("", ""));
    // Connection cannot list the framing fields (the proxy would send a body that the next hop
    // takes for a request).
    let hidden = of("POST", "Connection: content-length\r\nContent-Length: 5\r\n");
    assert_eq!(framing(&hidden), pair("5", ""));
}

#[test]
fn upgrades_pass_when_they_may() {
    let upgrade = |method: &str, protocol: &str, allowed| {
        let head = format!(
            "{method} / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: {protocol}\r\n\r\n"
        );
        let out = forwarded(&head, &Forward { upgrade: allowed, ..plain() });
        (values(&out, "connection").join(","), values(&out, "upgrade").join(","))
    };
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(upgrade("GET", "websocket", true), pair("upgrade", "websocket"));
    assert_eq!(upgrade("GET", "websocket", false), pair("", ""));
    assert_eq!(upgrade("POST", "websocket", true), pair("", ""));
    assert_eq!(upgrade("GET", "h2c", true), pair("", ""));
    assert_eq!(upgrade("GET", "websocket, H2C", true), pair("", ""));
}

// === Replies ===

fn replied(method: &str, head: &str, version: Version) -> (Vec<String>, ResponseFraming) {
    let mut slots = FieldSlots::new();
    let limits = HeadLimits::default();
    let head = parse_response(&mut slots, head.as_bytes(), Method::of(method), &limits).unwrap();
    let mut out = Vec::new();
    let reply = ForwardReply {
        version,
        keep_alive: true,
        date: DATE,
        trailers: true,
        without: &["X-Dropped".to_owned()],
        extra: &[b"X-Extra: 1\r\n", b""],
    };
    let framing = write_response(&mut out, &head, &reply);
    (lines(out), framing)
}

#[test]
fn reply_keeps_its_fields_and_gains_a_date() {
    let head = "HTTP/1.1 200 Fine\r\nServer: x\r\nContent-Length: 5\r\nSet-Cookie: a\r\n\
                Set-Cookie: b\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\n\r\n";
    let (out, framing) = replied("GET", head, Version::Http11);
    assert_eq!(framing, ResponseFraming::Length(5));
    assert_eq!(
        out,
        [
            "HTTP/1.1 200 OK",
            "Server: x",
            "Set-Cookie: a",
            "Set-Cookie: b",
            "Date: Sun, 06 Nov 1994 08:49:37 GMT",
            "Content-Length: 5",
            "X-Extra: 1",
        ]
    );
    let (out, _) = replied("GET", "HTTP/1.1 200 OK\r\nDate: then\r\n\r\n", Version::Http11);
    assert_eq!(values(&out, "date"), ["then"]);
    let (out, _) = replied("GET", "HTTP/1.1 200 OK\r\nDate: a\r\nDate: b\r\n\r\n", Version::Http11);
    assert_eq!(values(&out, "date"), ["Sun, 06 Nov 1994 08:49:37 GMT"]);
}

#[test]
fn reply_framing_follows_the_client() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let until_close = "HTTP/1.1 200 OK\r\n\r\n";
    for head in [chunked, until_close] {
        let (out, framing) = replied("GET", head, Version::Http11);
        assert_eq!(framing, ResponseFraming::Chunked);
        assert_eq!(values(&out, "transfer-encoding"), ["chunked"]);
        let (out, framing) = replied("GET", head, Version::Http10);
        assert_eq!(framing, ResponseFraming::UntilClose);
        assert!(values(&out, "transfer-encoding").is_empty());
        assert_eq!(values(&out, "connection"), ["close"]);
    }
    let (out, framing) =
        replied("GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Version::Http10);
    assert_eq!(framing, ResponseFraming::Length(5));
    assert_eq!(values(&out, "connection"), ["keep-alive"]);
}

#[test]
fn bodiless_replies_tell_the_length_where_it_has_a_meaning() {
    let length = |method, head| {
        let (out, framing) = replied(method, head, Version::Http11);
        assert_eq!(framing, ResponseFraming::None);
        values(&out, "content-length").join(",")
    };
    assert_eq!(length("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), "5");
    assert_eq!(length("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"), "5");
    assert_eq!(length("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), "0");
    assert_eq!(length("GET", "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"), "");
}

#[test]
fn interim_and_switching_replies_pass() {
    let early = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nConnection: x\r\n\r\n";
    let (out, framing) = replied("GET", early, Version::Http11);
    assert_eq!(framing, ResponseFraming::None);
    assert_eq!(out, ["HTTP/1.1 103 Early Hints", "Link: </a.css>", "X-Extra: 1"]);
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                  Sec-WebSocket-Accept: x\r\n\r\n";
    let (out, _) = replied("GET", switch, Version::Http11);
    assert_eq!(values(&out, "connection"), ["upgrade"]);
    assert_eq!(values(&out, "upgrade"), ["websocket"]);
    assert_eq!(values(&out, "sec-websocket-accept"), ["x"]);
}

#[test]
fn unregistered_status_keeps_its_code_and_phrase() {
    let head = "HTTP/1.1 599 Odd One\r\nContent-Length: 0\r\n\r\n";
    let (out, _) = replied("GET", head, Version::Http11);
    assert_eq!(out[0], "HTTP/1.1 599 Odd One");
}

#[test]
fn cve_2024_45614_names_with_underscores_imitate_nothing_that_is_written_here() {
    let head = b"GET / HTTP/1.1\r\nHost: a\r\nUser_Id: 1\r\nX_Forwarded_For: 2\r\nX-Forwarded_Proto: 3\r\n\
        Transfer_Encoding: 4\r\nCONTENT_LENGTH: 5\r\nhttp2_settings: 6\r\nX_Real-IP: 7\r\nHost_: 8\r\n\r\n";
    let limits = HeadLimits { underscores: Underscores::Pass, ..HeadLimits::default() };
    let mut slots = FieldSlots::new();
    let parsed = parse_request(&mut slots, head, &limits).unwrap();
    for claims in [Claims::Replace, Claims::Extend, Claims::Keep] {
        let mut out = Vec::new();
        write_request(&mut out, &parsed, &Forward { claims, ..plain() });
        let out = String::from_utf8(out).unwrap();
        let names = out.lines().filter_map(|line| Some(line.split_once(": ")?.0));
        let odd: Vec<_> = names.filter(|name| name.contains('_')).collect();
        assert_eq!(odd, ["User_Id", "Host_"], "{out}");
    }
}

#[test]
fn claims_of_a_dispatcher_of_the_cluster_are_kept_as_they_are() {
    let head = "GET / HTTP/1.1\r\nHost: a\r\nForwarded: for=9.9.9.9;proto=https\r\n\
        X-Forwarded-For: 9.9.9.9\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: b\r\n\r\n";
    let keep = Forward { claims: Claims::Keep, ..plain() };
    let out = forwarded(head, &keep);
    assert_eq!(values(&out, "forwarded"), ["for=9.9.9.9;proto=https"]);
    assert_eq!(values(&out, "x-forwarded-for"), ["9.9.9.9"]);
    assert_eq!(values(&out, "x-forwarded-proto"), ["https"]);
    assert_eq!(values(&out, "x-forwarded-host"), ["b"]);
    // For a peer that states nothing, the fields are generated.
    let out = forwarded("GET / HTTP/1.1\r\nHost: a\r\n\r\n", &keep);
    assert_eq!(values(&out, "x-forwarded-for"), ["192.0.2.1"]);
}

#[test]
fn fields_are_left_out_and_set() {
    let without = ["Cookie".to_owned(), "x-a".to_owned()];
    let set = Forward { without: &without, extra: b"X-A: new\r\n", ..plain() };
    let head = "GET / HTTP/1.1\r\nHost: a\r\nCOOKIE: 1\r\nX-A: old\r\nX-B: b\r\n\r\n";
    let out = forwarded(head, &set);
    assert_eq!((values(&out, "cookie").len(), values(&out, "x-b")), (0, vec!["b"]));
    assert_eq!(values(&out, "x-a"), ["new"]);
}

#[test]
fn who_takes_trailers_says_so_to_the_next_hop() {
    let te = |line: &str| {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: TE\r\n{line}\r\n");
        let out = forwarded(&head, &plain());
        (values(&out, "te").join(","), values(&out, "connection").join(","))
    };
    assert_eq!(te("TE: gzip, Trailers\r\n"), ("trailers".to_owned(), "TE".to_owned()));
    assert_eq!(te("TE: gzip\r\n"), (String::new(), String::new()));
    assert_eq!(te(""), (String::new(), String::new()));
}

#[test]
fn trailers_that_would_change_the_message_are_left_out() {
    let mut out = Vec::new();
    let trailers =
        b"X-Sum: 1\r\nContent-Length: 9\r\nHost: b\r\nset-cookie: c\r\nGrpc-Status:0\r\n\
        X_Forwarded_For: 1\r\nTransfer-Encoding: chunked\r\n";
    write_last_chunk(&mut out, trailers);
    assert_eq!(out, b"0\r\nX-Sum: 1\r\nGrpc-Status:0\r\n\r\n");
    out.clear();
    write_last_chunk(&mut out, b"");
    assert_eq!(out, b"0\r\n\r\n");
}

/// The client stated in a request with these lines, as far as it is trusted.
fn named_client(lines: &str, claims: Claims) -> Option<String> {
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let mut slots = FieldSlots::new();
    let head = parse_request(&mut slots, head.as_bytes(), &HeadLimits::default()).unwrap();
    claims.client(&head).map(|it| it.to_string())
}

#[test]
fn the_client_is_the_one_whom_the_nearest_proxy_saw() {
    // The field lines; the last client; and the one before, if a dispatcher trusts its peer.
    for (lines, extended, kept) in [
        ("", None, None),
        ("X-Forwarded-For: 192.0.2.1\r\n", Some("192.0.2.1"), Some("192.0.2.1")),
        ("X-Forwarded-For: 192.0.2.1, 10.0.0.1\r\n", Some("10.0.0.1"), Some("192.0.2.1")),
        ("X-Forwarded-For: 6.6.6.6, 192.0.2.1,10.0.0.1\r\n", Some("10.0.0.1"), Some("192.0.2.1")),
        (
            "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 2001:db8::1, 10.0.0.1\r\n",
            Some("10.0.0.1"),
            Some("2001:db8::1"),
        ),
        ("X-Forwarded-For: unknown\r\n", None, None),
        ("X-Forwarded-For: 192.0.2.1, unknown, 10.0.0.1\r\n", Some("10.0.0.1"), None),
        ("Forwarded: for=192.0.2.1:4711;host=a\r\n", Some("192.0.2.1"), Some("192.0.2.1")),
        (
            "Forwarded: for=\"[2001:db8::1]\", for=10.0.0.1\r\n",
            Some("10.0.0.1"),
            Some("2001:db8::1"),
        ),
    ] {
        let named = |claims| named_client(lines, claims);
        assert_eq!(named(Claims::Replace), None, "{lines}");
        assert_eq!(named(Claims::Extend).as_deref(), extended, "{lines}");
        assert_eq!(named(Claims::Keep).as_deref(), kept, "{lines}");
    }
}
