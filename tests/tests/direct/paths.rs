//! The paths of packets: the distribution of connections, both IP versions, every way to attach the XDP
//! program, and packets that are not for a service.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use serde_json::Value;
use skep_lab::load::{Downloads, Report, Requests, Target};
use skep_testbed::Machine;
use skep_tests::direct::{DirectCluster, Loads, SHORT, Setup, figure};
use skep_tests::{ClientError, PATIENCE, RawClient, Response, poll_until, promtool};

/// Number of connections over which the balance is measured.
const FLOWS: u64 = 20_000;

const DISPATCHER: &str = "dispatcher-1";

/// Sends this number of short requests from all clients to an address, at full speed; returns the number that
/// each node answered.
#[track_caller]
fn counts(cluster: &DirectCluster, to: SocketAddr, count: u64) -> BTreeMap<String, u64> {
    let clients = cluster.bed().clients();
    let begin = |client: &Machine| {
        let each = count / clients.len() as u64;
        let load = Requests { target: Target::new(to, SHORT.0), ..cluster.requests(each) };
        load.start_in(client).unwrap()
    };
    let mut counts = BTreeMap::new();
    for report in Loads::start(clients, begin).finish() {
        assert_eq!(report.failed, 0, "{report:?}");
        report
            .by_node
            .into_iter()
            .for_each(|(node, more)| *counts.entry(node).or_default() += more);
    }
    counts
}

#[test]
fn equal_nodes_get_equal_shares() {
    let mut setup = Setup::of(1, 8);
    setup.policy = "round-robin".into();
    let Some(cluster) = DirectCluster::start(setup) else { return };
    let counts = counts(&cluster, cluster.vip(), FLOWS);
    let (busiest, least) = (counts.values().max().unwrap(), counts.values().min().unwrap());
    let ratio = *busiest as f64 * 8.0 / FLOWS as f64;
    figure(&format!(
        "round-robin: {FLOWS} connections to 8 nodes: busiest {busiest}, {ratio:.4} x mean, least \
         {least}"
    ));
    assert!(counts.len() == 8 && ratio <= 1.05, "{counts:?}");
}

#[test]
fn prometheus_finds_no_fault_with_the_metrics() {
    let Some(cluster) = DirectCluster::start(Setup::of(1, 2)) else { return };
    for process in ["dispatcher-1", "node-1"] {
        promtool::assert_clean(&cluster.metrics(process));
    }
}

#[test]
fn weights_are_shares() {
    let mut setup = Setup::of(1, 2);
    setup.policy = "weighted-round-robin".into();
    setup.nodes = vec![(1, 150), (2, 50)];
    let Some(cluster) = DirectCluster::start(setup) else { return };
    let counts = counts(&cluster, cluster.vip(), FLOWS);
    let ratio = counts["node-1"] as f64 / counts["node-2"] as f64;
    figure(&format!("weights 3:1: {FLOWS} connections shared {ratio:.3}:1"));
    assert!((2.85..=3.15).contains(&ratio), "{counts:?}");
}

/// Returns for how long all nodes of all services have been up, in milliseconds; 0 if one is not.
fn up_ms_min(cluster: &DirectCluster, services: usize) -> u64 {
    let status = cluster.status_of(DISPATCHER, "services");
    let all = status.as_array().unwrap();
    assert_eq!(all.len(), services, "{status}");
    let nodes = all.iter().flat_map(|service| service["nodes"].as_array().unwrap());
    let up_ms = |node: &Value| match node["state"].as_str() {
        Some("up") => node["since_ms"].as_u64().unwrap(),
        _ => 0,
    };
    nodes.map(up_ms).min().unwrap()
}

/// Returns the generation of the table, if all nodes have applied it.
fn applied_table(cluster: &DirectCluster) -> Option<u64> {
    let status = cluster.status(DISPATCHER);
    let is_at_all = status["nodes_behind"].as_array().unwrap().is_empty();
    is_at_all.then(|| status["table_generation"].as_u64().unwrap())
}

#[test]
fn a_client_stays_at_its_node_on_all_ports() {
    const CLIENTS: u8 = 7;
    const PORTS: [u16; 2] = [81, 82];
    let Some(cluster) = DirectCluster::prepare(Setup::of(1, 4)) else { return };
    let sticky = PORTS.map(|port| SocketAddr::new(cluster.vip().ip(), port));
    let service = |to: &SocketAddr| {
        let (name, policy) = (format!("sticky-{}", to.port()), "maglev-address");
        format!(
            "[[service]]\nname = \"{name}\"\nlisten = \"{to}\"\ndispatch = \"direct\"\n\
             policy = \"{policy}\"\n"
        )
    };
    cluster.reconfigure(|setup| setup.direct = sticky.iter().map(service).collect());
    cluster.run_all();
    // With round robin, all nodes answer once all are in the table.
    cluster.wait_serving();
    let client = cluster.machine("client-1");
    // Unused addresses, next to the last one of the LAN.
    let [a, b, c, d] = client.ipv4().octets();
    let sources = (0..CLIENTS).map(|at| Ipv4Addr::new(a, b, c, (d & 0x80) + 126 - at));
    let sources: Vec<IpAddr> = sources.map(IpAddr::V4).collect();
    for source in &sources {
        let address = format!("{source}/25");
        cluster.tool("client-1", "ip", &["address", "add", &address, "dev", client.device()]);
    }
    let nodes_of = |source: IpAddr, to: SocketAddr| {
        let target = Target::new(to, SHORT.0);
        let load = Requests { target, sources: vec![source], ..cluster.requests(100) };
        let report = load.start_in(client).unwrap().finish().unwrap();
        assert_eq!(report.failed, 0, "{report:?}");
        report.by_node.into_keys().collect::<BTreeSet<String>>()
    };
    let mut all = BTreeSet::new();
    for &source in &sources {
        let mut at_ports = PORTS.map(|_| BTreeSet::new());
        // A node that accepts no flows of one service for a moment is missing at that port only.
        poll_until(PATIENCE, "all nodes of all services were up, by one table", || {
            let (since, table) = (Instant::now(), applied_table(&cluster));
            at_ports = sticky.map(|to| nodes_of(source, to));
            let were_up = up_ms_min(&cluster, PORTS.len() + 1) > since.elapsed().as_millis() as u64;
            were_up && table.is_some() && table == applied_table(&cluster)
        });
        let [first, second] = at_ports;
        assert!(first.len() == 1 && first == second, "{source}: {first:?}, {second:?}");
        all.extend(first);
    }
    figure(&format!("by address: {CLIENTS} clients at one of {} nodes each, 2 ports", all.len()));
}

#[test]
fn ipv6_is_steered_and_taken_over() {
    const DOWNLOADS: usize = 200;
    let setup = Setup { ipv6: true, ..Setup::of(2, 3) };
    let Some(cluster) = DirectCluster::start(setup) else { return };
    let (active, clients) = (cluster.wait_active(), cluster.bed().clients());
    let standby = cluster.standby();
    let shares = counts(&cluster, cluster.vip6(), 3000);
    assert_eq!(shares.len(), 3, "{shares:?}");
    let target = |path: &str| Target::new(cluster.vip6(), path);
    let downloads = Loads::start(clients, |client: &Machine| {
        let load = cluster.downloads(DOWNLOADS);
        let target = target(&load.target.path);
        Downloads { target, ..load }.start_in(client).unwrap()
    });
    let all = (DOWNLOADS * clients.len()) as u64;
    downloads.wait_flowing(all);
    let requests = Loads::start(clients, |client: &Machine| {
        Requests { target: target(SHORT.0), ..cluster.stream(100) }.start_in(client).unwrap()
    });
    requests.wait_for_more(100);
    cluster.machine(&active).kill().unwrap();
    requests.wait_for_more(400);
    downloads.wait_flowing(all);
    assert_eq!(cluster.wait_active(), standby);
    let is_whole = |report: &Report| assert_eq!(report.failed, 0, "{report:?}");
    downloads.stop().iter().for_each(is_whole);
    let requests = requests.stop();
    requests.iter().for_each(is_whole);
    let gap_ms = requests.iter().map(|report| report.longest_gap_ms).max().unwrap();
    figure(&format!(
        "IPv6: 3000 connections to 3 nodes; the active dispatcher's machine killed: no good reply \
         for {gap_ms} ms, {all} downloads, none lost"
    ));
}

/// Opens a connection from a client to an address of the service.
fn connect(cluster: &DirectCluster, to: SocketAddr) -> Result<RawClient, ClientError> {
    cluster.machine("client-1").run(|| RawClient::try_connect(to)).unwrap()
}

/// Returns the response to a request with a body; both are larger than a packet.
#[track_caller]
fn upload(cluster: &DirectCluster, to: SocketAddr) -> Response {
    let (padding, body) = ("p".repeat(6000), vec![b'b'; 500_000]);
    let mut client = connect(cluster, to).unwrap();
    let len = body.len();
    client.send(format!(
        "POST {} HTTP/1.1\r\nHost: test\r\nX-Padding: {padding}\r\nContent-Length: {len}\r\n\r\n",
        SHORT.0
    ));
    client.send(body);
    client.try_response_to("POST").unwrap()
}

/// Tests requests, uploads, echo and refusals with one way to attach the XDP program.
fn every_way_carries(attach: &str, said: &str) {
    let direct = format!("attach = \"{attach}\"");
    let Some(cluster) = DirectCluster::start(Setup { ipv6: true, direct, ..Setup::of(1, 2) })
    else {
        return;
    };
    cluster.wait_log(DISPATCHER, &format!("packets are steered by {said}"));
    let status = cluster.whole_status(DISPATCHER);
    assert_eq!(status["direct"]["attached"], said);
    for to in [cluster.vip(), cluster.vip6()] {
        let counts = counts(&cluster, to, 400);
        assert_eq!(counts.len(), 2, "{to}: {counts:?}");
        assert_eq!(upload(&cluster, to).status, 405, "{to}");

        let vip = to.ip().to_string();
        let before = cluster.packets(DISPATCHER, "answer_echo");
        cluster.tool("client-1", "ping", &["-c", "5", "-i", "0.01", "-W", "5", &vip]);
        poll_until(PATIENCE, "echo answered by the program", || {
            cluster.packets(DISPATCHER, "answer_echo") >= before + 5
        });

        let nobodys = SocketAddr::new(to.ip(), 4242);
        let refused = ClientError::Connect(std::io::ErrorKind::ConnectionRefused);
        assert_eq!(connect(&cluster, nobodys).unwrap_err(), refused, "{nobodys}");
    }
    figure(&format!(
        "attach = {attach}: 800 requests, uploads, echo and refusals, IPv4 and IPv6, by {said}"
    ));
}

#[test]
fn by_native_xdp() {
    every_way_carries("xdp-native", "native XDP");
}

#[test]
fn by_generic_xdp() {
    every_way_carries("xdp-generic", "generic XDP");
}

#[test]
fn by_tc() {
    every_way_carries("tc", "tc");
}
