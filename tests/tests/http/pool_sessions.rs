//! Recent sessions of a pool, by network of their clients.

use serde_json::{Value, json};
use skep_tests::app::{App, response};
use skep_tests::{FreePort, RawClient, Skep, SourceAddress, promtool};

use crate::pools::{Chain, pool_lines};

/// A node, and clients with unique addresses.
struct Rig {
    app: App,
    node: Skep,
    metrics: FreePort,
    clients: [SourceAddress; 3],
}

impl Rig {
    /// `pool` contains settings of the pool, with its tables; `site` those of the site.
    fn new(site: &str, pool: &str) -> Self {
        let app = App::answering(|_| response(200, "Cache-Control: max-age=60\r\n", "ok"));
        let (metrics, clients) = (FreePort::claim(), [(); 3].map(|()| SourceAddress::new()));
        // Counts are estimates: under a random key, two of few sessions would occasionally collide.
        let node =
            Skep::node_with_key_of(&settings(&app, &metrics, site, pool, &networks(&clients)));
        Self { app, node, metrics, clients }
    }

    /// Sends a request of a client with these fields.
    fn ask(&self, client: &SourceAddress, target: &str, fields: &[(&str, &str)]) {
        let mut connection = client.connect(self.node.address());
        connection.request("GET", target, fields).assert_status(200);
    }

    /// Returns the node's report of the sessions of its pool.
    fn sessions(&self) -> Value {
        let of = |arguments: &[&str]| -> Value {
            serde_json::from_str(&done(&self.node, arguments)).unwrap()
        };
        let pools = of(&["pool", "list", "--json"]);
        let nodes = of(&["status", "--pools", "--json"]);
        let (own, pool) = (&pools[0]["sessions"], &nodes[0]["pools"][0]);
        assert_eq!(own, &pool["sessions"], "{nodes}");
        // It is the only node.
        assert_eq!(own, &pool["cluster_sessions"], "{nodes}");
        own.clone()
    }

    /// Returns the line with sessions, below the pool's servers.
    fn line(&self) -> String {
        let table = done(&self.node, &["status", "--pools"]);
        let last = table.lines().last().expect("a line").trim_start().to_owned();
        assert!(done(&self.node, &["pool", "list"]).contains(&last), "{last}");
        last
    }

    /// Returns the value of the metric for a network.
    fn metric(&self, network: &str) -> Option<u64> {
        let text = RawClient::connect(self.metrics.address()).get("/metrics").text();
        let sample = format!("skep_pool_sessions{{pool=\"app\",network=\"{network}\"}} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&sample))?;
        Some(value.parse().expect("a number"))
    }
}

fn settings(app: &App, metrics: &FreePort, site: &str, pool: &str, tables: &str) -> String {
    let pool = pool_lines(pool, &[(app.address(), "")]);
    let metrics = format!("[metrics]\nlisten = \"{}\"\n", metrics.address());
    format!("pool = \"app\"\n{site}\n{metrics}{pool}{tables}")
}

/// The first client is on campus; the second one too, but in the library.
fn networks([_, second, _]: &[SourceAddress; 3]) -> String {
    let library = format!("networks = [\"{}\"]", second.address());
    network("campus", "networks = [\"127.0.0.0/8\", \"2001:db8::/32\"]")
        + &network("library", &library)
}

fn network(name: &str, lines: &str) -> String {
    format!("[[client_network]]\nname = \"{name}\"\n{lines}\n")
}

fn done(skep: &Skep, arguments: &[&str]) -> String {
    let finished = skep.command(arguments);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    finished.stdout
}

fn by_network(counts: &[(&str, u64)]) -> Value {
    counts.iter().map(|(name, n)| json!({ "network": name, "sessions": n })).collect()
}

#[test]
fn sessions_are_counted_once_by_the_network_of_their_client() {
    let sticky = "[pool.sticky]\nby = \"route\"";
    let rig = Rig::new("", sticky);
    let [first, second, third] = &rig.clients;
    for (client, id) in [
        (first, "a.s1"),
        // The same session at another server.
        (first, "a.s2"),
        (first, "b"),
        (second, "c.s1"),
        (third, "d.s1"),
        (third, "d.s1"),
    ] {
        rig.ask(client, "/", &[("Cookie", &format!("x=1; JSESSIONID={id}"))]);
    }
    rig.ask(second, "/page;jsessionid=e.s1", &[]);
    // Requests without a session do not count, and a client that is not trusted cannot specify its address.
    rig.ask(first, "/", &[("Cookie", "x=2")]);
    rig.ask(third, "/", &[("Cookie", "JSESSIONID=f"), ("X-Forwarded-For", "192.0.2.1")]);
    let wanted = by_network(&[("campus", 4), ("library", 2), ("other", 0)]);
    let sessions = rig.sessions();
    assert_eq!((&sessions["total"], &sessions["networks"]), (&json!(6), &wanted));
    assert_eq!((&sessions["window_s"], &sessions["nodes"]), (&json!(1_800), &json!(["n1"])));
    let wanted = "sessions in the last 30 min: 6 (campus 4, library 2, other 0)";
    assert_eq!(rig.line(), wanted);
    let metrics = ["campus", "library", "other", "lab"].map(|network| rig.metric(network));
    assert_eq!(metrics, [Some(4), Some(2), Some(0), None]);
    // Session IDs are not shown anywhere.
    let shown = done(&rig.node, &["status", "--json"]);
    assert!(!shown.contains("sketch") && !shown.contains("d.s1"), "{shown}");

    let library = format!("networks = [\"{}\"]", second.address());
    let networks = network("lab", &library) + &network("library", "networks = [\"10.0.0.0/8\"]");
    rig.node.reconfigure_of(&settings(&rig.app, &rig.metrics, "", sticky, &networks));
    done(&rig.node, &["reload"]);
    rig.ask(second, "/", &[("Cookie", "JSESSIONID=g")]);
    rig.ask(first, "/", &[("Cookie", "JSESSIONID=a.s1")]);
    // Counts under a name that still exists are kept.
    let wanted = "sessions in the last 30 min: 4 (lab 1, library 2, other 1)";
    assert_eq!(rig.line(), wanted);
    assert_eq!((rig.metric("lab"), rig.metric("campus")), (Some(1), None));
}

#[test]
fn what_does_not_tell_sessions_apart_counts_none() {
    for sticky in ["", "[pool.sticky]\nby = \"cookie\""] {
        let rig = Rig::new("", sticky);
        rig.ask(&rig.clients[0], "/", &[("Cookie", "PHPSESSID=a; skep-app=0123456789abcdef")]);
        assert_eq!(rig.sessions(), Value::Null);
        assert_eq!(rig.line(), "sessions in the last 30 min: -");
        assert_eq!(rig.metric("other"), None);
    }
    let named = Rig::new("", "[pool.sticky]\nby = \"cookie\"\ncounted_cookie = \"PHPSESSID\"");
    for id in ["a", "b", "b"] {
        let cookies = format!("PHPSESSID={id}; skep-app=0123456789abcdef");
        named.ask(&named.clients[1], "/", &[("Cookie", &cookies)]);
    }
    assert_eq!(named.line(), "sessions in the last 30 min: 2 (campus 0, library 2, other 0)");
}

#[test]
fn a_trusted_proxy_says_where_a_client_is_and_the_cache_answers_sessions_too() {
    let pool = "trust_forwarded = true\n[pool.sticky]\nby = \"field-hash\"\nfield = \"X-User\"";
    let rig = Rig::new("[site.cache]\nenabled = true", pool);
    let [proxy, library, _] = &rig.clients;
    let library = library.address().to_string();
    for (user, from) in [
        // First from the server, then from memory.
        ("ann", &*library),
        ("ben", &*library),
        ("cat", "192.0.2.1"),
        ("dan", "10.9.9.9, 2001:db8::1"),
        ("ann", "192.0.2.1"),
    ] {
        rig.ask(proxy, "/", &[("X-User", user), ("X-Forwarded-For", from)]);
    }
    rig.ask(proxy, "/", &[("X-User", "eve"), ("Forwarded", "for=\"[2001:db8::2]:4711\"")]);
    let sessions = rig.sessions();
    let wanted = by_network(&[("campus", 2), ("library", 2), ("other", 2)]);
    assert_eq!((&sessions["total"], &sessions["networks"]), (&json!(5), &wanted));
    let hits = done(&rig.node, &["status", "--json"]);
    let hits: Value = serde_json::from_str(&hits).unwrap();
    assert!(hits["node"]["cache_hits_total"].as_u64() >= Some(5), "{hits}");
}

#[test]
fn behind_a_dispatcher_the_client_is_the_one_whom_it_saw() {
    let app = App::answering(|_| response(200, "", "ok"));
    let client = SourceAddress::new();
    let lab = network("lab", &format!("networks = [\"{}\"]", client.address()));
    let sticky = "[pool.sticky]\nby = \"cookie-hash\"\ncookie = \"sid\"";
    let chain = Chain::of(&app, "proxy", sticky, &lab);
    let lie = [("Cookie", "sid=1"), ("X-Forwarded-For", "6.6.6.6")];
    client.connect(chain.gate.address()).request("GET", "/", &lie).assert_status(200);
    let metrics = RawClient::connect(chain.metrics.address()).get("/metrics").text();
    let line = "skep_pool_sessions{pool=\"app\",network=\"lab\"} 1";
    assert!(metrics.lines().any(|it| it == line), "{metrics}");
    promtool::assert_clean(&metrics);
    drop(chain.node);
}
