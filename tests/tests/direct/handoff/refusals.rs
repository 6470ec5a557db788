//! Nodes that refuse or cannot accept a connection, and messages of strangers.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use rustix::process::Signal;
use skep_lab::load::Pattern;
use skep_tests::direct::{DirectCluster, LONG, Setup, figure};
use skep_tests::freezer::Freezer;
use skep_tests::{PATIENCE, RawClient, poll_until};
use socket2::{Domain, Protocol, Socket, Type};

use super::moving::{
    CLIENT, Elsewhere, answerer, ask_all, assert_all_served, family, load, moved_from, path,
    path_of, start,
};
use super::{PATIENT, by_url, moved};

/// Number of connections of each test.
const COUNT: usize = 6;

/// Metric of datagrams that a node refused.
const REFUSED: &str = "skep_handoff_datagrams_refused_total";

/// Metric of open client connections.
const OPEN: &str = "skep_connections_open";

/// Returns the number of a donor's moves with one outcome.
fn outcome(cluster: &DirectCluster, node: &str, outcome: &str) -> f64 {
    cluster.metric(node, &format!("skep_handoffs_total{{outcome=\"{outcome}\"}}"))
}

#[test]
fn a_full_receiver_refuses_and_the_donor_serves() {
    /// Maximum number of concurrent connections of a node.
    const CONNECTIONS_MAX: usize = 60;
    let lines = format!("{PATIENT}limits.connections_max = {CONNECTIONS_MAX}\n");
    let Some(cluster) = start(Setup { lines, ..by_url(2) }) else { return };
    let path = path_of(&cluster, "node-2");
    let connect = |_| Elsewhere::connect(&cluster, cluster.vip(), "node-2");
    let mut all: Vec<_> = (0..COUNT).map(connect).collect();
    let address = cluster.node_address("node-2");
    let fill = || (0..2 * CONNECTIONS_MAX).map(|_| RawClient::connect(address)).collect();
    let fillers: Vec<RawClient> = cluster.machine("client-2").run(fill).unwrap();
    for it in &mut all {
        it.client.ask(&path);
        assert_eq!(it.assert_short(), "node-1");
    }
    let refused = outcome(&cluster, "node-1", "refused_full");
    figure(&format!("{refused} refused by a node that is full"));
    assert!(refused >= 1.0);
    drop(fillers);
    poll_until(PATIENCE, "the receiver has room", || {
        cluster.metric("node-2", OPEN) < CONNECTIONS_MAX as f64 / 2.0
    });
    moved_from(&cluster, ("node-1", "node-2"), 1);
    assert_eq!(ask_all(&mut all), [""; 0]);
}

/// The donor has not learned yet that the receiver drains.
#[test]
fn a_receiver_that_drains_refuses_and_the_donor_serves() {
    let Some(freezer) = Freezer::new() else { return };
    let Some(cluster) = start(by_url(2)) else { return };
    let path = path_of(&cluster, "node-2");
    let connect = |_| Elsewhere::connect(&cluster, cluster.vip(), "node-2");
    let mut all: Vec<_> = (0..COUNT).map(connect).collect();
    // Keeps the receiver draining.
    let address = cluster.node_address("node-2");
    let busy = cluster.machine("client-2").run(|| {
        let mut client = RawClient::connect(address);
        client.ask(LONG.0);
        client
    });
    freezer.freeze(cluster.daemon("node-1").pid(), "skep-table");
    cluster.daemon("node-2").signal(Signal::TERM);
    cluster.wait_log("node-2", "draining");
    for it in &mut all {
        it.client.ask(&path);
        assert_eq!(it.assert_short(), "node-1");
    }
    let refused = outcome(&cluster, "node-1", "refused_not_serving");
    figure(&format!("{refused} refused by a node that drains"));
    assert!(refused >= 1.0);
    drop(busy);
    let finished = cluster.end("node-2");
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    drop(cluster);
}

/// Otherwise nothing would end the moves: a process without an answer for ten seconds is restarted.
#[test]
fn a_netguard_that_stands_still_ends_its_process() {
    let Some(freezer) = Freezer::new() else { return };
    let Some(cluster) = start(by_url(2)) else { return };
    let path = path_of(&cluster, "node-2");
    let mut it = Elsewhere::connect(&cluster, cluster.vip(), "node-2");
    let guards: Vec<_> = cluster.processes("node-1", "netguard").into_iter().collect();
    guards.iter().for_each(|guard| freezer.freeze(*guard, "skep-handoff"));
    it.client.ask(&path);
    cluster.wait_log("node-1", "netguard does not answer the mover");
    cluster.wait_log("node-1", "this process ends with code 1");
    drop(cluster);
}

/// A node's mover uses another node only once its XDP program has it: otherwise packets of moved connections
/// would be lost.
#[test]
fn connections_go_to_a_new_node_once_the_donors_program_knows_it() {
    let Some(freezer) = Freezer::new() else { return };
    let Some(cluster) = DirectCluster::prepare(by_url(3)) else { return };
    ["dispatcher-1", "node-1", "node-2"].iter().for_each(|name| cluster.run(name));
    let two = ["node-1", "node-2"].map(str::to_owned).into();
    cluster.wait_nodes(CLIENT, &two);
    freezer.freeze(cluster.daemon("node-1").pid(), "skep-table");
    cluster.run("node-3");
    poll_until(PATIENCE, "others give connections to the new node", || {
        (0..12).any(|number| answerer(&cluster, &path(number)) == "node-3")
    });
    for number in 0..120 {
        let vip = cluster.vip();
        let mut client = cluster.machine(CLIENT).run(|| RawClient::connect(vip)).unwrap();
        for _ in 0..3 {
            client.ask(&path(number));
            let response = client.try_response();
            assert!(response.as_ref().is_ok_and(|it| it.status == 200), "{number}: {response:?}");
        }
    }
    drop(cluster);
}

/// Each node considers another one the right one, whichever has the connection.
#[test]
fn nodes_that_want_to_be_rid_of_a_connection_move_it_so_often_and_no_more() {
    let policy = "round-robin".to_owned();
    let Some(cluster) = start(Setup { policy, ..by_url(2) }) else { return };
    for node in ["node-1", "node-2"] {
        let address = cluster.node_address(node);
        let get = || RawClient::connect(address).get(LONG.0).status;
        assert_eq!(cluster.machine(CLIENT).run(get).unwrap(), 200);
    }
    for _ in 0..3 {
        let before = moved(&cluster);
        let vip = cluster.vip();
        let mut client = cluster.machine(CLIENT).run(|| RawClient::connect(vip)).unwrap();
        for _ in 0..12 {
            let response = client.get(LONG.0);
            assert_eq!(response.body.len() as u64, LONG.1);
            assert_eq!(Pattern { seed: 3 }.first_wrong(0, &response.body), None);
        }
        let moves = moved(&cluster) - before;
        figure(&format!("{moves} moves of one connection with 12 long replies"));
        assert!(moves <= 4.0, "{moves}");
    }
}

/// Datagrams of strangers: garbage of various lengths, from machines inside and outside the cluster.
fn forge(from: IpAddr, to: SocketAddr, is_udp: bool) -> usize {
    let bytes: Vec<u8> = (0..1_400_u32).map(|byte| (byte * 7) as u8).collect();
    let lengths = [1, 15, 16, 28, 29, 60, 100, 300, 1_000, 1_400];
    if is_udp {
        let socket = UdpSocket::bind((from, 0)).unwrap();
        lengths.iter().for_each(|&len| assert_eq!(socket.send_to(&bytes[..len], to).unwrap(), len));
    } else {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(253))).unwrap();
        socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        let to = SocketAddr::from((to.ip(), 0)).into();
        lengths
            .iter()
            .for_each(|&len| assert_eq!(socket.send_to(&bytes[..len], &to).unwrap(), len));
    }
    lengths.len()
}

#[test]
fn messages_of_machines_without_the_key_are_counted_and_change_nothing() {
    for transport in ["ip", "udp"] {
        let lines = format!("{PATIENT}handoff.transport = \"{transport}\"\n");
        let Some(cluster) = start(Setup { lines, ..by_url(2) }) else { return };
        let mut all = moved_from(&cluster, ("node-1", "node-2"), COUNT);
        let requests = load(&cluster, 100);
        requests.wait_for_more(50);
        for from in ["client-2", "dispatcher-1", "node-1"] {
            let before = family(&cluster, "node-2", REFUSED);
            let to = (cluster.machine("node-2").ipv4(), 7072).into();
            let machine = cluster.machine(from);
            let own = machine.ipv4().into();
            let sent = machine.run(|| forge(own, to, transport == "udp")).unwrap() as f64;
            poll_until(PATIENCE, &format!("{sent} refused of {from} by {transport}"), || {
                family(&cluster, "node-2", REFUSED) - before >= sent
            });
        }
        requests.wait_for_more(50);
        assert_all_served(requests);
        assert_eq!(ask_all(&mut all), [""; 0]);
        let malformed = family(&cluster, "node-2", "skep_handoff_messages_malformed_total");
        assert_eq!(malformed, 0.0);
    }
}
