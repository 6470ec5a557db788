//! The second chance: connections survive the loss of the flow table, because a node forwards packets that
//! belong to an earlier owner.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use skep_testbed::Machine;
use skep_tests::direct::{DirectCluster, LONG, Loads, SHORT, Setup, figure};
use skep_tests::{Crowd, PATIENCE, poll_until};
use socket2::{Domain, Socket, Type};

/// Number of long downloads that each client starts under each membership.
const DOWNLOADS: usize = 100;

const DISPATCHER: &str = "dispatcher-1";

/// A cluster whose nodes change, and downloads that each started under another membership.
struct Scene {
    cluster: DirectCluster,
    downloads: Vec<Loads>,
    /// Whether the policy compares loads.
    by_load: bool,
}

impl Scene {
    /// One dispatcher and five nodes, three of which are in the config.
    fn new(policy: &str, direct: &str) -> Option<Self> {
        let mut setup = Setup::of(1, 5);
        setup.nodes.truncate(3);
        (setup.policy, setup.direct) = (policy.to_owned(), direct.to_owned());
        let cluster = DirectCluster::start(setup)?;
        cluster.run("node-4");
        cluster.run("node-5");
        let by_load = policy == "power-of-two";
        let mut scene = Self { cluster, downloads: Vec::new(), by_load };
        scene.download();
        Some(scene)
    }

    /// Number of downloads per membership.
    fn each(&self) -> u64 {
        (DOWNLOADS * self.cluster.bed().clients().len()) as u64
    }

    /// Starts downloads once only these nodes receive new connections. With policies by load, the busiest of
    /// them may get none: then the last of `numbers` must, as the newest node has the lowest load.
    fn download_from(&mut self, numbers: &[usize]) {
        let name = |number: &usize| format!("node-{number}");
        let names: BTreeSet<String> = numbers.iter().map(name).collect();
        if self.by_load {
            let newest = numbers.last().map(name).unwrap();
            poll_until(PATIENCE, &format!("{newest} among the answers by {names:?}"), || {
                let seen = self.cluster.answering("client-1", self.cluster.vip(), 4 * names.len());
                seen.is_ok_and(|seen| seen.contains(&newest) && seen.is_subset(&names))
            });
        } else {
            self.cluster.wait_nodes("client-1", &names);
        }
        self.download();
    }

    fn download(&mut self) {
        let loads = Loads::start(self.cluster.bed().clients(), |client: &Machine| {
            self.cluster.downloads(DOWNLOADS).start_in(client).unwrap()
        });
        loads.wait_flowing(self.each());
        self.downloads.push(loads);
    }

    /// Changes the nodes in the config file.
    fn plan(&self, numbers: &[usize]) {
        let nodes = numbers.iter().map(|&number| (number, 100)).collect();
        self.cluster.reconfigure(|setup| setup.nodes = nodes);
        self.cluster.control(DISPATCHER, &["reload"]);
    }

    /// Adds nodes, drains one, and removes one, all with downloads.
    fn change_nodes(&mut self) {
        self.plan(&[1, 2, 3, 4]);
        self.download_from(&[1, 2, 3, 4]);
        self.cluster.control(DISPATCHER, &["node", "drain", "node-1"]);
        self.download_from(&[2, 3, 4]);
        self.plan(&[1, 3, 4, 5]);
        self.download_from(&[3, 4, 5]);
    }

    /// Returns the number of packets with this verdict at nodes, as they last counted them.
    fn at_nodes(&self, verdict: &str) -> u64 {
        let nodes = self.cluster.bed().nodes().iter();
        nodes.map(|node| self.cluster.packets(node.name(), verdict)).sum()
    }

    /// Asserts that each download continues, and that nodes have forwarded packets.
    #[track_caller]
    fn finish(self, what: &str) {
        let (each, batches) = (self.each(), self.downloads.len() as u64);
        self.downloads.iter().for_each(|loads| loads.wait_flowing(each));
        poll_until(PATIENCE, "packets handed on", || self.at_nodes("node_hand_on") > 0);
        let (handed_on, refused) = (self.at_nodes("node_hand_on"), self.at_nodes("node_last"));
        let reports: Vec<_> = self.downloads.into_iter().map(Loads::stop).collect();
        let failed: u64 = reports.iter().flatten().map(|report| report.failed).sum();
        assert_eq!(failed, 0, "{what}; {refused} refused, by batches: {reports:#?}");
        figure(&format!(
            "{what}: {} downloads of {batches} memberships, none lost; {handed_on} packets handed \
             on, {refused} refused",
            each * batches
        ));
    }
}

/// The only dispatcher loses all its state.
fn outlive_the_dispatcher(policy: &str) {
    let Some(_crowd) = Crowd::of(2000) else { return };
    let Some(mut scene) = Scene::new(policy, "") else { return };
    scene.change_nodes();
    let machine = scene.cluster.machine(DISPATCHER);
    machine.kill().unwrap();
    machine.boot().unwrap();
    scene.cluster.run(DISPATCHER);
    scene.cluster.wait_active();
    // The operator's changes are preserved too.
    scene.download_from(&[3, 4, 5]);
    scene.finish(&format!("{policy}, the only dispatcher dies and comes back"));
}

/// The flow table has room for few of them.
fn outlive_the_flow_table(policy: &str) {
    let Some(_crowd) = Crowd::of(2000) else { return };
    let Some(mut scene) = Scene::new(policy, "new_flows_per_s_max = 1") else { return };
    scene.change_nodes();
    scene.finish(&format!("{policy}, no flow table"));
}

/// Ports of a client, below the ephemeral ones.
const PORTS: std::ops::Range<u16> = 700..762;

/// A client's port has a connection with one node, which closes it, so that its kernel keeps the state for a
/// minute; then the same port has a connection with another node.
#[test]
fn a_port_that_is_used_again_keeps_its_later_connection() {
    let Some(cluster) = DirectCluster::start(Setup::of(1, 4)) else { return };
    use_ports_once(&cluster);
    let later = ask_from_ports(&cluster, LONG.0);
    let machine = cluster.machine(DISPATCHER);
    machine.kill().unwrap();
    machine.boot().unwrap();
    cluster.run(DISPATCHER);
    cluster.wait_active();
    for (mut stream, port) in later.into_iter().zip(PORTS) {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap_or_else(|error| panic!("port {port}: {error}"));
        assert!(bytes.len() as u64 > LONG.1, "port {port}: {} bytes", bytes.len());
    }
}

/// The node with the later connection dies; that with the TIME_WAIT entry must reset the client.
#[test]
fn a_port_that_is_used_again_is_reset_when_its_later_node_dies() {
    let Some(cluster) = DirectCluster::start(Setup::of(1, 2)) else { return };
    let control = |verb, node| cluster.control(DISPATCHER, &["node", verb, node]);
    control("drain", "node-1");
    use_ports_once(&cluster);
    control("resume", "node-1");
    control("drain", "node-2");
    let later = ask_from_ports(&cluster, LONG.0);
    control("resume", "node-2");
    cluster.machine("node-1").kill().unwrap();
    for (mut stream, port) in later.into_iter().zip(PORTS) {
        let end = stream.read_to_end(&mut Vec::new()).map_err(|error| error.kind());
        assert_eq!(end, Err(ErrorKind::ConnectionReset), "port {port}");
    }
}

/// Has a connection of each port with a node that closes it, and waits until the ports are free.
fn use_ports_once(cluster: &DirectCluster) {
    for mut stream in ask_from_ports(cluster, SHORT.0) {
        // The node has closed it; the client reads to the end.
        stream.read_to_end(&mut Vec::new()).unwrap();
    }
    // Until a node has acknowledged the client's FIN, no connection can use the port.
    let client = cluster.machine("client-1");
    poll_until(PATIENCE, "the ports are free", || {
        let sockets = client.run(|| fs::read_to_string("/proc/thread-self/net/tcp")).unwrap();
        !sockets.unwrap().lines().any(|line| local_port(line).is_some_and(|it| PORTS.contains(&it)))
    });
}

fn ask_from_ports(cluster: &DirectCluster, path: &str) -> Vec<TcpStream> {
    let client = cluster.machine("client-1");
    PORTS.map(|port| ask_from(cluster, client, port, path)).collect()
}

/// Parses a line of `/proc/net/tcp` (proc_net_tcp.rst): `0: 0100007F:07D0 ...`.
fn local_port(line: &str) -> Option<u16> {
    let (_, port) = line.split_whitespace().nth(1)?.split_once(':')?;
    u16::from_str_radix(port, 16).ok()
}

/// Requests `path` from a port of a client, on a connection that the node closes.
fn ask_from(cluster: &DirectCluster, client: &Machine, port: u16, path: &str) -> TcpStream {
    let vip = cluster.vip();
    let socket = client
        .run(|| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_reuse_address(true).unwrap();
            // So that a long reply is not sent at once.
            socket.set_recv_buffer_size(8 * 1024).unwrap();
            socket.bind(&SocketAddr::from(([0, 0, 0, 0], port)).into()).unwrap();
            socket.connect(&vip.into()).unwrap();
            socket
        })
        .unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

#[test]
fn the_only_dispatcher_dies_round_robin() {
    outlive_the_dispatcher("round-robin");
}

#[test]
fn the_only_dispatcher_dies_power_of_two() {
    outlive_the_dispatcher("power-of-two");
}

#[test]
fn the_only_dispatcher_dies_maglev_connection() {
    outlive_the_dispatcher("maglev-connection");
}

#[test]
fn few_flows_are_remembered() {
    outlive_the_flow_table("maglev-connection");
}
