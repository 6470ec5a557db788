//! Every route in the API's description, on every listener, with every kind of unauthorised client.

use crate::common::{Reply, TOKEN, Under, over_socket, over_tcp, request};

/// Method and target of each route, with names filled in and a valid body.
fn routes() -> Vec<(String, String, &'static str)> {
    let api: serde_json::Value = serde_json::from_str(&skep_console::openapi_json()).unwrap();
    let mut routes = Vec::new();
    for (path, item) in api["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let name = if path.starts_with("/api/v1/services") { "web" } else { "node-1" };
            let body = match (method.as_str(), path.rsplit('/').next().unwrap()) {
                ("post", "nodes") => r#"{"name":"node-1","address":"127.0.0.1:1"}"#,
                ("post", "servers") => r#"{"name":"node-1","address":"127.0.0.1:1"}"#,
                ("put", "weight") => r#"{"weight":2}"#,
                ("put", "policy") => r#"{"policy":"random"}"#,
                ("put", "comparison") => {
                    r#"{"arms":[{"name":"a","policy":"random"},{"name":"b","policy":"random"}]}"#
                }
                ("post", "test") => "{}",
                ("post", "purge") => r#"{"what":["/a"]}"#,
                ("post", "explain") => r#"{"url":"http://a/"}"#,
                _ => "",
            };
            routes.push((
                method.to_uppercase(),
                path.replace("{name}", name).replace("{pool}", "app"),
                body,
            ));
        }
    }
    assert!(routes.len() >= 14, "{routes:?}");
    routes
}

struct Stranger {
    what: &'static str,
    token: Option<&'static str>,
    host: &'static str,
    origin: Option<&'static str>,
    /// Status with a configured token and without, for reads and for writes; 200 means that the
    /// request passes.
    with_token: [u16; 2],
    without: [u16; 2],
}

const STRANGERS: &[Stranger] = &[
    Stranger {
        what: "no token",
        token: None,
        host: "localhost",
        origin: None,
        with_token: [401, 401],
        without: [200, 403],
    },
    Stranger {
        what: "wrong token",
        token: Some("0123456789abcdef0123456789abcdee"),
        host: "localhost",
        origin: None,
        with_token: [401, 401],
        without: [200, 403],
    },
    Stranger {
        what: "right token",
        token: Some(TOKEN),
        host: "localhost",
        origin: None,
        with_token: [200, 200],
        without: [200, 403],
    },
    Stranger {
        what: "right token, own origin",
        token: Some(TOKEN),
        host: "localhost:7070",
        origin: Some("http://localhost:7070"),
        with_token: [200, 200],
        without: [200, 403],
    },
    Stranger {
        what: "right token, foreign host",
        token: Some(TOKEN),
        host: "evil.example",
        origin: None,
        with_token: [403, 403],
        without: [403, 403],
    },
    Stranger {
        what: "right token, foreign origin",
        token: Some(TOKEN),
        host: "localhost",
        origin: Some("http://evil.example"),
        with_token: [403, 403],
        without: [403, 403],
    },
];

impl Stranger {
    fn ask(&self, at: &Under, method: &str, target: &str, body: &str) -> Reply {
        let authorization = self.token.map(|token| format!("Bearer {token}"));
        let mut fields = vec![("Host", self.host), ("Content-Type", "application/json")];
        fields.extend(authorization.as_deref().map(|value| ("Authorization", value)));
        fields.extend(self.origin.map(|origin| ("Origin", origin)));
        over_tcp(at.api(), &request(method, target, &fields, body))
    }
}

/// Whether the route itself responded: adding an existing node is a conflict.
fn passed(reply: &Reply) -> bool {
    matches!(reply.status, 200 | 409)
}

#[test]
fn strangers_are_refused_at_every_route_over_tcp() {
    for token in [Some(TOKEN), None] {
        let at = Under::test(token);
        for stranger in STRANGERS {
            let expected = if token.is_some() { stranger.with_token } else { stranger.without };
            for (method, target, body) in routes() {
                let is_write = method != "GET";
                let reply = stranger.ask(&at, &method, &target, body);
                let case = format!("{}: {method} {target}, token: {token:?}", stranger.what);
                match expected[usize::from(is_write)] {
                    200 => assert!(passed(&reply), "{case}: {reply:?}"),
                    status => assert_eq!(reply.status, status, "{case}: {reply:?}"),
                }
                let was_called = !at.fake.calls().is_empty();
                assert_eq!(was_called, is_write && passed(&reply), "{case}");
                assert_eq!(reply.fields["cache-control"], "no-store", "{case}");
                assert_eq!(reply.fields["x-content-type-options"], "nosniff", "{case}");
                let asks = reply.fields.contains_key("www-authenticate");
                assert_eq!(asks, reply.status == 401, "{case}");
            }
        }
    }
}

#[test]
fn the_socket_serves_every_route_without_a_token() {
    let at = Under::test(Some(TOKEN));
    for (method, target, body) in routes() {
        let fields = [("Host", "whatever"), ("Content-Type", "application/json")];
        let reply = over_socket(&at.socket(), &request(&method, &target, &fields, body));
        assert!(passed(&reply), "{method} {target}: {reply:?}");
        assert_eq!(at.fake.calls().is_empty(), method == "GET", "{method} {target}");
    }
}

#[test]
fn head_and_options_change_nothing_and_other_methods_are_refused() {
    let at = Under::test(None);
    for (_, target, _) in routes() {
        for method in ["HEAD", "OPTIONS", "TRACE", "PATCH", "BREW"] {
            let fields = [("Host", "localhost")];
            let reply = over_socket(&at.socket(), &request(method, &target, &fields, ""));
            assert!(matches!(reply.status, 200 | 405), "{method} {target}: {reply:?}");
            assert!(at.fake.calls().is_empty(), "{method} {target}");
        }
    }
}

#[test]
fn metrics_have_a_listener_that_has_nothing_else() {
    let at = Under::test(Some(TOKEN));
    let metrics = at.handle.metrics_address().unwrap();
    let get = |target: &str| over_tcp(metrics, &request("GET", target, &[("Host", "prom")], ""));
    let reply = get("/metrics");
    assert_eq!((reply.status, reply.body.as_str()), (200, "skep_requests_total 1\n"));
    assert_eq!(reply.fields["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let reply = get("/healthz");
    assert_eq!((reply.status, reply.body.as_str()), (200, "ok\n"));
    *at.fake.draining.lock().unwrap() = true;
    assert_eq!(get("/healthz").status, 503);
    for (_, target, _) in routes() {
        get(&target).assert_problem(404, "not-found");
    }
    let reply = over_tcp(metrics, &request("POST", "/metrics", &[("Host", "prom")], ""));
    reply.assert_problem(405, "no-such-method");
    assert!(at.fake.calls().is_empty());
}
