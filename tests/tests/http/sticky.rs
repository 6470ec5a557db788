//! Sessions that stay at one server of a pool.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use skep_tests::app::{App, AppRequest, response};
use skep_tests::{FreePort, PATIENCE, RawClient, Response, Skep, poll_until};

use crate::pools::pool_lines;

/// Two servers that answer with their names, and the nodes in front of them.
struct Rig {
    nodes: Vec<Skep>,
    metrics: Vec<FreePort>,
    servers: [Option<App>; 2],
    /// Servers that no longer answer on existing connections.
    gone: Arc<Mutex<BTreeSet<&'static str>>>,
    got: Arc<Mutex<Vec<AppRequest>>>,
}

impl Rig {
    /// Starts nodes whose pool has these lines of `[pool.sticky]`; the nodes are independent.
    fn new(nodes: usize, sticky: &str) -> Self {
        let got = Arc::<Mutex<Vec<AppRequest>>>::default();
        let gone = Arc::<Mutex<BTreeSet<&'static str>>>::default();
        let server = |name: &'static str| {
            let (got, gone) = (Arc::clone(&got), Arc::clone(&gone));
            App::start(move |conn| {
                while let Some(request) = conn.request() {
                    if gone.lock().unwrap().contains(name) {
                        return;
                    }
                    got.lock().unwrap().push(request);
                    conn.send(response(200, "", name));
                }
            })
        };
        let servers = ["s1", "s2"].map(server);
        let addresses = servers.each_ref().map(|server| (server.address(), ""));
        let metrics: Vec<_> = (0..nodes).map(|_| FreePort::claim()).collect();
        let node = |metrics: &FreePort| {
            let pool = pool_lines("policy = \"round-robin\"", &addresses);
            Skep::node_of(&format!(
                "pool = \"app\"\n[metrics]\nlisten = \"{}\"\n{pool}[pool.sticky]\n{sticky}\n",
                metrics.address()
            ))
        };
        let rig = Self {
            nodes: metrics.iter().map(node).collect(),
            metrics,
            servers: servers.map(Some),
            gone,
            got,
        };
        for node in 0..nodes {
            poll_until(PATIENCE, "both servers are up", || {
                let answers = (0..4).map(|_| rig.ask(node, "/", &[]).text());
                answers.collect::<BTreeSet<_>>().len() == 2
            });
        }
        rig
    }

    fn ask(&self, node: usize, path: &str, fields: &[(&str, &str)]) -> Response {
        let reply = self.nodes[node].connect().request("GET", path, fields);
        reply.assert_status(200);
        reply
    }

    /// Returns the servers that answer ten requests for `path` with these fields, sent to all nodes in turn.
    fn servers_of(&self, path: &str, fields: &[(&str, &str)]) -> BTreeSet<String> {
        let node = |turn: usize| turn % self.nodes.len();
        (0..10).map(|turn| self.ask(node(turn), path, fields).text()).collect()
    }

    fn lost(&self, node: usize) -> u64 {
        let text = RawClient::connect(self.metrics[node].address()).get("/metrics").text();
        let sample = "skep_pool_sessions_lost_total{pool=\"app\"} ";
        let value = text.lines().find_map(|line| line.strip_prefix(sample));
        value.expect("the metric is there").parse().expect("a number")
    }

    /// Stops the server of that name; returns the other's name.
    fn stop(&mut self, name: &str) -> &'static str {
        let [gone, other] = if name == "s1" { ["s1", "s2"] } else { ["s2", "s1"] };
        self.gone.lock().unwrap().insert(gone);
        self.servers[usize::from(gone == "s2")] = None;
        other
    }

    fn done(&self, arguments: &[&str]) {
        let finished = self.nodes[0].command(arguments);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    }
}

fn one(name: &str) -> BTreeSet<String> {
    BTreeSet::from([name.to_owned()])
}

/// Returns the cookie that a reply sets, in the form that clients return.
fn cookie_of(reply: &Response) -> String {
    let line = reply.header("set-cookie").expect("a cookie").to_owned();
    line.split(';').next().expect("a pair").to_owned()
}

#[test]
fn an_inserted_cookie_leads_back_by_any_node() {
    let rig = Rig::new(2, "by = \"cookie\"");
    let first = rig.ask(0, "/", &[("Cookie", "own=1")]);
    first.assert_header("cache-control", "private");
    let line = first.header("set-cookie").unwrap().to_owned();
    assert!(line.starts_with("skep-app=") && line.ends_with("; Path=/; HttpOnly; SameSite=Lax"));
    assert!(!line.contains("s1") && !line.contains("s2"), "{line} tells the server's name");
    let (server, cookie) = (first.text(), cookie_of(&first));
    rig.got.lock().unwrap().clear();
    let cookies = format!("a=1; {cookie}; b=2");
    assert_eq!(rig.servers_of("/", &[("Cookie", &cookies)]), one(&server));
    for received in &*rig.got.lock().unwrap() {
        assert_eq!(received.field("cookie"), Some("a=1; b=2"), "{}", received.head);
    }
    let again = rig.ask(1, "/", &[("Cookie", &cookie)]);
    assert_eq!((again.header("set-cookie"), again.header("cache-control")), (None, None));
    assert_eq!(rig.got.lock().unwrap().last().unwrap().field("cookie"), None);
    // A cookie that belongs to no server is replaced.
    cookie_of(&rig.ask(1, "/", &[("Cookie", "skep-app=0123456789abcdef")]));
}

#[test]
fn a_session_moves_when_its_server_is_gone_and_then_stays() {
    let mut rig = Rig::new(1, "by = \"cookie\"\ncookie = \"at\"");
    let first = rig.ask(0, "/", &[]);
    let other = rig.stop(&first.text());
    assert_eq!(rig.lost(0), 0);
    let moved = rig.ask(0, "/", &[("Cookie", &cookie_of(&first))]);
    assert_eq!(moved.text(), other);
    assert_ne!(cookie_of(&moved), cookie_of(&first));
    assert_eq!(rig.lost(0), 1);
    let told = format!("pool app: server {other} continues a session of {}\n", first.text());
    poll_until(PATIENCE, "the log says so", || rig.nodes[0].stderr_text().contains(&told));
    assert_eq!(rig.servers_of("/", &[("Cookie", &cookie_of(&moved))]), one(other));
    assert_eq!(rig.lost(0), 1);
}

#[test]
fn the_cookie_is_secure_where_the_client_asks_by_https() {
    let app = App::answering(|_| response(200, "", "ok"));
    for (settings, https, is_secure) in [
        ("trust_forwarded = true", "Forwarded: proto=https;for=192.0.2.1", true),
        ("trust_forwarded = true", "X-Forwarded-Proto: https", true),
        ("trust_forwarded = true", "X-Forwarded-Proto: http", false),
        // Without trust, any client could set this.
        ("", "X-Forwarded-Proto: https", false),
        ("sticky.secure = true", "A: b", true),
        ("trust_forwarded = true\nsticky.secure = false", "X-Forwarded-Proto: https", false),
    ] {
        let pool =
            pool_lines(&format!("sticky.by = \"cookie\"\n{settings}"), &[(app.address(), "")]);
        let skep = Skep::node_of(&format!("pool = \"app\"\n{pool}"));
        let field = https.split_once(": ").unwrap();
        let reply = skep.connect().request("GET", "/", &[field]);
        let line = reply.header("set-cookie").unwrap();
        assert_eq!(line.ends_with("; Secure"), is_secure, "{settings} {https}: {line}");
    }
}

#[test]
fn a_route_behind_a_session_is_obeyed_by_any_node() {
    let mut rig = Rig::new(2, "by = \"route\"");
    for server in ["s1", "s2"] {
        let cookie = format!("JSESSIONID=0123ABCD.{server}");
        assert_eq!(rig.servers_of("/", &[("Cookie", &cookie)]), one(server));
        assert_eq!(rig.got.lock().unwrap().last().unwrap().field("cookie"), Some(&*cookie));
        let path = format!("/shop;jsessionid=0123ABCD.{server}");
        assert_eq!(rig.servers_of(&path, &[]), one(server));
    }
    let reply = rig.ask(0, "/", &[]);
    assert_eq!(reply.header("set-cookie"), None, "the application makes sessions");
    assert_eq!(rig.servers_of("/", &[("Cookie", "JSESSIONID=0123ABCD")]).len(), 2);
    let other = rig.stop("s1");
    assert_eq!(rig.servers_of("/", &[("Cookie", "JSESSIONID=0123ABCD.s1")]), one(other));
    assert!(rig.lost(0) == 5 && rig.lost(1) == 5);
}

#[test]
fn a_server_that_drains_keeps_its_sessions_only() {
    let rig = Rig::new(1, "by = \"cookie\"");
    let first = rig.ask(0, "/", &[]);
    let (server, cookie) = (first.text(), cookie_of(&first));
    rig.done(&["pool", "drain", "app", &server]);
    let others = rig.servers_of("/", &[]);
    assert!(others.len() == 1 && !others.contains(&server), "{others:?}");
    assert_eq!(rig.servers_of("/", &[("Cookie", &cookie)]), one(&server));
    assert_eq!(rig.lost(0), 0);
}

#[test]
fn hashes_lead_to_one_server_from_any_node() {
    for (sticky, fields) in [
        ("by = \"cookie-hash\"\ncookie = \"user\"", ("Cookie", "user=")),
        ("by = \"field-hash\"\nfield = \"X-User\"", ("X-User", "")),
    ] {
        let rig = Rig::new(2, sticky);
        let (name, before) = fields;
        let of = |user: usize| rig.servers_of("/", &[(name, &format!("{before}{user}"))]);
        let all: Vec<_> = (0..12).map(of).collect();
        assert!(all.iter().all(|servers| servers.len() == 1), "{all:?}");
        assert_eq!(all.iter().flatten().collect::<BTreeSet<_>>().len(), 2, "users share them");
        assert_eq!(rig.servers_of("/", &[]).len(), 2, "without one the policy chooses");
    }
}
