//! Pools: the requests that application servers receive, and the responses of clients.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Condvar, Mutex};

use skep_tests::app::{App, AppRequest, response};
use skep_tests::{FreePort, PATIENCE, RawClient, Response, Site, Skep, SourceAddress, poll_until};

/// Returns config lines of a pool with these servers, with further settings of each.
pub(super) fn pool_lines(settings: &str, servers: &[(SocketAddr, &str)]) -> String {
    let mut lines = format!("[[pool]]\nname = \"app\"\n{settings}\n");
    for (number, (address, of_server)) in (1..).zip(servers) {
        lines += &format!(
            "[[pool.server]]\nname = \"s{number}\"\naddress = \"{address}\"\n{of_server}\n"
        );
    }
    lines
}

/// A node whose site is the pool of `app`; `site` contains more lines of the site.
fn node(app: &App, site: &str, pool: &str) -> Skep {
    let pool = pool_lines(pool, &[(app.address(), "")]);
    Skep::node_of(&format!("pool = \"app\"\n{site}\n{pool}"))
}

/// Returns the output of `skep ARGUMENTS`, which must succeed.
fn done(skep: &Skep, arguments: &[&str]) -> String {
    let finished = skep.command(arguments);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    finished.stdout
}

/// A server that answers 200 and reports the requests it receives.
fn telling() -> (App, Receiver<AppRequest>) {
    let (tell, told) = sync_channel(64);
    let app = App::answering(move |received| {
        tell.send(received.clone()).unwrap();
        let fields = "X-App: 1\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nKeep-Alive: timeout=9\r\n\
                      Connection: X-Hop\r\nX-Hop: 1\r\nCache-Control: max-age=60\r\n";
        response(200, fields, "answer")
    });
    (app, told)
}

fn next(told: &Receiver<AppRequest>) -> AppRequest {
    told.recv_timeout(PATIENCE).expect("the server got a request")
}

#[test]
fn requests_pass_with_all_that_is_meant_for_the_application() {
    let (app, told) = telling();
    let skep = node(&app, "headers = { \"X-Site\" = \"1\" }", "");
    let mut client = skep.connect();
    let head = "POST /a/%7eb?c=d%20e HTTP/1.1\r\nHost: shop.example:81\r\nCookie: s=1\r\n\
                Authorization: Basic eA==\r\nX-Own: 1\r\nX-Drop: 2\r\nConnection: X-Drop\r\n\
                X-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nX_Real_IP: 6.6.6.6\r\n\
                Proxy: evil\r\nUser-Agent: test\r\nContent-Length: 5\r\n\r\nhello";
    let reply = client.send(head).response();
    let got = next(&told);
    assert_eq!(got.line(), "POST /a/~b?c=d%20e HTTP/1.1");
    assert_eq!(got.body, b"hello");
    for (name, value) in [
        ("host", Some("shop.example:81")),
        ("cookie", Some("s=1")),
        ("authorization", Some("Basic eA==")),
        ("x-own", Some("1")),
        ("user-agent", Some("test")),
        ("x-forwarded-for", Some("127.0.0.1")),
        ("x-forwarded-proto", Some("http")),
        ("x-forwarded-host", Some("shop.example:81")),
        ("forwarded", Some("for=127.0.0.1;host=\"shop.example:81\";proto=http")),
        ("via", Some("1.1 skep")),
        ("x-drop", None),
        ("connection", None),
        ("x_real_ip", None),
        ("proxy", None),
    ] {
        assert_eq!(got.field(name), value, "{name} of\n{}", got.head);
    }
    assert_eq!((reply.status, reply.text().as_str()), (200, "answer"));
    reply.assert_header("x-app", "1").assert_header("x-site", "1");
    reply.assert_header("cache-control", "max-age=60");
    reply.assert_header("cache-status", "skep; fwd=bypass");
    assert_eq!(reply.header_all("set-cookie").collect::<Vec<_>>(), ["a=1", "b=2"]);
    for gone in ["x-hop", "keep-alive", "connection"] {
        assert_eq!(reply.header(gone), None, "{gone}");
    }
    // A repeated request reaches the application again: nothing is stored.
    for _ in 0..2 {
        client.get("/same").assert_status(200);
        assert_eq!(next(&told).line(), "GET /same HTTP/1.1");
    }
    // A health check, and a pooled connection for all requests.
    poll_until(PATIENCE, "the check is accepted, too", || app.connections() == 2);
}

#[test]
fn all_methods_pass_but_trace() {
    let (app, told) = telling();
    let skep = node(&app, "", "");
    let mut client = skep.connect();
    for method in ["GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PROPFIND", "M-SEARCH"] {
        client.request(method, "/x", &[]).assert_status(200);
        assert_eq!(next(&told).line(), format!("{method} /x HTTP/1.1"));
    }
    client.send("HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.try_response_to("HEAD").unwrap();
    head.assert_status(200).assert_header("content-length", "6");
    assert!(next(&told).line().starts_with("HEAD "));
    let refused = client.request("TRACE", "/x", &[]);
    // The allowed methods (RFC 9110, section 15.5.6).
    refused
        .assert_status(405)
        .assert_header("allow", "GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH");
    assert!(told.try_recv().is_err());
}

#[test]
fn bodies_in_chunks_and_trailers_pass_both_ways() {
    let app = App::answering(|received| {
        let body = format!("{} {}", String::from_utf8_lossy(&received.body), received.trailers);
        let chunk = format!("{:?} {body}", received.field("te"));
        format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n{:x}\r\n{chunk}\r\n\
             0\r\nX-End: 7\r\nContent-Length: 1\r\n\r\n",
            chunk.len()
        )
        .into_bytes()
    });
    let skep = node(&app, "", "");
    let mut client = skep.connect();
    let head = "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTE: trailers\r\n\
                Connection: TE\r\n\r\n";
    client
        .send(head)
        .send("3;x=y\r\none\r\n")
        .send("4\r\n two\r\n0\r\nX-Sum: 9\r\nHost: b\r\n\r\n");
    let reply = client.response();
    assert_eq!(reply.text(), "Some(\"trailers\") one two X-Sum: 9\r\n");
    assert!(reply.raw.ends_with(b"\r\n0\r\nX-End: 7\r\n\r\n"), "{}", reply.head_text());
    let plain = client.get("/");
    assert!(plain.raw.ends_with(b"0\r\n\r\n") && plain.header("trailer").is_none());
}

#[test]
fn a_client_that_expects_100_is_told_to_go_on_and_hints_pass() {
    let app = App::answering(|received| {
        let hint =
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n";
        [hint.as_bytes(), &response(200, "", &received.body)].concat()
    });
    let skep = node(&app, "", "");
    let mut client = skep.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    client.response().assert_status(100);
    client.send("ok");
    let hint = client.response();
    hint.assert_status(103).assert_header("link", "</a.css>");
    assert_eq!(client.response().assert_status(200).text(), "ok");
    // An HTTP/1.0 client would mistake an interim response for the final one.
    let mut old = skep.connect();
    old.send("GET / HTTP/1.0\r\n\r\n");
    old.response().assert_status(200);
}

#[test]
fn clients_of_http_1_0_get_bodies_without_length_to_the_close() {
    let app = App::start(|conn| {
        while conn.request().is_some() {
            conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n");
        }
    });
    let skep = node(&app, "", "");
    let mut client = skep.connect();
    let reply = client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").response();
    assert_eq!((reply.text().as_str(), reply.says_close()), ("ok", true));
    client.assert_closed();
    // A response that the server ends by closing is sent in chunks to other clients.
    let until_close = App::start(|conn| {
        if conn.request().is_some() {
            conn.send("HTTP/1.0 200 OK\r\n\r\nall of it");
        }
    });
    let skep = node(&until_close, "", "");
    let mut client = skep.connect();
    let reply = client.get("/");
    assert_eq!(reply.text(), "all of it");
    reply.assert_header("transfer-encoding", "chunked");
    assert_eq!(client.get("/").text(), "all of it", "the client's connection goes on");
}

/// A gate that a test opens.
#[derive(Clone, Default)]
pub(super) struct Gate(Arc<(Mutex<usize>, Condvar)>);

impl Gate {
    pub(super) fn open(&self) {
        *self.0.0.lock().unwrap() += 1;
        self.0.1.notify_all();
    }

    /// Waits for one opening.
    pub(super) fn pass(&self) {
        let mut openings = self.0.0.lock().unwrap();
        while *openings == 0 {
            let (guard, waited) = self.0.1.wait_timeout(openings, PATIENCE).unwrap();
            assert!(!waited.timed_out(), "the test opens it");
            openings = guard;
        }
        *openings -= 1;
    }
}

#[test]
fn events_arrive_while_the_server_still_writes() {
    let gate = Gate::default();
    let shut = gate.clone();
    let app = App::start(move |conn| {
        if conn.request().is_some() {
            conn.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n");
            shut.pass();
            conn.send("data: 2\n\n");
            shut.pass();
        }
    });
    let skep = node(&app, "", "stall_timeout_ms = 100");
    let mut client = skep.connect();
    client.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n");
    client.try_head().unwrap().assert_status(200);
    let mut read_until = |wanted: &str, text: &mut String| {
        while !text.contains(wanted) {
            text.push_str(&String::from_utf8(client.try_read_some().unwrap()).unwrap());
        }
    };
    let mut text = String::new();
    read_until("data: 1\n\n", &mut text);
    // Far longer than the stall timeout of bodies: events are sent only when they occur.
    std::thread::sleep(std::time::Duration::from_millis(400));
    gate.open();
    read_until("data: 2\n\n", &mut text);
    gate.open();
    read_until("0\r\n\r\n", &mut text);
}

#[test]
fn connections_are_upgraded_and_both_sides_end_apart() {
    let app = App::start(|conn| {
        let Some(head) = conn.head() else { return };
        if !head.contains("Upgrade: websocket\r\n") {
            return;
        }
        conn.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: x\r\n\r\nhi",
        );
        let echo = conn.exactly(4).unwrap();
        conn.send(echo);
        conn.wait_for_end();
        conn.send("the last words");
    });
    let skep = node(&app, "", "");
    let upgrade = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\n\
                   Upgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n";
    let mut client = skep.connect();
    // Bytes after the head are held back until the 101.
    client.send([upgrade, "echo"].concat());
    let reply = client.response();
    reply.assert_status(101).assert_header("upgrade", "websocket");
    reply.assert_header("sec-websocket-accept", "x").assert_header("connection", "upgrade");
    client.finish_sending();
    assert_eq!(String::from_utf8(client.read_to_close()).unwrap(), "hiechothe last words");
    // If a route does not allow upgrades, the request is treated like any other.
    let (plain, told) = telling();
    let skep = node(&plain, "forward.upgrade = false", "");
    skep.connect().send(upgrade).response().assert_status(200);
    assert_eq!(next(&told).field("upgrade"), None);
}

#[test]
fn an_answer_may_come_before_the_body_has_ended() {
    let app = App::start(|conn| {
        if conn.head().is_some() {
            conn.send(
                "HTTP/1.1 413 Too Much\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n",
            );
            conn.wait_for_end();
        }
    });
    let skep = node(&app, "", "request_buffering = false");
    let mut client = skep.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nsome");
    assert_eq!(client.response().assert_status(413).text(), "no\n");
}

#[test]
fn routes_change_paths_fields_and_methods() {
    let (app, told) = telling();
    let pool = pool_lines("", &[(app.address(), "")]);
    let site = Site::new().with("index.html", "home");
    let skep = Skep::node_of(&format!(
        "root = \"{}\"\nheaders = {{ \"X-App\" = \"site\" }}\n\
         [[site.route]]\npath = \"/api/*\"\npool = \"app\"\n[site.route.forward]\n\
         strip_prefix = \"/api\"\nadd_prefix = \"/v2\"\nhost = \"inner.example\"\n\
         methods = [\"GET\", \"POST\"]\nrequest_headers = {{ \"X-Key\" = \"new\" }}\n\
         request_headers_removed = [\"Cookie\"]\nresponse_headers_removed = [\"set-cookie\"]\n{pool}",
        site.root().display()
    ));
    let mut client = skep.connect();
    assert_eq!(client.get("/").text(), "home");
    let reply = client.request("GET", "/api/a/../b?q", &[("X-Key", "old"), ("Cookie", "c=1")]);
    let got = next(&told);
    assert_eq!(got.line(), "GET /v2/b?q HTTP/1.1");
    assert_eq!((got.field("host"), got.field("x-key")), (Some("inner.example"), Some("new")));
    assert_eq!((got.field("cookie"), reply.header("set-cookie")), (None, None));
    reply.assert_header("x-app", "site");
    let refused = client.request("DELETE", "/api/b", &[]);
    refused.assert_status(405).assert_header("allow", "GET, POST");
    for target in ["//api/b", "/api/..;/x"] {
        skep.connect().get(target).assert_status(400);
    }
    assert!(told.try_recv().is_err());
}

#[test]
fn what_is_no_file_goes_to_the_pool() {
    let (app, told) = telling();
    let site = Site::new().with("a.css", "css").with("docs/index.html", "docs").with("img/x", "x");
    let pool = pool_lines("", &[(app.address(), "")]);
    let skep =
        Skep::node_of(&format!("root = \"{}\"\npool = \"app\"\n{pool}", site.root().display()));
    let mut client = skep.connect();
    for _ in 0..2 {
        assert_eq!(client.get("/a.css?v=1").text(), "css");
        assert_eq!(client.get("/docs/").text(), "docs");
    }
    assert!(told.try_recv().is_err());
    for target in ["/", "/about", "/img/", "/img", "/.env", "/a%20b?c"] {
        assert_eq!(client.get(target).text(), "answer", "{target}");
        assert_eq!(next(&told).line(), format!("GET {target} HTTP/1.1"));
    }
    client.request("POST", "/a.css", &[]).assert_status(200);
    assert_eq!(next(&told).line(), "POST /a.css HTTP/1.1");
}

/// Returns the status of the node's only pool.
pub(super) fn pool_of(skep: &Skep) -> serde_json::Value {
    let listed = done(skep, &["pool", "list", "--json"]);
    serde_json::from_str::<serde_json::Value>(&listed).unwrap()[0].clone()
}

#[test]
fn requests_wait_for_a_server_with_room_and_not_for_ever() {
    let gate = Gate::default();
    let shut = gate.clone();
    let app = App::answering(move |_| {
        shut.pass();
        response(200, "", "ok")
    });
    let one = pool_lines(
        "queue_max = 3\nqueue_timeout_ms = 60000",
        &[(app.address(), "connections_max = 1")],
    );
    let skep = Skep::node_of(&format!("pool = \"app\"\n{one}"));
    let mut clients: Vec<RawClient> = (0..5).map(|_| skep.connect()).collect();
    clients[0].ask("/0");
    let pools = || pool_of(&skep);
    poll_until(PATIENCE, "the first is in work", || pools()["servers"][0]["connections"] == 1);
    for (number, client) in clients.iter_mut().enumerate().take(4).skip(1) {
        client.ask(&format!("/{number}"));
        poll_until(PATIENCE, "it waits", || pools()["queued_requests"] == number);
    }
    let refused = clients[4].get("/4");
    refused.assert_status(503).assert_header("retry-after", "1");
    // A request whose client has left is skipped when its turn comes.
    for (number, client) in clients.iter_mut().enumerate().take(4) {
        gate.open();
        assert_eq!(client.response().assert_status(200).text(), "ok", "{number}, in their order");
    }
    let brief = pool_lines("queue_timeout_ms = 50", &[(app.address(), "connections_max = 1")]);
    let skep = Skep::node_of(&format!("pool = \"app\"\n{brief}"));
    poll_until(PATIENCE, "the server is up", || pool_of(&skep)["servers"][0]["state"] == "up");
    let mut first = skep.connect();
    first.ask("/");
    let is_in_work = || pool_of(&skep)["servers"][0]["connections"] == 1;
    poll_until(PATIENCE, "the first is in work", is_in_work);
    let mut late = Response { status: 200, headers: vec![], body: vec![], raw: vec![] };
    poll_until(PATIENCE, "one is too late", || {
        late = skep.connect().get("/");
        late.status == 503
    });
    late.assert_header("retry-after", "1");
    gate.open();
    first.response().assert_status(200);
}

#[test]
fn servers_are_drained_resumed_and_changed_by_reload() {
    let named = |name: &'static str| App::answering(move |_| response(200, "", name));
    let (one, two) = (named("one"), named("two"));
    let both = |servers: &[(SocketAddr, &str)]| {
        format!("pool = \"app\"\n{}", pool_lines("policy = \"round-robin\"", servers))
    };
    let skep = Skep::node_of(&both(&[(one.address(), ""), (two.address(), "")]));
    let answers = || {
        let mut answers: Vec<_> = (0..4).map(|_| skep.connect().get("/").text()).collect();
        answers.sort_unstable();
        answers.dedup();
        answers
    };
    poll_until(PATIENCE, "both are up", || answers() == ["one", "two"]);
    let table = done(&skep, &["pool", "list"]);
    assert!(table.contains("app") && table.contains("s1") && table.contains("up"), "{table}");
    let drained = done(&skep, &["pool", "drain", "app", "s1"]);
    assert!(drained.contains("s1") && drained.contains("drain"), "{drained}");
    assert_eq!(answers(), ["two"]);
    let unknown = skep.command(&["pool", "drain", "app", "s7"]);
    assert!(unknown.stderr.contains("pool app has no server \"s7\""), "{}", unknown.stderr);
    done(&skep, &["pool", "resume", "app", "s1"]);
    poll_until(PATIENCE, "it is back", || answers() == ["one", "two"]);
    skep.reconfigure_of(&both(&[(one.address(), "")]));
    done(&skep, &["reload"]);
    poll_until(PATIENCE, "it is gone", || answers() == ["one"]);
    skep.reconfigure_of(&format!("root = \"{}\"", Site::new().root().display()));
}

/// A dispatcher in front of a node with a pool.
pub(super) struct Chain {
    pub(super) gate: Skep,
    pub(super) node: Skep,
    pub(super) metrics: FreePort,
    _folder: Site,
}

impl Chain {
    fn new(app: &App, dispatch: &str) -> Self {
        Self::of(app, dispatch, "", "")
    }

    /// Like `new`, with further settings of the pool, and further tables.
    pub(super) fn of(app: &App, dispatch: &str, pool: &str, tables: &str) -> Self {
        let [gate, node, metrics] = [(); 3].map(|()| FreePort::claim());
        let folder = Site::new();
        let (root, address) = (folder.root().display().to_string(), gate.address());
        let text = format!(
            "state_dir = \"{root}/state\"\n[admin]\nlisten = \"off\"\n\
             [[dispatcher]]\nname = \"gate\"\n[[service]]\nname = \"web\"\n\
             listen = \"{address}\"\ndispatch = \"{dispatch}\"\n\
             [[node]]\nname = \"n1\"\naddress = \"{}\"\n[[site]]\npool = \"app\"\n{}{tables}",
            node.address(),
            pool_lines(pool, &[(app.address(), "")]),
        );
        let of_node = format!("{text}[metrics]\nlisten = \"{}\"\n", metrics.address());
        folder.write("gate.toml", &text);
        folder.write("node.toml", of_node);
        let node = Skep::run(&folder.path("node.toml"), &["--as", "n1"], node.address());
        let gate = Skep::run(&folder.path("gate.toml"), &["--as", "gate"], address);
        let is_up = || skep_tests::holds_within(PATIENCE, || gate.connect().get("/").status != 503);
        assert!(is_up(), "the dispatcher knows that the node is up");
        Self { gate, node, metrics, _folder: folder }
    }
}

#[test]
fn behind_a_dispatcher_the_application_sees_the_client() {
    let (app, told) = telling();
    let chain = Chain::new(&app, "proxy");
    while told.try_recv().is_ok() {}
    let source = SourceAddress::new();
    let mut client = source.connect(chain.gate.address());
    let lie = [("X-Forwarded-For", "6.6.6.6"), ("Host", "a.example")];
    client.send(skep_testclient::request_with_body("POST", "/x", &lie, "body"));
    client.response().assert_status(200).assert_header("cache-status", "skep; fwd=bypass");
    let got = next(&told);
    let own = source.address().to_string();
    assert_eq!(got.field("x-forwarded-for"), Some(&*own), "{}", got.head);
    assert_eq!(got.field("forwarded"), Some(&*format!("for={own};host=\"a.example\";proto=http")));
    assert_eq!((got.field("host"), &*got.body), (Some("a.example"), &b"body"[..]));
    let metrics = RawClient::connect(chain.metrics.address()).get("/metrics").text();
    let line = "skep_pool_server_up{pool=\"app\",server=\"s1\"} 1";
    assert!(metrics.lines().any(|it| it == line), "{metrics}");
    let requests = "skep_pool_server_requests_total{pool=\"app\",server=\"s1\"} ";
    assert!(metrics.lines().any(|it| it.starts_with(requests) && !it.ends_with(" 0")));
    drop(chain.node);
}

#[test]
fn under_redirect_other_methods_get_307_and_upgrades_are_proxied() {
    let app = App::start(|conn| {
        while let Some(head) = conn.head() {
            if head.contains("Upgrade: websocket") {
                conn.send(
                    "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\nhi",
                );
                return;
            }
            conn.send(response(200, "", "ok"));
        }
    });
    let chain = Chain::new(&app, "redirect");
    let mut client = chain.gate.connect();
    let moved = client.request("POST", "/form", &[]);
    moved.assert_status(307);
    let to = format!("http://{}/form", chain.node.address());
    moved.assert_header("location", &to);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    client.response().assert_status(101);
    assert_eq!(client.read_to_close(), b"hi");
}

#[test]
fn hints_trailers_events_and_upgrades_pass_both_hops() {
    let app = App::start(|conn| {
        while let Some(head) = conn.head() {
            if head.contains("Upgrade: websocket") {
                conn.send(
                    "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
                );
                let echo = conn.exactly(4).unwrap_or_default();
                conn.send(echo);
                return;
            }
            conn.send(
                "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n\
                 Transfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n2\r\nok\r\n0\r\nX-End: 1\r\n\r\n",
            );
        }
    });
    let chain = Chain::new(&app, "proxy");
    let mut client = chain.gate.connect();
    client.send("GET /x HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE\r\n\r\n");
    client.response().assert_status(103).assert_header("link", "</a>");
    let reply = client.response();
    assert_eq!(reply.assert_header("trailer", "X-End").text(), "ok");
    assert!(reply.raw.ends_with(b"0\r\nX-End: 1\r\n\r\n"));
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    client.response().assert_status(101);
    client.send("ping");
    assert_eq!(client.read_to_close(), b"ping");
}

#[test]
fn fields_with_underscores_pass_if_the_operator_says_so_and_imitate_nothing() {
    let (app, told) = telling();
    let skep = node(&app, "[limits]\nunderscore_fields = \"pass\"", "");
    let fields = [("User_Id", "7"), ("X_Forwarded_For", "6.6.6.6"), ("Content_Length", "9")];
    skep.connect().request("GET", "/", &fields).assert_status(200);
    let got = next(&told);
    assert_eq!(got.field("user_id"), Some("7"));
    assert_eq!((got.field("x_forwarded_for"), got.field("content_length")), (None, None));
}
