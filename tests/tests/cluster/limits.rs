//! Overloaded nodes: other nodes read what they refuse from elsewhere, and clients and nodes do not use up
//! each other's connections.

use std::fs;
use std::net::{SocketAddr, TcpStream};

use rustix::process::Signal;
use skep_testbed::{Bed, Machine, Topology};
use skep_tests::cache::{CacheCluster, OWN_NAME, wait_count};
use skep_tests::content::{assert_same, version};
use skep_tests::direct::root_or_skip;
use skep_tests::origin::{Answer, FRESH, Origin};
use skep_tests::sought::{LOST, ORIGIN, PEER, REFUSED};
use skep_tests::{PATIENCE, RawClient, Site, Skep, SourceAddress, poll_until};

const OVERLOADED: &str = "skep_peer_requests_total{outcome=\"overloaded\"}";
const TO_SEND: &str = "skep_bytes_outstanding";

/// The limit above which a node refuses others: this for nodes, eight times as much for clients.
const LIMIT: &str = "outstanding_bytes_max = \"1MiB\"\n";
const CLIENTS_BYTES: u64 = 8 << 20;

const SMALL_BYTES: usize = 100_000;
const BIG_BYTES: usize = 64 << 20;

/// Maximum number of clients that a node admits in the tests of that limit.
const CLIENTS_MAX: usize = 8;

fn small() -> Vec<u8> {
    version(2, SMALL_BYTES)
}

/// Starts clients of `node` that read only the head of the large file; enough of them that it accepts no more
/// work.
fn occupy(cluster: &CacheCluster, node: &str) -> Vec<RawClient> {
    let mut clients = Vec::new();
    // From different offsets of a segment, so that they do not all stop at its end.
    for start in (0..4 << 20).step_by(128 << 10) {
        let mut client = RawClient::connect(cluster.outer(node));
        let range = format!("bytes={start}-");
        client.send_request("GET", "/big", &[("Range", &range)]);
        client.try_head().unwrap().assert_status(206);
        clients.push(client);
    }
    poll_until(PATIENCE, "it has much to send to clients", || {
        cluster.metric(node, TO_SEND) > CLIENTS_BYTES
    });
    clients
}

/// Waits until the coordinator's directory has this number of copies.
fn wait_copies(cluster: &CacheCluster, copies: u64) {
    poll_until(PATIENCE, &format!("{copies} copies are known"), || {
        cluster.coordinator("dispatcher-1")["copies"].as_u64() == Some(copies)
    });
}

/// Waits until a node that has read `read` segments has received one more from another node, unless that one
/// was not scheduled in time.
#[track_caller]
fn wait_from_others(cluster: &CacheCluster, node: &str, read: u64) {
    let count = |metric| cluster.metric(node, metric);
    wait_count("segments", read + 1, || count(PEER) + count(ORIGIN));
    assert!(count(ORIGIN) == read || count(LOST) > 0, "read beside another node");
}

/// Returns a request for `/a` with this number of fields, and a head of this number of bytes.
fn request(fields: usize, bytes: usize) -> String {
    let mut text = "GET /a HTTP/1.1\r\nHost: test\r\nA:".to_owned();
    let rest = "X:y\r\n".repeat(fields - 2) + "\r\n";
    let room = bytes.saturating_sub(text.len() + 2 + rest.len());
    text += &"a".repeat(room);
    text + "\r\n" + &rest
}

#[test]
fn what_a_dispatcher_takes_its_nodes_take() {
    let cluster = CacheCluster::start(1, 1, Site::new().with("a", "a"), "");
    let gate = cluster.outer("dispatcher-1");
    poll_until(PATIENCE, "its node is up", || RawClient::connect(gate).get("/a").status == 200);
    let mut asked = Vec::new();
    for fields in [90, 95, 96, 97, 98, 99, 100, 101] {
        let status = RawClient::connect(gate).send(request(fields, 0)).response().status;
        asked.push((fields, status));
    }
    let taken = |fields| (fields, if fields <= 100 { 200 } else { 431 });
    assert_eq!(asked, asked.iter().map(|it| taken(it.0)).collect::<Vec<_>>());
    for (bytes, status) in [(16_000, 200), (16_384, 200), (16_385, 431)] {
        for fields in [3, 100] {
            let text = request(fields, bytes);
            assert_eq!(text.len(), bytes);
            let reply = RawClient::connect(gate).send(text).response();
            assert_eq!(reply.status, status, "{bytes} bytes in {fields} fields");
        }
    }
}

#[test]
fn what_a_node_takes_of_an_origin_its_dispatcher_takes() {
    // As many fields as an origin may send, with Content-Length and Cache-Control.
    let fields = FRESH.to_owned() + &"X: y\r\n".repeat(97);
    let filled = |line: &str| format!("{line}: {}\r\n", "y".repeat(30_000));
    let long = FRESH.to_owned() + &filled("X");
    let origin = Origin::start(move |asked| match &*asked.target {
        "/many" => Answer::new(200, &fields, "many"),
        _ => Answer::new(200, &long, "long"),
    });
    let lines = origin.line() + "headers = { x-one = \"1\", x-two = \"2\" }\n";
    let cluster = CacheCluster::start_of(1, 1, Site::new(), &lines, "");
    for path in ["/many", "/long"] {
        assert_eq!(cluster.get("node-1", path).status, 200, "{path} at the node");
        poll_until(PATIENCE, "its node is up", || {
            RawClient::connect(cluster.outer("dispatcher-1")).get(path).status != 503
        });
        let reply = RawClient::connect(cluster.outer("dispatcher-1")).get(path);
        assert_eq!(reply.status, 200, "{path} at the dispatcher");
    }
}

#[test]
fn a_node_full_of_slow_clients_refuses_others_which_go_elsewhere() {
    let site = Site::new().with("a", small()).with("b", small()).with_large("big", BIG_BYTES);
    let cluster = CacheCluster::start(1, 3, site, LIMIT);
    for path in ["/a", "/b"] {
        assert_same(&cluster.get("node-1", path).body, &small());
    }
    wait_copies(&cluster, 2);
    let clients = occupy(&cluster, "node-1");
    let read = cluster.metric("node-2", ORIGIN);
    assert_same(&cluster.get("node-2", "/a").body, &small());
    cluster.wait_metric("node-1", OVERLOADED, 1);
    cluster.wait_metric("node-2", REFUSED, 1);
    // No other node had it.
    cluster.wait_metric("node-2", ORIGIN, read + 1);
    // Now another node has it, which is tried first or second.
    poll_until(PATIENCE, "two have /a", || {
        let status = cluster.coordinator("dispatcher-1");
        let of_node_2 =
            status["nodes"].as_array().unwrap().iter().find(|it| it["name"] == "node-2");
        of_node_2.is_some_and(|it| it["held_bytes"].as_u64() >= Some(SMALL_BYTES as u64))
    });
    assert_same(&cluster.get("node-3", "/a").body, &small());
    wait_from_others(&cluster, "node-3", 0);
    drop(clients);
    poll_until(PATIENCE, "it has nothing to send", || cluster.metric("node-1", TO_SEND) == 0);
    let refused = cluster.sum(REFUSED);
    assert_same(&cluster.get("node-2", "/b").body, &small());
    wait_from_others(&cluster, "node-2", read + 1);
    assert_eq!(cluster.sum(REFUSED), refused);
}

#[test]
fn clients_do_not_keep_others_from_what_only_one_disk_has() {
    let site = Site::new().with("node-1/a", small()).with("node-1/told", "told");
    let site = site.with_large("node-1/big", BIG_BYTES);
    fs::create_dir(site.path("node-2")).unwrap();
    let lines = format!("root = \"{}\"\ncontent = \"partition\"\n", site.path(OWN_NAME).display());
    let cluster = CacheCluster::start_of(1, 2, site, &lines, LIMIT);
    poll_until(PATIENCE, "it is told what node-1 has", || {
        cluster.get("node-2", "/told").status == 200
    });
    let _clients = occupy(&cluster, "node-1");
    assert_same(&cluster.get("node-2", "/a").body, &small());
    assert_eq!(cluster.metric("node-1", OVERLOADED), 0);
}

#[test]
fn clients_of_a_dispatcher_are_not_one_client_of_its_nodes() {
    const CLIENTS: usize = 12;
    let origin = Origin::of("x", "\"v1\"", FRESH);
    let limits = "[limits]\nconnections_per_address_max = 4\n";
    let cluster = CacheCluster::start_of(1, 1, Site::new(), &origin.line(), limits);
    let gate = cluster.outer("dispatcher-1");
    poll_until(PATIENCE, "its node is up", || {
        SourceAddress::new().connect(gate).get("/well").status == 200
    });
    origin.close();
    let asked: Vec<RawClient> = (0..CLIENTS)
        .map(|number| {
            let mut client = SourceAddress::new().connect(gate);
            client.ask(&format!("/{number}"));
            client
        })
        .collect();
    poll_until(PATIENCE, "all are asked for", || origin.asked().len() > CLIENTS);
    origin.open();
    for mut client in asked {
        client.response().assert_status(200);
    }
    // A client has the same limits at dispatchers and nodes.
    for name in ["dispatcher-1", "node-1"] {
        let source = SourceAddress::new();
        let mut clients: Vec<_> = (0..5).map(|_| source.connect(cluster.outer(name))).collect();
        let statuses: Vec<_> = clients.iter_mut().map(|it| it.get("/well").status).collect();
        assert_eq!(statuses, [200, 200, 200, 200, 429], "{name}");
    }
}

/// A client with one IPv6 address has all of its /64 (RFC 6177).
#[test]
fn clients_of_ipv6_share_the_limits_of_their_prefix() {
    const MAX: usize = 8;
    if !root_or_skip() {
        return;
    }
    // Clients are on the other side of the router, in a separate /64.
    let topology =
        Topology { clients: 2, router: true, dispatchers: 0, nodes: 2, ..Topology::default() };
    let bed = Bed::new(&topology).unwrap();
    let [server, one, two, other] =
        ["node-1", "client-1", "client-2", "node-2"].map(|name| bed.machine(name).unwrap());
    let prefix = |machine: &Machine| machine.ipv6().segments()[..4].to_vec();
    assert_eq!(prefix(one), prefix(two));
    assert_ne!(prefix(one), prefix(other));

    let (site, address) = (Site::new(), SocketAddr::from((server.ipv6(), 8080)));
    // Its listing exceeds socket buffers, but not the limit of one client.
    let name = |number: usize| format!("site/{number:05}-{}", "x".repeat(200));
    let site = (0..3_000).fold(site, |site, number| site.with(&name(number), "x"));
    let config = |limits: &str| {
        let text = format!(
            "state_dir = \"{0}\"\n[admin]\nlisten = \"off\"\n[limits]\n{limits}\
             connections_per_address_max = {MAX}\npinned_per_address_bytes_max = \"4MiB\"\n\
             [[node]]\nname = \"n1\"\naddress = \"{address}\"\n\
             [[site]]\nroot = \"{0}/site\"\nlisting = true\n",
            site.root().display()
        );
        site.replace("skep.toml", text);
    };
    config("");
    let mut command = server.command(Skep::binary());
    command.args(["run", "--as", "n1", "--config"]).arg(site.path("skep.toml"));
    let skep = Skep::run_command(&mut command, address);
    // Reads only the head, and keeps its connection open.
    let ask = |machine: &Machine| {
        let mut client = machine.run(|| RawClient::connect(address)).unwrap();
        client.ask("/");
        (client.try_head().unwrap().status, client)
    };
    let statuses = |asked: &[(u16, RawClient)]| asked.iter().map(|it| it.0).collect::<Vec<_>>();

    let mut held = vec![ask(one)];
    while held.last().unwrap().0 == 200 {
        held.push(ask(one));
    }
    let both = [two, other].map(ask);
    assert_eq!(statuses(&both), [503, 200], "memory of replies, after {} of one", held.len());
    held.extend(both);
    held.extend((held.len()..=MAX).map(|_| ask(two)));
    let more = [one, two, other].map(ask);
    assert_eq!(statuses(&more), [429, 429, 200], "connections, after {:?}", statuses(&held));
    // If each address counts as a separate client, the next one has room.
    config("client_ipv6_prefix_bits = 128\n");
    skep.signal(Signal::HUP);
    poll_until(PATIENCE, "the other address has room", || ask(two).0 == 200);
}

#[test]
fn clients_and_nodes_are_admitted_each_for_themselves() {
    let limits = format!("[limits]\nconnections_max = {CLIENTS_MAX}\n");
    let cluster = CacheCluster::start(1, 2, Site::new().with("a", small()), &limits);
    assert_same(&cluster.get("node-1", "/a").body, &small());
    wait_copies(&cluster, 1);
    // Strangers that connect to the nodes' port count as nodes until the handshake times out.
    let strangers: Vec<_> = (0..2 * CLIENTS_MAX)
        .map(|_| TcpStream::connect(cluster.inner("node-1")).unwrap())
        .collect();
    assert_same(&cluster.get("node-1", "/a").body, &small());
    drop(strangers);
    let mut clients = Vec::new();
    poll_until(PATIENCE, "node-1 is full of clients", || {
        let mut client = RawClient::connect(cluster.outer("node-1"));
        let status = client.get("/a").status;
        clients.push(client);
        status == 503
    });
    assert_same(&cluster.get("node-2", "/a").body, &small());
    wait_from_others(&cluster, "node-2", 0);
}
