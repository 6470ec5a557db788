//! Tables of requests for each listener.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

const TOKEN: &str = "0123456789abcdef";

fn tcp(ip: &str, token: Option<&str>) -> Door {
    let token = token.map(|token| Token::parse(token).unwrap());
    Door::Tcp { ip: ip.parse().unwrap(), token, networks: Vec::new() }
}

/// The status of the refusal; 0 if the request passes.
fn verdict(door: &Door, method: Method, target: &str, fields: &[(&'static str, &str)]) -> u16 {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(*name, value.parse().unwrap());
    }
    let verdict = judge(door, &method, &target.parse().unwrap(), &headers);
    verdict.map_or_else(|problem| problem.status, |()| 0)
}

#[test]
fn hosts_that_are_ours() {
    for (ip, host, passes) in [
        ("127.0.0.1", "127.0.0.1:7070", true),
        ("127.0.0.1", "localhost:7070", true),
        ("127.0.0.1", "LOCALHOST", true),
        ("127.0.0.1", "localhost:9999", true),
        ("127.0.0.1", "[::1]:7070", true),
        ("127.0.0.1", "127.0.0.2", true),
        ("127.0.0.1", "evil.example:7070", false),
        ("127.0.0.1", "localhost.evil.example", false),
        ("127.0.0.1", "127.0.0.1.evil.example", false),
        ("127.0.0.1", "10.0.0.1:7070", false),
        ("127.0.0.1", "user@localhost", false),
        ("127.0.0.1", "", false),
        ("127.0.0.1", "local host", false),
        ("10.0.0.1", "10.0.0.1:7070", true),
        ("10.0.0.1", "10.0.0.2:7070", false),
        ("10.0.0.1", "localhost:7070", false),
        ("0.0.0.0", "10.0.0.2:7070", true),
        ("0.0.0.0", "localhost:7070", true),
        ("0.0.0.0", "evil.example:7070", false),
        ("::1", "[::1]:7070", true),
        ("::1", "localhost:7070", true),
    ] {
        let status = verdict(&tcp(ip, None), Method::GET, "/", &[("host", host)]);
        assert_eq!(status, if passes { 0 } else { 403 }, "{host:?} at {ip}");
    }
}

#[test]
fn a_host_is_there_once_and_an_absolute_target_fits() {
    let door = tcp("127.0.0.1", None);
    let own = ("host", "localhost");
    assert_eq!(verdict(&door, Method::GET, "/", &[]), 403);
    assert_eq!(verdict(&door, Method::GET, "/", &[own, own]), 403);
    assert_eq!(verdict(&door, Method::GET, "http://localhost/", &[own]), 0);
    assert_eq!(verdict(&door, Method::GET, "http://evil.example/", &[own]), 403);
}

#[test]
fn origins_are_the_host_or_refused() {
    let door = tcp("127.0.0.1", None);
    for (origin, passes) in [
        ("http://localhost:7070", true),
        ("http://127.0.0.1:7070", false),
        ("http://localhost:8080", false),
        ("https://localhost:7070", false),
        ("http://evil.example", false),
        ("http://localhost:7070.evil.example", false),
        ("null", false),
        ("", false),
    ] {
        let fields = [("host", "localhost:7070"), ("origin", origin)];
        let status = verdict(&door, Method::GET, "/", &fields);
        assert_eq!(status, if passes { 0 } else { 403 }, "{origin:?}");
    }
}

#[test]
fn tokens() {
    let own = ("host", "localhost");
    let with = |authorization| [own, ("authorization", authorization)];
    let open = tcp("127.0.0.1", None);
    let closed = tcp("127.0.0.1", Some(TOKEN));
    for method in [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE] {
        let judge = |door: &Door, fields: &[_]| verdict(door, method.clone(), "/", fields);
        let unless_read = if method.is_safe() { 0 } else { 403 };
        assert_eq!(judge(&open, &[own]), unless_read, "{method}");
        assert_eq!(judge(&open, &with("Bearer 0123456789abcdef")), unless_read, "{method}");
        assert_eq!(judge(&closed, &[own]), 401, "{method}");
        assert_eq!(judge(&closed, &with("Bearer 0123456789abcdef")), 0, "{method}");
        assert_eq!(judge(&closed, &with("bearer 0123456789abcdef")), 0, "{method}");
        for wrong in ["Bearer", "Bearer ", "Bearer 0123456789abcdeF", "Basic 0123456789abcdef"] {
            assert_eq!(judge(&closed, &with(wrong)), 401, "{method} {wrong}");
        }
        let twice = [own, with("Bearer 0123456789abcdef")[1], with("Bearer 0123456789abcdef")[1]];
        assert_eq!(judge(&closed, &twice), 401, "{method}");
    }
}

#[test]
fn the_socket_asks_for_nothing_but_a_reasonable_length() {
    let length = |length| [("content-length", length)];
    assert_eq!(verdict(&Door::Socket, Method::POST, "/", &[]), 0);
    assert_eq!(verdict(&Door::Socket, Method::POST, "/", &length("65536")), 0);
    assert_eq!(verdict(&Door::Socket, Method::POST, "/", &length("65537")), 413);
}

#[tokio::test]
async fn an_answer_that_never_comes_is_a_timeout() {
    let response = in_time(Duration::from_millis(1), std::future::pending()).await;
    assert_eq!(response.status(), 408);
}

#[test]
fn only_this_machine_and_the_networks_that_are_named_may_ask() {
    let of = |networks: &[&str]| Door::Tcp {
        ip: "0.0.0.0".parse().unwrap(),
        token: None,
        networks: networks.iter().map(|it| it.parse().unwrap()).collect(),
    };
    let status = |door: &Door, peer: &str| {
        let peer = Caller::Tcp(format!("{peer}:1").parse().unwrap());
        check_peer(door, Some(&peer)).map_or_else(|problem| problem.status, |()| 0)
    };
    let named = of(&["192.0.2.0/24", "2001:db8::/32"]);
    for (peer, expected) in [
        ("127.0.0.1", 0),
        ("[::1]", 0),
        ("192.0.2.9", 0),
        ("[::ffff:192.0.2.9]", 0),
        ("[2001:db8::7]", 0),
        ("192.0.3.9", 403),
        ("[2001:db9::7]", 403),
    ] {
        assert_eq!(status(&named, peer), expected, "{peer}");
        assert_eq!(status(&of(&[]), peer), 0, "{peer}");
    }
    assert!(check_peer(&Door::Socket, Some(&Caller::Local { uid: None })).is_ok());
}
