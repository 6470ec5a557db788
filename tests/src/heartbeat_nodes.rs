//! Simulated nodes that only exchange heartbeats: they apply each table they receive, answer health checks,
//! and process no packets.
//!
//! One thread handles the sealed datagrams of all of them, each with its own socket; another one answers
//! their health checks.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use skep_units::Now;
use skep_wire::limits::DATAGRAM_BYTES_MAX;
use skep_wire::message::{Mac, Message, Name, NodeHeartbeat, NodeLoad};
use skep_wire::parts::{Reassembler, split};
use skep_wire::seal::{Endpoint, Key, OpenedDatagram, PeerId};
use skep_wire::steer::service_hash;
use skep_wire::table::{Table, TableVersion};

/// Offset from a node's port to its port for health checks.
const CHECK_PORTS: u16 = 10_000;

/// Poll timeout of a wait for connections, after which the end is checked.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Maximum number of recent tables kept, each a possible base of the next delta.
const TABLES_KEPT_MAX: usize = 16;

/// Parameters of heartbeat nodes.
#[derive(Clone, Debug)]
pub struct HeartbeatNodes {
    pub cluster: String,
    pub key: String,
    /// The dispatcher's name and socket address.
    pub dispatcher: (String, SocketAddr),
    /// The address of all nodes.
    pub address: IpAddr,
    /// Numbers of the nodes. A node's name is `node-NUMBER`.
    pub numbers: std::ops::RangeInclusive<u16>,
    /// The address of the service.
    pub service: SocketAddr,
    pub interval: Duration,
}

/// State of running heartbeat nodes; they end when this is dropped.
pub struct RunningHeartbeats {
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_over: AtomicBool,
    /// The table version that each node has applied.
    versions: Mutex<BTreeMap<u16, TableVersion>>,
    /// Number of nodes that receive new connections, by the latest table.
    members: AtomicUsize,
    /// Numbers of tables received whole, and as deltas.
    wholes: AtomicUsize,
    deltas: AtomicUsize,
}

/// Tables received by any node; each is decoded once.
#[derive(Default)]
struct Tables {
    all: Vec<Arc<Table>>,
    messages: Vec<(Vec<u8>, (TableVersion, bool))>,
}

struct HeartbeatNode {
    number: u16,
    name: Name,
    udp: UdpSocket,
    endpoint: Endpoint,
    reassembler: Reassembler,
    version: TableVersion,
}

impl HeartbeatNodes {
    /// The port of a node's own socket.
    pub fn port(number: u16) -> u16 {
        20_000 + number
    }

    /// The MAC address of a node, which no machine has.
    pub fn mac(number: u16) -> Mac {
        let [high, low] = number.to_be_bytes();
        [2, 7, 0, 0, high, low]
    }

    /// Returns the config lines of the nodes.
    pub fn lines(&self) -> String {
        let line = |number| {
            let (address, port) = (self.address, Self::port(number));
            format!(
                "[[node]]\nname = \"node-{number}\"\naddress = \"{address}:{}\"\n\
                 agent = \"{address}:{port}\"\n",
                port + CHECK_PORTS
            )
        };
        self.numbers.clone().map(line).collect()
    }

    /// Makes the shared state, to be passed to [`HeartbeatNodes::speak`].
    pub fn running() -> RunningHeartbeats {
        RunningHeartbeats { state: Arc::default() }
    }

    /// Returns a function that exchanges the heartbeats of all nodes until `running` is dropped.
    pub fn speak(self, running: &RunningHeartbeats) -> impl FnOnce() + Send + use<> {
        let state = Arc::clone(&running.state);
        move || {
            let mut nodes: Vec<HeartbeatNode> =
                self.numbers.clone().map(|number| self.node(number)).collect();
            let mut tables = Tables::default();
            let mut due = Instant::now();
            while !state.is_over.load(Ordering::Relaxed) {
                for node in asked(&mut nodes, |node| &node.udp) {
                    node.hear(&self, &state, &mut tables);
                }
                if Instant::now() >= due {
                    due += self.interval;
                    nodes.iter_mut().for_each(|node| node.heartbeat(&self, &tables.all));
                    let versions = nodes.iter().map(|node| (node.number, node.version));
                    *state.versions.lock().unwrap_or_else(PoisonError::into_inner) =
                        versions.collect();
                    state.members.store(tables.members(), Ordering::Relaxed);
                }
                // Datagrams that arrive meanwhile wait in the sockets: polling a thousand of them is the
                // expensive part.
                thread::sleep(Duration::from_millis(2));
            }
        }
    }

    /// Returns a function that answers the health checks of all nodes until `running` is dropped.
    pub fn answer_checks(self, running: &RunningHeartbeats) -> impl FnOnce() + Send + use<> {
        let state = Arc::clone(&running.state);
        move || {
            let listen = |number| {
                TcpListener::bind((self.address, Self::port(number) + CHECK_PORTS)).unwrap()
            };
            let mut listeners: Vec<TcpListener> = self.numbers.clone().map(listen).collect();
            while !state.is_over.load(Ordering::Relaxed) {
                for listener in asked(&mut listeners, |listener| listener) {
                    let _ = listener.accept().and_then(|(stream, _)| answer(&stream));
                }
            }
        }
    }

    fn node(&self, number: u16) -> HeartbeatNode {
        let name = format!("node-{number}");
        let udp = UdpSocket::bind((self.address, Self::port(number))).unwrap();
        udp.set_nonblocking(true).unwrap();
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
        let key = Key::from_text(&self.key).unwrap();
        HeartbeatNode {
            number,
            endpoint: Endpoint::new(&key, &self.cluster, &name, started),
            name: Name::new(&name).unwrap(),
            udp,
            reassembler: Reassembler::default(),
            version: TableVersion::default(),
        }
    }
}

impl HeartbeatNode {
    fn hear(&mut self, nodes: &HeartbeatNodes, state: &State, tables: &mut Tables) {
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        while let Ok(bytes) = self.udp.recv(&mut buffer) {
            let message = match self.endpoint.open(now(), &buffer[..bytes]) {
                Ok(OpenedDatagram::Live { from, body, .. }) if !body.is_empty() => {
                    self.reassembler.take(from, body).ok().flatten()
                }
                _ => None,
            };
            if let Some(answer) = self.endpoint.take_answer() {
                let _ = self.udp.send_to(&answer.datagram, nodes.dispatcher.1);
            }
            let Some((version, is_whole)) = message.and_then(|message| tables.take(message)) else {
                continue;
            };
            self.version = self.version.max(version);
            let count = if is_whole { &state.wholes } else { &state.deltas };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn heartbeat(&mut self, nodes: &HeartbeatNodes, tables: &[Arc<Table>]) {
        let own = tables.iter().find(|table| table.version == self.version);
        let row = own.and_then(|table| table.node(self.name.as_str()));
        let heartbeat = Message::Node(NodeHeartbeat {
            name: self.name.clone(),
            index: row.map(|row| row.index),
            mac: HeartbeatNodes::mac(self.number),
            mtu: 1_500,
            addresses: vec![nodes.address],
            services: vec![service_hash(nodes.service)],
            table: self.version,
            hears: None,
            is_leaving: false,
            load: NodeLoad::default(),
        });
        let to = PeerId::of(&nodes.dispatcher.0);
        for body in split(&heartbeat.encode()).unwrap() {
            let datagram = self.endpoint.seal(to, &body).unwrap();
            let _ = self.udp.send_to(&datagram, nodes.dispatcher.1);
        }
    }
}

impl Tables {
    /// Returns the table version of a message that contains a table, and whether the table was whole.
    fn take(&mut self, message: Vec<u8>) -> Option<(TableVersion, bool)> {
        if let Some((_, known)) = self.messages.iter().find(|(known, _)| *known == message) {
            return Some(*known);
        }
        let (table, is_whole) = match Message::decode(&message).ok()? {
            Message::Table(table) => (table, true),
            Message::TableDelta(delta) => {
                let base = self.all.iter().find(|table| table.version == delta.base)?;
                (delta.apply(base).ok()?, false)
            }
            _ => return None,
        };
        let known = (table.version, is_whole);
        if self.messages.len() == TABLES_KEPT_MAX {
            self.messages.remove(0);
        }
        self.messages.push((message, known));
        if self.all.iter().all(|known| known.version != table.version) {
            if self.all.len() == TABLES_KEPT_MAX {
                self.all.remove(0);
            }
            self.all.push(Arc::new(table));
        }
        Some(known)
    }

    /// Number of nodes that receive new connections of the only service, by the latest table.
    fn members(&self) -> usize {
        let latest = self.all.iter().max_by_key(|table| table.version);
        let membership = latest.and_then(|table| {
            let latest = table.services.first()?.history.first()?;
            table.memberships.get(usize::from(*latest))
        });
        membership.map_or(0, Vec::len)
    }
}

impl RunningHeartbeats {
    /// Returns the table version that each node has applied, by node number.
    pub fn versions(&self) -> BTreeMap<u16, TableVersion> {
        self.state.versions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of nodes that receive new connections, by the latest table of any node.
    pub fn members(&self) -> usize {
        self.state.members.load(Ordering::Relaxed)
    }

    /// Returns the numbers of tables received whole, and as deltas.
    pub fn tables(&self) -> (usize, usize) {
        let read = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (read(&self.state.wholes), read(&self.state.deltas))
    }
}

impl Drop for RunningHeartbeats {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
    }
}

/// Returns those whose socket is readable, as soon as one is, or after [`LOOK`].
fn asked<T, S: AsFd>(all: &mut [T], socket: impl Fn(&T) -> &S) -> Vec<&mut T> {
    let entry = |one| PollFd::new(socket(one), PollFlags::IN);
    let mut entries: Vec<PollFd<'_>> = all.iter().map(entry).collect();
    poll(&mut entries, Some(&LOOK)).unwrap();
    let are_asked: Vec<bool> = entries.iter().map(|entry| !entry.revents().is_empty()).collect();
    all.iter_mut().zip(are_asked).filter(|(_, is_asked)| *is_asked).map(|(one, _)| one).collect()
}

/// Answers one request, whatever it is.
fn answer(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut lines = BufReader::new(stream).lines();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let mut stream = stream;
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

fn now() -> Now {
    static STARTED: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    Now(STARTED.get_or_init(Instant::now).elapsed().as_millis() as u64)
}
