//! Measures the cost of plans and tables for the active dispatcher of a large cluster, in percent of a core.
//!
//! `cargo bench -p skep-steering --bench tables [-- SECONDS]`
//!
//! The parts of the event loop are driven by a simulated clock, as fast as possible, and the processor time
//! of this thread is compared with the simulated time. At every tick the plan is updated and published; a
//! heartbeat is sent every 20 ms, to as many nodes as in production; every node sends one every 50 ms and
//! acknowledges at once what it was sent, and the lists of loads for the packet program are made, too.
//! Datagrams are really sent, to a socket of this machine that is not read. In the busy rows an operator
//! changes a weight every 25 ms, which is part of the memberships of all services.
//!
//! A cluster above the limit of nodes is measured at the limit. The table is that of `skep-bench tables`,
//! which measures reading it.

#![allow(clippy::expect_used, reason = "a measurement")]

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};
use skep_cluster::failure_detector::FailureDetectorSettings;
use skep_cluster::table_distribution::TableDistributor;
use skep_cluster::table_publisher::{TablePlan, TablePublisher};
use skep_config::Config;
use skep_dispatcher::{Dispatcher, NodeLoads};
use skep_peer::{Socket, SocketSettings};
use skep_steering::{HeartbeatTurns, Plans, load_orders};
use skep_units::{Now, Rng};
use skep_wire::message::{DispatcherHeartbeat, Message, Name, NodeHeartbeat, NodeLoad, Stage};
use skep_wire::seal::{Endpoint, Key, OpenedDatagram, PeerId, Stamp};
use skep_wire::steer::{NODES_MAX, service_hash};
use skep_wire::table::{Table, TableVersion};

/// Numbers of nodes and addresses.
const SIZES: [(usize, usize); 2] = [(256, 64), (1_000, 8)];
/// A quarter of the default heartbeat interval of dispatchers.
const TICK_MS: u64 = 5;
const CHANGE_MS: u64 = 25;
const HEARTBEAT_MS: u64 = 50;
/// Default interval of the dispatcher's heartbeats to nodes.
const OWN_HEARTBEAT_MS: u64 = 20;
const OWN_NAME: &str = "d1";

fn main() {
    let seconds = std::env::args().nth(1).and_then(|it| it.parse().ok()).unwrap_or(10);
    println!(
        "| percent of a core | plans | tables | plans and tables | heartbeats | unsealing | own heartbeats | \
         tables per second | datagrams per second |\n|---|---|---|---|---|---|---|---|---|"
    );
    for (nodes, addresses) in SIZES {
        let nodes = nodes.min(NODES_MAX);
        for (what, is_busy) in [("nothing changes", false), ("40 changes a second", true)] {
            let mut cluster = Cluster::new(nodes, addresses);
            cluster.run(2, false);
            cluster.costs = Costs::default();
            cluster.run(seconds, is_busy);
            let columns = cluster.costs.columns(seconds as f64);
            println!("| {nodes} nodes x {addresses} addresses, {what} | {} |", columns.join(" | "));
        }
    }
}

/// Processor time in nanoseconds, and number of calls.
#[derive(Default)]
struct Costs {
    plans: u64,
    tables: u64,
    heartbeats: u64,
    unsealing: u64,
    own: u64,
    published: u64,
    datagrams: u64,
}

impl Costs {
    fn columns(&self, seconds: f64) -> [String; 8] {
        let percent = |ns: u64| format!("{:.2}", ns as f64 / 1e7 / seconds);
        let per_s = |count: u64| format!("{:.0}", count as f64 / seconds);
        [
            percent(self.plans),
            percent(self.tables),
            percent(self.plans + self.tables),
            percent(self.heartbeats),
            percent(self.unsealing),
            percent(self.own),
            per_s(self.published),
            per_s(self.datagrams),
        ]
    }
}

/// The active dispatcher and its nodes.
struct Cluster {
    dispatchers: Vec<Arc<Dispatcher>>,
    loads: Arc<NodeLoads>,
    plans: Plans,
    publisher: TablePublisher,
    distributor: TableDistributor,
    heartbeats: HeartbeatTurns,
    told: Arc<Table>,
    socket: Socket,
    /// Its end of the datagrams from nodes.
    endpoint: Endpoint,
    nodes: Vec<Node>,
    has: TableVersion,
    sequence: u64,
    rng: Rng,
    now: Now,
    costs: Costs,
    /// Receives the datagrams, and is not read.
    _nobody: UdpSocket,
}

struct Node {
    heartbeat: NodeHeartbeat,
    endpoint: Endpoint,
}

impl Cluster {
    fn new(nodes: usize, addresses: usize) -> Self {
        let config = config(nodes, addresses);
        let dispatcher = |name: &str| Dispatcher::new(&config, name, 1).expect("it is there");
        let dispatchers: Vec<Arc<Dispatcher>> =
            config.services.iter().map(|service| dispatcher(&service.name)).collect();
        let key = Key::from_text("a secret for measuring, long enough").expect("32 characters");
        let mut endpoint = Endpoint::new(&key, &config.cluster, OWN_NAME, 1);
        let names = (0..nodes).map(node_name);
        let nodes: Vec<Node> =
            names.map(|it| Node::new(it, &config, &key, &mut endpoint)).collect();
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let nobody = UdpSocket::bind(local).expect("a socket on loopback");
        let settings = SocketSettings {
            address: local,
            key,
            cluster: config.cluster.clone(),
            name: OWN_NAME.to_owned(),
            clock: || Now(0),
        };
        let mut socket = Socket::bind(&settings).expect("a socket on loopback");
        let address = nobody.local_addr().expect("it is bound");
        nodes.iter().for_each(|node| socket.set_peer(node.heartbeat.name.as_str(), address));
        let mut publisher = TablePublisher::new(FailureDetectorSettings::default());
        publisher.begin_term(8);
        Self {
            plans: Plans::new(&config, &dispatchers),
            loads: NodeLoads::new(&config, &dispatchers),
            dispatchers,
            publisher,
            distributor: TableDistributor::new(FailureDetectorSettings::default().interval_ms),
            heartbeats: HeartbeatTurns::default(),
            told: Arc::default(),
            socket,
            endpoint,
            nodes,
            has: TableVersion { epoch: 0, generation: 1 },
            sequence: 0,
            rng: Rng::new(1),
            now: Now(0),
            costs: Costs::default(),
            _nobody: nobody,
        }
    }

    fn run(&mut self, seconds: u64, is_busy: bool) {
        for tick in 0..seconds * 1_000 / TICK_MS {
            self.now = self.now.plus_ms(TICK_MS);
            if is_busy && self.now.0 % CHANGE_MS < TICK_MS {
                self.change_a_weight();
            }
            let start = cpu_ns();
            self.look_at_plan();
            let looked = cpu_ns();
            self.publish();
            self.costs.plans += looked - start;
            self.costs.tables += cpu_ns() - looked;
            if tick % (OWN_HEARTBEAT_MS / TICK_MS) == 0 {
                self.send_heartbeat();
            }
            let turns = HEARTBEAT_MS / TICK_MS;
            if tick % turns == 0 {
                self.tell_loads();
            }
            (0..self.nodes.len()).skip((tick % turns) as usize).step_by(turns as usize).for_each(
                |node| {
                    self.heartbeat(node);
                },
            );
        }
        assert_eq!(self.told.nodes.len(), self.nodes.len(), "all are in the table");
    }

    fn change_a_weight(&mut self) {
        let service = self.rng.below(self.dispatchers.len() as u64) as usize;
        let node = self.rng.below(self.nodes.len() as u64) as usize;
        let (name, weight) =
            (self.nodes[node].heartbeat.name.as_str(), 1 + self.rng.below(9) as u32);
        self.dispatchers[service].group().set_weight(name, weight).expect("the node is known");
    }

    fn look_at_plan(&mut self) {
        if self.plans.look().expect("names are short") {
            let plan = TablePlan { dispatchers: vec![[2; 6]], ..self.plans.plan().clone() };
            self.publisher.set_plan(plan);
        }
        self.publisher.set_drained(self.plans.closed());
    }

    fn publish(&mut self) {
        self.publisher.tick(self.now);
        let table = self.publisher.table();
        if Arc::ptr_eq(table, &self.told) {
            return;
        }
        self.told = Arc::clone(table);
        let peers = self.plans.plan().nodes.iter().filter_map(|node| {
            let heartbeat = self.publisher.detector().heartbeat(&node.name)?;
            Some((node.name.peer(), heartbeat.table))
        });
        let sent = self.socket.counts().sent();
        for update in self.distributor.publish(self.now, Arc::clone(table), peers) {
            self.socket.send_all(update.to, &update.message);
        }
        self.has = self.told.version;
        self.costs.datagrams += self.socket.counts().sent() - sent;
        self.costs.published += 1;
    }

    /// The dispatcher's own heartbeat, to the nodes that are next.
    fn send_heartbeat(&mut self) {
        let heartbeat = DispatcherHeartbeat {
            name: Name::new(OWN_NAME).expect("a short name"),
            stage: Stage::Active,
            epoch: 8,
            priority: 100,
            flows_synced: false,
            table: self.told.version,
            hears: None,
            mac: [2; 6],
        };
        let start = cpu_ns();
        let nodes = &self.plans.plan().nodes;
        let turn = self.heartbeats.next(&heartbeat, nodes.len(), OWN_HEARTBEAT_MS);
        let to = turn.map(|at| nodes[at].name.peer());
        self.socket.send_all(to, &Message::Dispatcher(heartbeat));
        self.costs.own += cpu_ns() - start;
    }

    /// Once per round of heartbeats, as in the event loop.
    fn tell_loads(&mut self) {
        let start = cpu_ns();
        let told = load_orders(&self.told, self.publisher.detector());
        self.costs.heartbeats += cpu_ns() - start;
        let loads = told.iter().map(|told| told.services.len() * told.loads.len());
        let (services, nodes) = (self.dispatchers.len(), self.told.nodes.len());
        assert_eq!(loads.sum::<usize>(), services * nodes, "all count requests");
    }

    /// Sends and handles a node's heartbeat.
    fn heartbeat(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        node.heartbeat.table = self.has;
        let body = Message::Node(node.heartbeat.clone()).encode();
        let datagram = node.endpoint.seal(PeerId::of(OWN_NAME), &body).expect("it fits");
        self.sequence += 1;
        let stamp = Stamp { incarnation: 1, sequence: self.sequence };
        let start = cpu_ns();
        let opened = self.endpoint.open(self.now, &datagram).expect("it is authentic");
        let OpenedDatagram::Live { from, body, .. } = opened else { panic!("a hello") };
        let Ok(Message::Node(heartbeat)) = Message::decode(body) else { panic!("no heartbeat") };
        let unsealed = cpu_ns();
        let (name, load) = (heartbeat.name.clone(), heartbeat.load);
        self.publisher.heard(self.now, heartbeat, stamp);
        self.loads.hear(&name, Some(stamp), load);
        assert!(self.distributor.heard(self.now, from, self.has).is_none(), "it has the latest");
        self.costs.unsealing += unsealed - start;
        self.costs.heartbeats += cpu_ns() - unsealed;
    }
}

impl Node {
    /// A node whose datagrams the dispatcher accepts.
    fn new(name: Name, config: &Config, key: &Key, dispatcher: &mut Endpoint) -> Self {
        let mut endpoint = Endpoint::new(key, &config.cluster, name.as_str(), 1);
        let hello = endpoint.seal(PeerId::of(OWN_NAME), &[]).expect("it fits");
        dispatcher.open(Now(0), &hello).expect("it is authentic");
        let answer = dispatcher.take_answer().expect("an answer to the hello");
        endpoint.open(Now(0), &answer.datagram).expect("it is authentic");
        let id = PeerId::of(name.as_str()).0.to_le_bytes();
        let listens = config.steered_services().flat_map(|(_, service)| &service.listen);
        let services = listens.map(|&address| service_hash(address));
        let heartbeat = NodeHeartbeat {
            name,
            index: None,
            mac: [2, id[0], id[1], id[2], id[3], id[4]],
            mtu: 1_500,
            addresses: vec![[10, 1, id[0], id[1]].into()],
            services: services.collect(),
            table: TableVersion::default(),
            hears: None,
            is_leaving: false,
            load: NodeLoad::default(),
        };
        Self { heartbeat, endpoint }
    }
}

fn node_name(number: usize) -> Name {
    Name::new(&format!("node-{number}")).expect("a short name")
}

/// Every service has one address and all nodes.
fn config(nodes: usize, addresses: usize) -> Config {
    let mut text = format!(
        "key_file = \"/key\"\n[[dispatcher]]\nname = \"{OWN_NAME}\"\naddress = \"10.0.0.1:7071\"\n"
    );
    for number in 0..nodes {
        let (name, high, low) = (node_name(number), number / 256, number % 256);
        text += &format!(
            "[[node]]\nname = \"{name}\"\naddress = \"10.1.{high}.{low}:8080\"\nweight = 10\n"
        );
    }
    for number in 0..addresses {
        let port = 1_000 + number;
        text += &format!(
            "[[service]]\nname = \"service-{number}\"\nlisten = \"192.0.2.1:{port}\"\n\
             dispatch = \"direct\"\npolicy = \"power-of-two\"\n"
        );
    }
    text += "[[site]]\nroot = \"/srv\"\n";
    Config::parse("skep.toml", &text).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Processor time of this thread.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
