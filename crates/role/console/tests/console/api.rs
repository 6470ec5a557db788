//! Responses of the API to valid requests and to malformed ones.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use crate::common::{Fake, Reply, TOKEN, Under, over_socket, over_tcp, request};
use skep_console::{
    ApiClient, ApiClientError, ConsoleConfig, ConsoleError, NewArm, NewComparison, NewNode,
    NewPolicy, NewWeight, NodeState, NodeStatus, PolicyComparison, Reloaded, ServiceStatus, Token,
};
use tokio::net::TcpSocket;

const JSON: (&str, &str) = ("Content-Type", "application/json");

fn send(at: &Under, method: &str, target: &str, body: &str) -> Reply {
    over_socket(&at.socket(), &request(method, target, &[("Host", "skep"), JSON], body))
}

#[test]
fn the_client_does_all_that_the_api_can() {
    let at = Under::test(None);
    let client = ApiClient::socket(&at.socket());
    assert_eq!(client.status().unwrap().name, "gate");
    let nodes = |answer| -> Vec<NodeStatus> { client.decode(&answer).unwrap() };
    assert_eq!(nodes(client.get("/api/v1/nodes").unwrap()).len(), 2);

    let new = NewNode {
        name: "node-3".into(),
        address: ([127, 0, 0, 1], 8083).into(),
        weight: 5,
        public_address: None,
        service: None,
    };
    let added = nodes(client.post_json("/api/v1/nodes", &new).unwrap());
    assert_eq!((added[0].name.as_str(), added[0].weight), ("node-3", 5));
    let drained = nodes(client.post("/api/v1/nodes/node-3/drain?service=web").unwrap());
    assert_eq!(drained[0].state, NodeState::Draining);
    let resumed = nodes(client.post("/api/v1/nodes/node-3/resume").unwrap());
    assert_eq!(resumed[0].state, NodeState::Up);
    let weight = NewWeight { weight: 9 };
    let heavier = nodes(client.put_json("/api/v1/nodes/node-3/weight", &weight).unwrap());
    assert_eq!(heavier[0].weight, 9);
    let removed = nodes(client.delete("/api/v1/nodes/node-3?timeout_ms=5").unwrap());
    assert_eq!(removed[0].state, NodeState::Removing);
    let policy = NewPolicy { policy: "random".into() };
    let answer = client.put_json("/api/v1/services/web/policy", &policy).unwrap();
    let services: Vec<ServiceStatus> = client.decode(&answer).unwrap();
    assert_eq!(services[0].policy, "random");
    let reloaded: Reloaded = client.decode(&client.post("/api/v1/reload").unwrap()).unwrap();
    assert_eq!(reloaded.config_generation, 2);
    assert_eq!(client.get("/api/v1/config").unwrap().text(), "cluster = \"skep\"\n");
    assert_eq!(
        at.fake.calls(),
        [
            "add node-3",
            "drain node-3 of Some(\"web\")",
            "resume node-3 of None",
            "weight node-3 of None is 9",
            "remove node-3 of None within 5",
            "policy of web is random",
            "reload",
        ]
    );
}

#[test]
fn policies_are_compared_and_no_more() {
    let at = Under::test(None);
    let client = ApiClient::socket(&at.socket());
    let arm = |name: &str| NewArm {
        name: name.into(),
        policy: "random".into(),
        weight: None,
        nodes: Vec::new(),
    };
    let path = "/api/v1/services/web/comparison";
    let new = NewComparison { arms: vec![arm("a"), arm("b")] };
    for answer in [client.put_json(path, &new), client.get(path), client.delete(path)] {
        let shown: PolicyComparison = client.decode(&answer.unwrap()).unwrap();
        assert_eq!(shown.service, "web");
    }
    assert_eq!(at.fake.calls(), ["compare a=random b=random in web", "compare no more in web"]);
}

#[test]
fn the_client_over_tcp_needs_the_token_and_hides_it() {
    let at = Under::test(Some(TOKEN));
    let url = format!("http://localhost:{}", at.api().port());
    let with = |token| ApiClient::tcp(&url, token).unwrap();
    assert_eq!(with(Token::parse(TOKEN)).status().unwrap().name, "gate");
    match with(None).status() {
        Err(ApiClientError::Refused(problem)) => assert_eq!(problem.status, 401),
        other => panic!("{other:?}"),
    }
    assert!(!format!("{:?}", with(Token::parse(TOKEN))).contains(TOKEN));
}

#[test]
fn the_client_says_who_did_not_answer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none.sock");
    let error = ApiClient::socket(&path).status().unwrap_err();
    assert!(error.to_string().contains("none.sock"), "{error}");
    for url in ["127.0.0.1:7070", "https://127.0.0.1:7070", "http://127.0.0.1", "http://"] {
        let error = ApiClient::tcp(url, None).unwrap_err();
        assert!(matches!(error, ApiClientError::BadUrl { .. }), "{url}: {error}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").unwrap();
    });
    let error = ApiClient::tcp(&url, None).unwrap().status().unwrap_err();
    assert!(matches!(error, ApiClientError::Foreign { .. }), "{error}");
    server.join().unwrap();
}

#[test]
fn refusals_are_problems_with_hints() {
    let at = Under::test(None);
    let reply = send(&at, "POST", "/api/v1/nodes/nod-1/drain", "");
    reply.assert_problem(404, "not-found");
    assert_eq!(reply.json()["did_you_mean"], "node-1");
    let reply = send(&at, "PUT", "/api/v1/services/web/policy", r#"{"policy":"round-robbin"}"#);
    reply.assert_problem(422, "invalid");
    assert_eq!(reply.json()["did_you_mean"], "round-robin");
    let node = r#"{"name":"node-1","address":"127.0.0.1:1"}"#;
    send(&at, "POST", "/api/v1/nodes", node).assert_problem(409, "conflict");
    send(&at, "GET", "/api/v1/nowhere", "").assert_problem(404, "not-found");
    send(&at, "GET", "/", "").assert_problem(404, "not-found");
    send(&at, "DELETE", "/api/v1/status", "").assert_problem(405, "no-such-method");
}

#[test]
fn malformed_bodies_and_queries_do_nothing() {
    let at = Under::test(None);
    for (body, status, word) in [
        ("", 400, "malformed"),
        ("{", 400, "malformed"),
        ("nonsense", 400, "malformed"),
        ("\u{0}", 400, "malformed"),
        (r#"{"weight":2}x"#, 400, "malformed"),
        ("[]", 422, "invalid"),
        (" [2]", 422, "invalid"),
        ("{}", 422, "invalid"),
        (r#"{"weight":-1}"#, 422, "invalid"),
        (r#"{"weight":99999999999}"#, 422, "invalid"),
        (r#"{"weight":"2"}"#, 422, "invalid"),
        (r#"{"weight":2,"wieght":3}"#, 422, "invalid"),
        (r#"{"weight":0}"#, 422, "invalid"),
    ] {
        let reply = send(&at, "PUT", "/api/v1/nodes/node-1/weight", body);
        reply.assert_problem(status, word);
    }
    let deep = r#"{"name":"#.repeat(7_000);
    send(&at, "POST", "/api/v1/nodes", &deep).assert_problem(422, "invalid");
    for target in [
        "/api/v1/nodes/node-1/drain?service=web&servise=x",
        "/api/v1/nodes/node-1/drain?service=web&service=web",
        "/api/v1/nodes/%ff/drain",
    ] {
        send(&at, "POST", target, "").assert_problem(400, "malformed");
    }
    let target = "/api/v1/nodes/node-1?timeout_ms=soon";
    send(&at, "DELETE", target, "").assert_problem(400, "malformed");
    assert!(at.fake.calls().is_empty());
}

#[test]
fn bodies_must_say_that_they_are_json() {
    let at = Under::test(None);
    for (media_type, status) in [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/jsonp", 415),
        ("", 415),
    ] {
        let fields = [("Host", "skep"), ("Content-Type", media_type)];
        let target = "/api/v1/nodes/node-1/weight";
        let bytes = request("PUT", target, &fields, r#"{"weight":2}"#);
        assert_eq!(over_socket(&at.socket(), &bytes).status, status, "{media_type}");
    }
}

#[test]
fn bodies_over_64_kib_are_refused_announced_or_not() {
    let at = Under::test(None);
    let large = format!("{{\"weight\":2{}}}", " ".repeat(64 * 1024));
    let target = "/api/v1/nodes/node-1/weight";
    send(&at, "PUT", target, &large).assert_problem(413, "too-large");
    send(&at, "POST", "/api/v1/reload", &large).assert_problem(413, "too-large");
    let head = request("PUT", target, &[("Host", "skep"), JSON], "");
    let head = head.replace("\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunked = format!("{head}{:x}\r\n{large}\r\n0\r\n\r\n", large.len());
    over_socket(&at.socket(), &chunked).assert_problem(413, "too-large");
    assert!(at.fake.calls().is_empty());
}

#[test]
fn heads_over_the_limit_and_no_http_at_all_are_refused() {
    let at = Under::test(None);
    let long = "x".repeat(32 * 1024);
    let reply = send(&at, "GET", &format!("/api/v1/status?{long}"), "");
    assert!(matches!(reply.status, 414 | 431), "{reply:?}");
    assert_eq!(over_tcp(at.api(), "hello\r\n\r\n").status, 400);
    assert_eq!(send(&at, "GET", "/api/v1/status", "").status, 200);
}

#[test]
fn connections_at_rest_make_room_and_other_doors_stay_open() {
    const PLACES: usize = 64;
    let at = Under::test(None);
    let mut held = Vec::new();
    for _ in 0..3 * PLACES {
        let mut stream = std::net::TcpStream::connect(at.api()).unwrap();
        let ask = request("GET", "/api/v1/config", &[("Host", "localhost")], "");
        let ask = ask.replace("Connection: close\r\n", "");
        stream.write_all(ask.as_bytes()).unwrap();
        let mut reply = [0; 12];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(String::from_utf8_lossy(&reply), "HTTP/1.1 200");
        held.push(stream);
    }
    // The oldest connections are closed, long before their idle timeout.
    for stream in &mut held[..PLACES] {
        stream.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        let mut rest = Vec::new();
        match stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
    assert_eq!(send(&at, "GET", "/api/v1/status", "").status, 200);
}

#[test]
fn requests_that_never_end_leave_room_for_others() {
    const HALF_SENT: usize = 300;
    let at = Under::test(None);
    let held = (0..HALF_SENT).map(|_| {
        let mut stream = std::net::TcpStream::connect(at.api()).unwrap();
        // Idle connections beyond the limit are closed, oldest first.
        let _ = stream.write_all(b"GET /api/v1/st");
        stream
    });
    let _held: Vec<_> = held.collect();
    for _ in 0..3 {
        assert_eq!(send(&at, "GET", "/api/v1/status", "").status, 200);
    }
}

#[test]
fn the_socket_is_for_owner_and_group_and_goes_with_the_console() {
    let at = Under::test(None);
    let mode = std::fs::metadata(at.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let socket = at.socket();
    at.handle.stop();
    assert!(!socket.exists());
    // No other program is assigned this address meanwhile.
    let reserved = TcpSocket::new_v4().unwrap();
    reserved.set_reuseaddr(true).unwrap();
    reserved.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let listen = reserved.local_addr().unwrap();
    let config = ConsoleConfig { listen: Some(listen), ..Default::default() };
    let handle = crate::common::start(config, Fake::new()).unwrap();
    assert_eq!(handle.api_address(), Some(listen));
    handle.stop();
    TcpListener::bind(listen).expect("the port is free");
}

#[test]
fn a_console_that_cannot_start_says_why_in_a_sentence() {
    let at = Under::test(None);
    let start = |config| match crate::common::start(config, Fake::new()) {
        Ok(_) => panic!("started"),
        Err(error) => error,
    };
    let socket = ConsoleConfig { socket: Some(at.socket()), ..Default::default() };
    let error = start(socket);
    assert!(matches!(error, ConsoleError::SocketInUse { .. }), "{error}");
    UnixStream::connect(at.socket()).expect("the first still answers");

    let listen = ConsoleConfig { listen: Some(at.api()), ..Default::default() };
    let error = start(listen).to_string();
    assert!(error.contains(&at.api().to_string()) && error.contains("admin.listen"), "{error}");
    let metrics = ConsoleConfig { metrics_listen: Some(at.api()), ..Default::default() };
    let error = start(metrics).to_string();
    assert!(error.contains("metrics.listen"), "{error}");

    let anywhere = ([0, 0, 0, 0], 0).into();
    let error = start(ConsoleConfig { listen: Some(anywhere), ..Default::default() });
    assert!(matches!(error, ConsoleError::TokenNeeded { .. }), "{error}");
    let token = Token::parse(TOKEN);
    let config = ConsoleConfig { listen: Some(anywhere), token, ..Default::default() };
    crate::common::start(config, Fake::new()).unwrap().stop();

    let folder = std::path::Path::new("/proc/nowhere/n.sock");
    let error = start(ConsoleConfig { socket: Some(folder.into()), ..Default::default() });
    assert!(matches!(error, ConsoleError::Socket { .. }), "{error}");
}

#[test]
fn what_was_opened_before_a_failure_is_closed_again() {
    let at = Under::test(None);
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("n.sock");
    let config = ConsoleConfig {
        socket: Some(socket.clone()),
        listen: Some(at.api()),
        ..Default::default()
    };
    assert!(crate::common::start(config, Arc::clone(&at.fake) as _).is_err());
    assert!(!socket.exists());
}
