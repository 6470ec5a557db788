//! Behaviour of clients on a connection that moves.

use std::net::Shutdown;
use std::time::Duration;

use skep_lab::load::Pattern;
use skep_testclient::{HOST, request_bytes};
use skep_tests::direct::{DirectCluster, LONG, SHORT, Setup, figure};
use skep_tests::{PATIENCE, RawClient, poll_until};

use super::moving::{CLIENT, Elsewhere, owners, path, path_like, path_of, receiver_of, start};
use super::{PATIENT, by_url, moved_at_rest};

/// Number of moves of each scenario.
const TIMES: usize = 6;

/// A client's pause: longer than any timeout of the protocol.
const PAUSE: Duration = Duration::from_millis(900);

/// Connections accepted by a donor, by the node that first answered: on a busy machine READY may be late, and
/// then the donor serves.
struct Moves<'a> {
    cluster: &'a DirectCluster,
    receiver: String,
    /// Moves that were counted before.
    before: f64,
    connections: usize,
    moved: usize,
}

impl<'a> Moves<'a> {
    #[track_caller]
    fn to(cluster: &'a DirectCluster, receiver: &str) -> Self {
        let (receiver, before) = (receiver.to_owned(), moved_at_rest(cluster));
        Self { cluster, receiver, before, connections: 0, moved: 0 }
    }

    /// Records that this node has answered on one of the connections.
    fn add(&mut self, node: &str) {
        self.connections += 1;
        self.moved += usize::from(node == self.receiver);
    }

    /// Asserts that most have moved, and each once.
    #[track_caller]
    fn assert(self) {
        let Self { cluster, before, connections, moved, .. } = self;
        figure(&format!("{moved} of {connections} connections have moved"));
        assert!(2 * moved >= connections, "{moved} of {connections}");
        assert_eq!(moved_at_rest(cluster) - before, moved as f64, "moves of {moved} connections");
    }
}

#[test]
fn connections_of_ipv6_move() {
    let Some(cluster) = start(Setup { ipv6: true, ..by_url(3) }) else {
        return;
    };
    let receiver = receiver_of(&cluster, SHORT.0);
    poll_until(PATIENCE, "IPv6 answers", || cluster.ask(CLIENT, cluster.vip6(), "/short").is_ok());
    let mut moves = Moves::to(&cluster, &receiver);
    for _ in 0..TIMES {
        let mut it = Elsewhere::connect(&cluster, cluster.vip6(), &receiver);
        it.client.ask(SHORT.0);
        moves.add(&it.assert_short());
        assert!(it.may_answer(&it.owner(&cluster)));
        // Again, after the move.
        it.client.ask(SHORT.0);
        it.assert_short();
    }
    moves.assert();
}

#[test]
fn requests_of_http_1_0_and_many_on_one_connection() {
    let Some(cluster) = start(by_url(3)) else { return };
    let receiver = receiver_of(&cluster, SHORT.0);
    let mut moves = Moves::to(&cluster, &receiver);
    for _ in 0..TIMES {
        let mut it = Elsewhere::connect(&cluster, cluster.vip(), &receiver);
        it.client.send("GET /short HTTP/1.0\r\nHost: test\r\n\r\n");
        moves.add(&it.assert_short());
        it.client.assert_closed();
        // Small replies do not move the connection, whichever node has them.
        let mut it = Elsewhere::connect(&cluster, cluster.vip(), &receiver);
        it.client.ask(SHORT.0);
        moves.add(&it.assert_short());
        for number in 0..20 {
            it.client.ask(&path(number));
            it.assert_short();
        }
        assert!(it.may_answer(&it.owner(&cluster)));
    }
    moves.assert();
}

#[test]
fn pipelined_requests_go_along_and_heads_may_come_in_pieces() {
    let Some(cluster) = start(by_url(3)) else { return };
    let receiver = receiver_of(&cluster, SHORT.0);
    let mut moves = Moves::to(&cluster, &receiver);
    for _ in 0..TIMES {
        let mut it = Elsewhere::connect(&cluster, cluster.vip(), &receiver);
        let request = request_bytes("GET", SHORT.0, &[HOST]);
        it.client.send(request.repeat(5));
        moves.add(&it.assert_short());
        (1..5).for_each(|_| drop(it.assert_short()));
        // Up to the middle of another head, whose rest arrives at the receiver.
        let mut it = Elsewhere::connect(&cluster, cluster.vip(), &receiver);
        let (begin, end) = request.split_at(9);
        it.client.send([&request, begin].concat());
        moves.add(&it.assert_short());
        it.client.send(end);
        it.assert_short();
        // In small pieces.
        let mut it = Elsewhere::connect(&cluster, cluster.vip(), &receiver);
        for piece in request.chunks(7) {
            it.client.send(piece);
            it.wait_read(&cluster);
        }
        moves.add(&it.assert_short());
        assert!(it.may_answer(&it.owner(&cluster)));
    }
    moves.assert();
}

#[test]
fn clients_may_say_nothing_for_a_while_before_and_behind_the_move() {
    let Some(cluster) = start(by_url(2)) else { return };
    let receiver = receiver_of(&cluster, SHORT.0);
    let connect = |_| Elsewhere::connect(&cluster, cluster.vip(), &receiver);
    let mut all: Vec<_> = (0..TIMES).map(connect).collect();
    // The silence is the subject of the test.
    std::thread::sleep(PAUSE);
    let mut moves = Moves::to(&cluster, &receiver);
    for it in &mut all {
        it.client.ask(SHORT.0);
        moves.add(&it.assert_short());
    }
    moves.assert();
    std::thread::sleep(PAUSE);
    for it in &mut all {
        it.client.ask(SHORT.0);
        it.assert_short();
    }
}

#[test]
fn a_client_may_close_its_side_or_reset_while_the_connection_moves() {
    let Some(cluster) = start(by_url(3)) else { return };
    let receiver = receiver_of(&cluster, SHORT.0);
    let request = request_bytes("GET", SHORT.0, &[HOST]);
    let mut by_receiver = 0;
    for number in 0..4 * TIMES {
        let mut it = Elsewhere::connect(&cluster, cluster.vip(), &receiver);
        it.client.send(&request);
        // Immediately, or during the move.
        std::thread::sleep(Duration::from_micros(100 * number as u64));
        it.client.stream().shutdown(Shutdown::Write).unwrap();
        by_receiver += usize::from(it.assert_short() == receiver);
        it.client.assert_closed();
    }
    figure(&format!("{by_receiver} of {} half-closed connections have moved", 4 * TIMES));
    let mut left = Vec::new();
    for number in 0..8 * TIMES {
        let mut it = Elsewhere::connect(&cluster, cluster.vip(), &receiver);
        it.client.send(&request);
        std::thread::sleep(Duration::from_micros(50 * number as u64));
        left.push(it.reset());
    }
    poll_until(PATIENCE, "no node has a socket of them", || {
        left.iter().all(|client| owners(&cluster, *client).is_empty())
    });
    for _ in 0..TIMES {
        assert_eq!(receiver_of(&cluster, SHORT.0), receiver);
    }
}

#[test]
fn a_client_that_takes_nothing_for_a_while_gets_all_in_the_end() {
    let Some(cluster) = start(by_url(2)) else { return };
    let path = path_like(&cluster, LONG.0, "node-2");
    let mut moves = Moves::to(&cluster, "node-2");
    for _ in 0..3 {
        let mut it = Elsewhere::connect(&cluster, cluster.vip(), "node-2");
        it.client.ask(&path);
        // The receiver's window closes, and opens again.
        it.wait_stalled(&cluster);
        std::thread::sleep(PAUSE);
        moves.add(&it.assert_body(LONG.1));
    }
    moves.assert();
}

#[test]
fn a_connection_moves_again_for_a_long_reply_and_as_often_as_the_config_says() {
    let lines = format!("{PATIENT}handoff.moves_max = 3\n");
    let Some(cluster) = start(Setup { lines, ..by_url(3) }) else { return };
    let nodes = ["node-1", "node-2", "node-3"];
    let long = nodes.map(|node| path_like(&cluster, LONG.0, node));
    let short = path_of(&cluster, "node-1");
    // The length of a reply is known if it is in memory.
    for node in nodes {
        let address = cluster.node_address(node);
        let get = || RawClient::connect(address).get(LONG.0).status;
        assert_eq!(cluster.machine(CLIENT).run(get).unwrap(), 200);
    }
    let mut all = 0.0;
    for _ in 0..3 {
        let before = moved_at_rest(&cluster);
        let mut it = Elsewhere::connect(&cluster, cluster.vip(), "node-1");
        it.client.ask(&short);
        it.assert_short();
        // In a cycle, including nodes that had it before.
        for path in [1, 2, 0, 1, 2].map(|number| &long[number]) {
            let response = it.client.get(path);
            assert_eq!(Pattern { seed: 3 }.first_wrong(0, &response.body), None);
            assert_eq!(response.body.len() as u64, LONG.1);
        }
        let moves = moved_at_rest(&cluster) - before;
        assert!(moves <= 3.0, "{moves} moves");
        all += moves;
    }
    figure(&format!("{all} moves of three connections that may move three times each"));
    assert!(all >= 5.0, "{all}");
}

#[test]
fn a_connection_comes_back_to_where_it_was() {
    let Some(cluster) = start(by_url(2)) else { return };
    let long = ["node-1", "node-2"].map(|node| path_like(&cluster, LONG.0, node));
    let before = moved_at_rest(&cluster);
    for _ in 0..TIMES {
        let mut it = Elsewhere::connect(&cluster, cluster.vip(), "node-1");
        for path in [&long[0], &long[1], &long[0]] {
            let response = it.client.get(path);
            assert_eq!(Pattern { seed: 3 }.first_wrong(0, &response.body), None);
            assert_eq!(response.body.len() as u64, LONG.1);
        }
        it.client.ask(SHORT.0);
        it.client.response().assert_status(200);
    }
    let moves = moved_at_rest(&cluster) - before;
    figure(&format!("{moves} moves of {} connections that come back", TIMES));
    assert!(moves >= 2.0 * TIMES as f64, "{moves}");
}
