//! The nodes' load reports: those that are recorded, and those that must be ignored.

use std::net::UdpSocket;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use skep_config::Config;
use skep_peer::{Socket, SocketSettings};
use skep_serve::monotonic_ms;
use skep_units::Now;
use skep_wire::message::{FlowsTaken, Message, Name, NodeLoad};
use skep_wire::seal::{Key, OpenError, PeerId, Stamp};

use super::rig::{closed_port, wait_until};
use crate::{Dispatcher, LoadReceiver, NewReports, NodeLoads};

const NODES: [&str; 2] = ["n1", "n2"];

/// A dispatcher that receives from two nodes.
struct Hearing {
    config: Config,
    dispatcher: Arc<Dispatcher>,
    loads: Arc<NodeLoads>,
    /// The reports in the form that the coordinator reads.
    new: NewReports,
    receiver: LoadReceiver,
    agents: Vec<Socket>,
}

impl Hearing {
    fn new(dispatch: &str) -> Self {
        let mut agents: Vec<Socket> = NODES.iter().map(|name| socket(name)).collect();
        let mut text = format!(
            "key_file = 'key'\n[agent]\nreport_ms = '10s'\n\
             [[dispatcher]]\nname = 'gate'\naddress = '127.0.0.1:0'\n\
             [[site]]\nroot = '/'\n[[service]]\nname = 'web'\nlisten = '10.9.9.9:80'\n\
             dispatch = '{dispatch}'\n"
        );
        for (name, agent) in NODES.iter().zip(&agents) {
            let (address, agent) = (closed_port(), agent.address().unwrap());
            text +=
                &format!("[[node]]\nname = '{name}'\naddress = '{address}'\nagent = '{agent}'\n");
        }
        let config = Config::parse("test", &text).unwrap();
        let dispatcher = Dispatcher::new(&config, "web", 1).unwrap();
        let loads = NodeLoads::new(&config, &[Arc::clone(&dispatcher)]);
        let new = loads.follow();
        let receiver = LoadReceiver::start(&config, "gate", &key(), &loads, &[]).unwrap();
        agents.iter_mut().for_each(|agent| agent.set_peer("gate", receiver.address()));
        Self { config, dispatcher, loads, new, receiver, agents }
    }

    /// Sends a node's report of its outstanding bytes until it is received: the first datagrams
    /// only establish the exchange.
    fn tell(&mut self, place: usize, bytes: u64) {
        wait_until("the load was heard", || {
            send(&mut self.agents[place], bytes);
            self.bytes_of(NODES[place]) == Some(bytes)
        });
    }

    /// The reported load of a node: its outstanding bytes.
    fn bytes_of(&self, name: &str) -> Option<u64> {
        let reports = self.loads.reports();
        let report = reports.iter().find(|report| report.name.as_str() == name)?;
        assert!(!report.is_stale);
        Some(report.load.bytes_outstanding)
    }

    fn count(&self, outcome: &str) -> u64 {
        self.loads.counts().into_iter().find(|(name, _)| *name == outcome).unwrap().1
    }
}

fn key() -> Key {
    Key::from_text(&"k".repeat(32)).unwrap()
}

/// The socket of a machine of the cluster.
fn socket(name: &str) -> Socket {
    let settings = SocketSettings {
        address: "127.0.0.1:0".parse().unwrap(),
        key: key(),
        cluster: Config::default().cluster,
        name: name.to_owned(),
        clock: || Now(monotonic_ms()),
    };
    Socket::bind(&settings).unwrap()
}

fn load(bytes_outstanding: u64) -> NodeLoad {
    NodeLoad { bytes_outstanding, requests_in_flight: 3, ..NodeLoad::default() }
}

fn send(agent: &mut Socket, bytes: u64) {
    let _ = agent.send(PeerId::of("gate"), &Message::Load(load(bytes)));
    let _ = agent.receive(Duration::from_millis(5));
}

#[test]
fn loads_are_heard_and_told_on() {
    let mut hearing = Hearing::new("proxy");
    for (place, bytes) in [(0, 70_000_000), (1, 5)] {
        hearing.tell(place, bytes);
        let name = Name::new(NODES[place]).unwrap();
        assert_eq!(hearing.new.take(), [(name, load(bytes))]);
        assert_eq!(hearing.new.take(), [], "each is read once");
    }
    let nodes = hearing.dispatcher.status().nodes;
    assert_eq!(nodes[0].outstanding_bytes, 0, "what the dispatcher sees itself is apart");
    let heard = |name: &str| hearing.dispatcher.group().reported(name).unwrap();
    assert_eq!(heard("n1"), (3, 70_000_000));
    assert_eq!(heard("n2").1, 5);
}

#[test]
fn what_is_forged_replayed_late_or_strange_changes_nothing() {
    let mut hearing = Hearing::new("redirect");
    // An attacker between the node and the dispatcher records all datagrams.
    let between = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (tap, to) = (between.try_clone().unwrap(), hearing.receiver.address());
    let recorded = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let record = Arc::clone(&recorded);
    std::thread::spawn(move || {
        let mut buffer = [0; 2_000];
        while let Ok(bytes) = tap.recv(&mut buffer) {
            if bytes == 0 {
                return;
            }
            record.lock().unwrap().push(buffer[..bytes].to_vec());
            tap.send_to(&buffer[..bytes], to).unwrap();
        }
    });
    hearing.agents[0].set_peer("gate", between.local_addr().unwrap());
    hearing.tell(0, 1_000);
    hearing.tell(0, 2_000);

    let attacker = UdpSocket::bind("127.0.0.1:0").unwrap();
    let refused = |reason| hearing.receiver.datagrams().refused(reason);
    // All earlier datagrams have been processed when this one is refused.
    attacker.send_to(&[7], between.local_addr().unwrap()).unwrap();
    wait_until("the tap is empty", || refused(OpenError::Version) == 1);
    let mut recording = recorded.lock().unwrap().clone();
    assert_eq!(recording.pop(), Some(vec![7]));
    let taken = hearing.count("taken");
    for datagram in &recording {
        attacker.send_to(datagram, to).unwrap();
        let mut forged = datagram.clone();
        forged[55] ^= 1;
        attacker.send_to(&forged, to).unwrap();
        attacker.send_to(&datagram[..datagram.len() / 2], to).unwrap();
    }
    attacker.send_to(&[7; 300], to).unwrap();
    let count = recording.len() as u64;
    wait_until("all are refused", || {
        refused(OpenError::Replayed) == count
            && refused(OpenError::BadTag) + refused(OpenError::TooShort) == 2 * count
            && refused(OpenError::Version) == 2
    });
    // A machine with the key that is not a node never learns the value to echo.
    let mut stranger = socket("n3");
    stranger.set_peer("gate", to);
    let hellos = hearing.receiver.datagrams().hellos();
    wait_until("a stranger is not answered", || {
        send(&mut stranger, 9);
        hearing.receiver.datagrams().hellos() > hellos + 3
    });
    assert_eq!(stranger.counts().live(), 0);
    // A node sends another message.
    let strange = Message::FlowsTaken(FlowsTaken { dump: 1, number: 1 });
    hearing.agents[0].send(PeerId::of("gate"), &strange).unwrap();
    wait_until("it is ignored", || hearing.count("unknown_node") == 1);
    assert_eq!((hearing.bytes_of("n1"), hearing.count("taken")), (Some(2_000), taken));
    assert_eq!((hearing.bytes_of("n2"), hearing.bytes_of("n3")), (None, None));
    hearing.tell(0, 3_000);
    // Ends the tap.
    attacker.send_to(&[], between.local_addr().unwrap()).unwrap();
}

#[test]
fn of_one_nodes_reports_the_latest_counts() {
    let hearing = Hearing::new("proxy");
    let name = Name::new("n1").unwrap();
    let stamp = |sequence| Some(Stamp { incarnation: 5, sequence });
    for (stamp, bytes, counts) in [
        (stamp(7), 70, 70),
        (stamp(6), 60, 70),
        (stamp(7), 71, 70),
        (stamp(8), 80, 80),
        (Some(Stamp { incarnation: 6, sequence: 1 }), 10, 10),
        (None, 11, 11),
    ] {
        hearing.loads.hear(&name, stamp, load(bytes));
        assert_eq!(hearing.bytes_of("n1"), Some(counts));
    }
    assert_eq!((hearing.count("taken"), hearing.count("late")), (4, 2));
    let mut without = hearing.config.clone();
    without.nodes.remove(0);
    hearing.loads.reload(&without);
    assert_eq!(hearing.bytes_of("n1"), None);
}

/// A service in direct dispatch, and the loads that it follows.
fn steered() -> (Arc<Dispatcher>, Arc<NodeLoads>) {
    let text = "key_file = 'key'\n[[dispatcher]]\nname = 'gate'\naddress = '10.9.9.1:7071'\n\
        [[site]]\nroot = '/'\n[[service]]\nname = 'web'\nlisten = '10.9.9.9:80'\n\
        dispatch = 'direct'\n[[node]]\nname = 'n1'\naddress = '10.9.9.2:80'\n";
    let config = Config::parse("test", text).unwrap();
    let dispatcher = Dispatcher::new(&config, "web", 1).unwrap();
    let loads = NodeLoads::new(&config, &[Arc::clone(&dispatcher)]);
    (dispatcher, loads)
}

#[test]
fn who_brings_a_report_waits_for_no_service() {
    let (dispatcher, loads) = steered();
    let name = Name::new("n1").unwrap();
    // Simulates a worker that is descheduled while it holds the lock.
    dispatcher.group().while_locked(|| loads.hear(&name, None, load(7)));
    assert_eq!(loads.reports()[0].load, load(7));
    dispatcher.group().pass_checks();
    dispatcher.group().while_locked(|| loads.miss(&name));
    let state = || dispatcher.status().nodes[0].state.clone();
    assert_eq!(state(), "up");
    dispatcher.group().tick();
    assert_eq!(state(), "down", "it was silent");
}

#[test]
fn in_direct_dispatch_status_and_drains_go_by_the_reports() {
    let (dispatcher, loads) = steered();
    let name = Name::new("n1").unwrap();
    let hear = |connections, requests_in_flight| {
        let load = NodeLoad { connections, requests_in_flight, ..load(40) };
        loads.hear(&name, None, load);
        dispatcher.group().tick();
        dispatcher.status().nodes[0].clone()
    };
    loads.hear(&name, None, load(1));
    dispatcher.group().drain("n1").unwrap();
    let node = hear(5, 3);
    assert_eq!((node.connections, node.outstanding_requests, node.tunnels), (5, 3, 2));
    assert_eq!((node.outstanding_bytes, node.state.as_str()), (40, "draining"));
    assert_eq!(hear(1, 0).state, "draining", "an idle connection");
    assert_eq!(hear(0, 0).state, "drained");
}

#[test]
fn a_reload_says_who_is_heard() {
    let mut hearing = Hearing::new("proxy");
    hearing.tell(0, 1);
    let mut without = hearing.config.clone();
    without.nodes.remove(0);
    hearing.receiver.reload(&without);
    wait_until("it is ignored", || {
        send(&mut hearing.agents[0], 2);
        hearing.count("unknown_node") > 0
    });
}
