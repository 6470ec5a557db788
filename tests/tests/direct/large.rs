//! A cluster with the maximum number of nodes, with real XDP programs.

use std::collections::BTreeSet;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use skep_tests::direct::{DirectCluster, HEARTBEAT_PORT, SHORT, Setup, figure};
use skep_tests::heartbeat_nodes::HeartbeatNodes;
use skep_tests::{PATIENCE, holds_within, poll_until};
use skep_units::NODES_MAX;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

const DISPATCHER: &str = "dispatcher-1";

/// The machine of the simulated nodes, which only send heartbeats.
const CROWD: &str = "node-2";

/// The only node that serves.
const NODE: &str = "node-1";

/// Interval of a node's heartbeats: concurrent tests leave it less than one core, and a late node is
/// considered dead.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Every protocol (`linux/if_ether.h`).
const ETH_P_ALL: u16 = 3;

/// Number of connections started per node.
const CONNECTIONS_PER_NODE: usize = 4;

/// Maximum number of rounds of starting them.
const ROUNDS_MAX: u32 = 6;

/// Buffer for frames to the simulated nodes until they are read: large enough for all of them, as the kernel
/// counts them.
const FRAMES_BYTES: usize = 16 << 20;

/// All nodes of a cluster except one.
fn crowd(cluster: &DirectCluster) -> HeartbeatNodes {
    HeartbeatNodes {
        cluster: "lab".into(),
        key: format!("{:-<32}", "lab"),
        dispatcher: (
            DISPATCHER.into(),
            (cluster.machine(DISPATCHER).ipv4(), HEARTBEAT_PORT).into(),
        ),
        address: cluster.machine(CROWD).ipv4().into(),
        numbers: 2..=NODES_MAX as u16,
        service: cluster.vip(),
        interval: HEARTBEAT,
    }
}

/// Returns the number of nodes that packets were steered to, by the counters of the XDP program.
fn steered(cluster: &DirectCluster) -> usize {
    let is_used =
        |line: &&str| line.starts_with("skep_direct_node_packets_total{") && !line.ends_with(" 0");
    cluster.metrics(DISPATCHER).lines().filter(is_used).count()
}

/// Collects the MAC addresses of simulated nodes that receive frames, until dropped.
struct Frames {
    is_over: Arc<AtomicBool>,
    seen: Arc<Mutex<BTreeSet<[u8; 6]>>>,
}

impl Frames {
    fn watch(cluster: &DirectCluster) -> Self {
        // No machine of the bed has these MAC addresses, so the bridge floods their frames to all ports.
        cluster.tool(CROWD, "ip", &["link", "set", "dev", "eth0", "promisc", "on"]);
        let (is_over, seen) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (ends, notes) = (Arc::clone(&is_over), Arc::<Mutex<BTreeSet<_>>>::clone(&seen));
        let all = i32::from(ETH_P_ALL.to_be());
        let watch = move || {
            let mut socket =
                Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(all))).unwrap();
            // Frames to all nodes arrive at once, and are repeated only by a client's retransmission.
            rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, FRAMES_BYTES).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            let mut frame = [0; 2048];
            while !ends.load(Ordering::Relaxed) {
                let Ok(len) = socket.read(&mut frame) else { continue };
                if let Some(to) = frame[..len].first_chunk::<6>().filter(|to| to[..2] == [2, 7]) {
                    notes.lock().unwrap().insert(*to);
                }
            }
        };
        drop(cluster.machine(CROWD).spawn(watch).unwrap());
        Self { is_over, seen }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Starts connections without waiting for them.
fn begin(to: SocketAddr, count: usize) -> Vec<Socket> {
    let begin = |_| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        let _ = socket.connect(&SockAddr::from(to));
        socket
    };
    (0..count).map(begin).collect()
}

#[test]
fn tables_of_all_nodes_that_may_be_are_applied_and_steer() {
    let direct = format!("node_heartbeat_ms = \"{}ms\"\n", HEARTBEAT.as_millis());
    // Health checks of a thousand nodes each second are not the subject; one may fail on a busy machine.
    let policy = "round-robin\"\nhealth.interval_ms = \"10s".to_owned();
    let setup = Setup { direct, policy, alone: true, ..Setup::of(1, 2) };
    let Some(cluster) = DirectCluster::prepare(setup) else { return };
    let crowd = crowd(&cluster);
    cluster.reconfigure(|setup| {
        setup.nodes = vec![(1, 100)];
        setup.site = crowd.lines();
    });
    let heartbeats = HeartbeatNodes::running();
    let began = Instant::now();
    let machine = cluster.machine(CROWD);
    drop(machine.spawn(crowd.clone().speak(&heartbeats)).unwrap());
    drop(machine.spawn(crowd.clone().answer_checks(&heartbeats)).unwrap());
    cluster.run_all();

    let generation = |state: &str| {
        let sample = format!("skep_direct_table_generation{{state=\"{state}\"}}");
        cluster.metric(DISPATCHER, &sample) as u64
    };
    // All nodes have the table with all nodes, and so has the XDP program, which is queried last: metrics of
    // a thousand nodes cost a busy machine more than their heartbeats.
    poll_until(3 * PATIENCE, "all have the last table", || {
        let versions = heartbeats.versions();
        let latest = versions.values().map(|version| version.generation).max().unwrap_or(0);
        versions.len() == NODES_MAX - 1
            && heartbeats.members() == NODES_MAX
            && versions.values().all(|version| version.generation == latest)
            && latest > 1
            && [generation("published"), generation("applied")] == [latest; 2]
    });
    let ready_ms = began.elapsed().as_millis();
    let (wholes, deltas) = heartbeats.tables();

    // New connections go to all nodes. Some SYNs are lost when so many arrive at once.
    let frames = Frames::watch(&cluster);
    let (vip, count) = (cluster.vip(), CONNECTIONS_PER_NODE * NODES_MAX);
    let rounds = (0..ROUNDS_MAX).map(|_| cluster.machine("client-1").run(|| begin(vip, count)));
    let mut begun = Vec::new();
    let are_seen = rounds.into_iter().any(|round| {
        begun.push(round.unwrap());
        holds_within(PATIENCE / ROUNDS_MAX, || frames.seen.lock().unwrap().len() == NODES_MAX - 1)
    });
    assert!(are_seen, "frames came to {} nodes", frames.seen.lock().unwrap().len());
    poll_until(PATIENCE, "connections at every node", || steered(&cluster) == NODES_MAX);
    drop((begun, frames));

    // The simulated nodes stop sending: the serving node receives everything.
    drop(heartbeats);
    let silent = Instant::now();
    poll_until(PATIENCE, "the only node answers", || {
        (0..20).all(|_| cluster.ask("client-2", vip, SHORT.0) == Ok(NODE.to_owned()))
    });
    figure(&format!(
        "{NODES_MAX} nodes: all have the same table {ready_ms} ms after the start ({wholes} whole, \
         {deltas} deltas), and are left out {} ms after their silence",
        silent.elapsed().as_millis()
    ));
}
