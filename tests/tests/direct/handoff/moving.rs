//! Shared code of the handoff tests: connections whose nodes are known.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use skep_lab::load::{Pattern, Report, Requests};
use skep_testclient::{HOST, request_bytes};
use skep_tests::direct::{DirectCluster, Loads, SHORT, Setup};
use skep_tests::{PATIENCE, RawClient, holds_within, poll_until};

/// The machine of the client.
pub(super) const CLIENT: &str = "client-1";

/// Maximum number of connections tried until one is accepted by another node than that of its request.
const TRIES_MAX: usize = 100;

/// Number of answers that must agree on the node of a path.
const AGREEING: usize = 3;

/// States of sockets in `/proc/net/tcp` that a process may hold: ESTABLISHED and CLOSE_WAIT.
const HELD_STATES: [&str; 2] = ["01", "08"];

/// Starts a cluster whose nodes move connections to each other; `None`, reported loudly, without root.
#[track_caller]
pub(super) fn start(setup: Setup) -> Option<DirectCluster> {
    let cluster = DirectCluster::start(setup)?;
    wait_moving(&cluster);
    Some(cluster)
}

/// Waits until each node has moved connections to every other one: then all have a table with all nodes.
#[track_caller]
pub(super) fn wait_moving(cluster: &DirectCluster) {
    let names: Vec<&str> = cluster.bed().nodes().iter().map(|node| node.name()).collect();
    let pairs = names.iter().flat_map(|one| names.iter().map(move |other| (*one, *other)));
    let mut left: BTreeSet<(&str, &str)> = pairs.filter(|(one, other)| one != other).collect();
    let (vip, mut number) = (cluster.vip(), 0);
    poll_until(PATIENCE, "all nodes move connections to each other", || {
        let stream = cluster.machine(CLIENT).run(|| TcpStream::connect(vip).unwrap()).unwrap();
        let donor = wait_owner(cluster, stream.local_addr().unwrap());
        let mut client = RawClient::over(stream).unwrap();
        number += 1;
        client.ask(&path(number % TRIES_MAX));
        let answer = client.response();
        let receiver = answer.header("x-skep-node").unwrap();
        left.retain(|pair| *pair != (donor.as_str(), receiver));
        left.is_empty()
    });
}

/// Returns a path of the short file; each path belongs to some node.
pub(super) fn path(number: usize) -> String {
    format!("{}?{number}", SHORT.0)
}

/// Returns the node that currently answers a path.
pub(super) fn answerer(cluster: &DirectCluster, path: &str) -> String {
    cluster.ask(CLIENT, cluster.vip(), path).unwrap()
}

/// Returns the node that is to answer a path. On a busy machine a donor may answer some requests itself.
#[track_caller]
pub(super) fn receiver_of(cluster: &DirectCluster, path: &str) -> String {
    let mut seen = Vec::new();
    poll_until(PATIENCE, "the same node answers each time", || {
        seen = (0..AGREEING).filter_map(|_| head_by(cluster, path)).collect();
        seen.len() == AGREEING && seen.iter().all(|node| *node == seen[0])
    });
    seen.swap_remove(0)
}

/// Returns a path that this node answers.
#[track_caller]
pub(super) fn path_of(cluster: &DirectCluster, node: &str) -> String {
    path_like(cluster, SHORT.0, node)
}

/// Returns a path of the file at `file` that this node answers.
#[track_caller]
pub(super) fn path_like(cluster: &DirectCluster, file: &str, node: &str) -> String {
    let path = find_path(cluster, file, node);
    path.unwrap_or_else(|| panic!("no path of {file} belongs to {node}"))
}

/// Like [`path_like`]; `None` while the nodes' tables do not include that node yet.
fn find_path(cluster: &DirectCluster, file: &str, node: &str) -> Option<String> {
    let mut paths = (0..TRIES_MAX).map(|number| format!("{file}?{number}"));
    let is_its =
        |path: &String| (0..AGREEING).all(|_| head_by(cluster, path).as_deref() == Some(node));
    paths.find(is_its)
}

/// Returns the node that answers, from the head of the response.
fn head_by(cluster: &DirectCluster, path: &str) -> Option<String> {
    let vip = cluster.vip();
    let request = request_bytes("HEAD", path, &[HOST, ("Connection", "close")]);
    let asked = cluster.machine(CLIENT).run(|| {
        let mut client = RawClient::connect(vip);
        client.send(request);
        client.try_response_to("HEAD")
    });
    asked.unwrap().ok()?.header("x-skep-node").map(str::to_owned)
}

/// A connection that was accepted by another node than the one that is to answer.
pub(super) struct Elsewhere {
    pub(super) client: RawClient,
    /// The node that accepted it.
    pub(super) donor: String,
    /// The node that is to answer.
    receiver: String,
    /// The client's address.
    pub(super) local: SocketAddr,
}

impl Elsewhere {
    /// Opens a new connection to `address` that any node except `receiver` has accepted.
    #[track_caller]
    pub(super) fn connect(cluster: &DirectCluster, address: SocketAddr, receiver: &str) -> Self {
        Self::connect_by(cluster, receiver, || TcpStream::connect(address).unwrap())
    }

    /// Like [`Self::connect`], with any way to connect, in the client's network.
    #[track_caller]
    pub(super) fn connect_by(
        cluster: &DirectCluster,
        receiver: &str,
        connect: impl Fn() -> TcpStream + Sync,
    ) -> Self {
        for _ in 0..TRIES_MAX {
            let stream = cluster.machine(CLIENT).run(&connect).unwrap();
            let local = stream.local_addr().unwrap();
            let donor = wait_owner(cluster, local);
            if donor != receiver {
                let client = RawClient::over(stream).unwrap();
                return Self { client, donor, receiver: receiver.to_owned(), local };
            }
        }
        panic!("all of {TRIES_MAX} connections come to {receiver}");
    }

    /// Reads the short file; returns the node that answered.
    #[track_caller]
    pub(super) fn assert_short(&mut self) -> String {
        self.assert_body(SHORT.1)
    }

    /// Reads and verifies a file of that length; returns the node that answered: the receiver, or the donor
    /// if a busy machine was late.
    #[track_caller]
    pub(super) fn assert_body(&mut self, len: u64) -> String {
        let node = self.assert_bytes(len);
        assert!(self.may_answer(&node), "{node} has answered");
        node
    }

    /// Like [`Self::assert_body`], whichever node has answered.
    #[track_caller]
    fn assert_bytes(&mut self, len: u64) -> String {
        let response = match self.client.try_response() {
            Ok(response) => response,
            Err(error) => panic!("no response on {} of {}: {error}", self.local, self.donor),
        };
        let node = response.assert_status(200).header("x-skep-node").unwrap().to_owned();
        assert_eq!(response.body.len() as u64, len);
        assert_eq!(Pattern { seed: 3 }.first_wrong(0, &response.body), None);
        node
    }

    /// Whether this node is the donor or the receiver.
    pub(super) fn may_answer(&self, node: &str) -> bool {
        [&self.donor, &self.receiver].into_iter().any(|it| it == node)
    }

    /// Returns the node that currently owns the connection.
    #[track_caller]
    pub(super) fn owner(&self, cluster: &DirectCluster) -> String {
        wait_owner(cluster, self.local)
    }

    /// Resets it; returns the client's address.
    pub(super) fn reset(self) -> SocketAddr {
        let stream = self.client.into_stream();
        let linger = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        linger.expect("a socket of ours");
        self.local
    }

    /// Waits until its server has read everything it received.
    #[track_caller]
    pub(super) fn wait_read(&self, cluster: &DirectCluster) {
        poll_until(PATIENCE, "the server reads", || {
            let nodes = cluster.bed().nodes().iter();
            let mut lines = nodes.flat_map(|node| sockets(cluster, node.name(), self.local));
            lines.all(|line| line.received_bytes == 0)
        });
    }

    /// Waits until the server has data that the client does not read.
    #[track_caller]
    pub(super) fn wait_stalled(&self, cluster: &DirectCluster) {
        let mut before = 0;
        poll_until(PATIENCE, "the client's window is full", || {
            std::thread::sleep(Duration::from_millis(50));
            let nodes = cluster.bed().nodes().iter();
            let lines = nodes.flat_map(|node| sockets(cluster, node.name(), self.local));
            let now = lines.map(|line| line.unsent_bytes).sum::<u64>();
            std::mem::replace(&mut before, now) == now && now > 0
        });
    }
}

/// A socket of a machine, from `/proc/net/tcp`.
struct SocketLine {
    unsent_bytes: u64,
    received_bytes: u64,
    inode: u64,
}

/// Returns the inode of a node's socket for a client's connection.
pub(super) fn inode(cluster: &DirectCluster, node: &str, client: SocketAddr) -> Option<u64> {
    sockets(cluster, node, client).first().map(|line| line.inode).filter(|inode| *inode > 0)
}

/// Returns the sockets of a node for a client's connection.
fn sockets(cluster: &DirectCluster, node: &str, client: SocketAddr) -> Vec<SocketLine> {
    let read = || {
        let file = if client.is_ipv4() { "tcp" } else { "tcp6" };
        std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default()
    };
    let text = cluster.machine(node).run(read).unwrap_or_default();
    let of_client = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (_, port) = fields.get(2)?.rsplit_once(':')?;
        let is_it = u16::from_str_radix(port, 16).ok()? == client.port();
        let is_held = HELD_STATES.contains(fields.get(3)?);
        let (unsent, received) = fields.get(4)?.split_once(':')?;
        let number = |hex| u64::from_str_radix(hex, 16).ok();
        let (unsent_bytes, received_bytes) = (number(unsent)?, number(received)?);
        let inode = fields.get(9)?.parse().ok()?;
        let line = SocketLine { unsent_bytes, received_bytes, inode };
        (is_it && is_held).then_some(line)
    };
    text.lines().filter_map(of_client).collect()
}

/// Returns the nodes that have a socket for a client's connection.
pub(super) fn owners(cluster: &DirectCluster, client: SocketAddr) -> Vec<String> {
    let names = cluster.bed().nodes().iter().map(|node| node.name());
    let names = names.filter(|name| !sockets(cluster, name, client).is_empty());
    names.map(str::to_owned).collect()
}

#[track_caller]
fn wait_owner(cluster: &DirectCluster, client: SocketAddr) -> String {
    let mut found = Vec::new();
    poll_until(PATIENCE, "one node has the connection", || {
        found = owners(cluster, client);
        found.len() == 1
    });
    found.remove(0)
}

/// Returns the sum of all samples of a node's metric.
pub(super) fn family(cluster: &DirectCluster, node: &str, metric: &str) -> f64 {
    let text = cluster.metrics(node);
    let lines = text.lines().filter(|line| !line.starts_with('#') && line.starts_with(metric));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Starts requests for several paths, with a new connection each, at an even rate: most connections move.
pub(super) fn load(cluster: &DirectCluster, per_second: u32) -> Loads {
    let (client, number) = (cluster.machine(CLIENT), AtomicUsize::new(0));
    Loads::start([client; 4], |machine| {
        let mut requests = cluster.stream(per_second / 4);
        requests.target.path = path(number.fetch_add(1, Ordering::Relaxed));
        Requests { workers: 500, timeout_ms: 10_000, ..requests }.start_in(machine).unwrap()
    })
}

/// Returns the number of failures of a load and its maximum latency in milliseconds; asserts that no request
/// timed out and no byte was wrong.
#[track_caller]
pub(super) fn assert_no_hang(reports: &[Report], longest_ms: u64) -> (u64, u64) {
    for report in reports {
        assert_eq!((report.timeouts, report.wrong_bytes), (0, 0), "{report:?}");
        assert!(report.longest_wait_ms <= longest_ms, "{report:?}");
    }
    let wait_ms = reports.iter().map(|report| report.longest_wait_ms).max().unwrap();
    (reports.iter().map(|report| report.failed).sum(), wait_ms)
}

/// Ends a load in which no request may have failed.
#[track_caller]
pub(super) fn assert_all_served(loads: Loads) {
    for report in loads.stop() {
        assert_eq!((report.failed, report.resets), (0, 0), "{report:?}");
    }
}

/// Waits until the dispatcher has learned of all moves, but for those whose reports found no active dispatcher for a second.
#[track_caller]
pub(super) fn wait_learned(cluster: &DirectCluster) {
    let reported = |outcome| super::count(cluster, "skep_handoff_flows_reported_total", outcome);
    // Moves first: others go on meanwhile, and are reported later than they are counted.
    let figures = || (super::moved(cluster), reported("learned"), reported("given_up"));
    let is_reported = || {
        let (moved, learned, given_up) = figures();
        learned + given_up >= moved
    };
    let within = holds_within(PATIENCE, is_reported);
    assert!(within, "moved, learned, given up: {:?}", figures());
}

/// Returns `count` connections that `donor` accepted and `receiver` now owns.
#[track_caller]
pub(super) fn moved_from(
    cluster: &DirectCluster,
    (donor, receiver): (&str, &str),
    count: usize,
) -> Vec<Elsewhere> {
    let mut all = Vec::new();
    // A node that has just started receives connections as soon as the others' tables include it.
    poll_until(PATIENCE, &format!("{count} connections move from {donor} to {receiver}"), || {
        let Some(path) = find_path(cluster, SHORT.0, receiver) else { return false };
        let mut it = Elsewhere::connect(cluster, cluster.vip(), receiver);
        if it.donor == donor {
            it.client.ask(&path);
            let is_moved = it.assert_bytes(SHORT.1) == receiver;
            all.extend(is_moved.then_some(it));
        }
        all.len() == count
    });
    all
}

/// Sends a request on each connection; returns the errors of those that failed.
pub(super) fn ask_all(all: &mut [Elsewhere]) -> Vec<String> {
    let asked = all.iter_mut().filter_map(|it| {
        it.client.set_timeout(Duration::from_secs(5));
        it.client.ask(SHORT.0);
        match it.client.try_response() {
            Ok(response) => (response.status != 200).then(|| response.head_text()),
            Err(error) => Some(error.to_string()),
        }
    });
    asked.collect()
}
