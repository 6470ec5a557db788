//! Links between nodes and coordinators over loopback.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};

use crate::support::*;
use skep_peer::stream::{
    LinkEvent, LinkId, LinkServer, LinkSettings, LinkTarget, Lost, NodeLinks, Outbox, StreamCount,
};
use skep_wire::cache::frame::PING;
use skep_wire::cache::{
    FrameError, Handshake, HelloError, Identity, Purpose, Reason, SegmentName, ToCoordinator,
    ToNode,
};

type NodeEvent = LinkEvent<ToNode, Command<ToCoordinator>>;
type ServerEvent = LinkEvent<ToCoordinator, Command<ToNode>>;

/// Commands of a test to a handler.
enum Command<Out> {
    Send(LinkId, Out),
    SendAll(Out),
    /// Sends the message until the link accepts no more.
    Flood(LinkId, Out),
    Close(LinkId),
    /// Signals that it was received, and blocks until the test signals back.
    Hold(SyncSender<()>, Receiver<()>),
}

/// Settings of tests that are not about silence: a machine that is delayed loses no link.
fn settings(identity: Identity) -> LinkSettings {
    let usual = LinkSettings::new(identity, 1_000);
    LinkSettings { queue_bytes_max: 1 << 20, silence_ms: 20_000, ..usual }
}

/// A handler that executes commands and passes on events.
macro_rules! handler {
    ($events:expr) => {{
        let events = $events;
        move |event, outbox: &mut _| match event {
            LinkEvent::Told(Command::Send(link, message)) => {
                outbox.send(link, &message);
            }
            LinkEvent::Told(Command::SendAll(message)) => outbox.send_all(&message),
            LinkEvent::Told(Command::Flood(link, message)) => {
                while outbox.send(link, &message) {}
                assert_eq!(outbox.send(link, &message), false, "not after it was full");
            }
            LinkEvent::Told(Command::Close(link)) => outbox.close(link),
            LinkEvent::Told(Command::Hold(here, go)) => {
                here.send(()).unwrap();
                let _ = go.recv_timeout(PATIENCE);
            }
            LinkEvent::Tick => {}
            event => {
                let _ = events.send(event);
            }
        }
    }};
}

/// An unbounded channel: a handler that waited for the test would be a silent peer.
#[expect(clippy::disallowed_methods, reason = "a test says a bounded number of things")]
fn channel<T>() -> (Sender<T>, Receiver<T>) {
    std::sync::mpsc::channel()
}

struct Coordinator {
    server: LinkServer<Command<ToNode>>,
    events: Receiver<ServerEvent>,
}

impl Coordinator {
    fn start(settings: &LinkSettings, listener: TcpListener) -> Self {
        let (events, heard) = channel();
        let server = LinkServer::start(settings, listener, handler!(events)).unwrap();
        Self { server, events: heard }
    }

    fn new() -> Self {
        Self::start(&settings(identity("c")), listener().0)
    }

    fn next(&self) -> ServerEvent {
        self.events.recv_timeout(PATIENCE).unwrap()
    }

    fn up(&self) -> LinkId {
        match self.next() {
            LinkEvent::Up { link, .. } => link,
            other => panic!("{}", shown(&other)),
        }
    }

    fn down(&self) -> (LinkId, Lost) {
        match self.next() {
            LinkEvent::Down { link, why, .. } => (link, why),
            other => panic!("{}", shown(&other)),
        }
    }

    fn received(&self) -> ToCoordinator {
        match self.next() {
            LinkEvent::Received { message, .. } => message,
            other => panic!("{}", shown(&other)),
        }
    }

    fn tell(&self, command: Command<ToNode>) {
        assert!(self.server.teller().tell(command).is_ok());
    }

    fn count(&self, what: StreamCount) -> u64 {
        self.server.counts().of(what)
    }
}

struct Node {
    links: NodeLinks<Command<ToCoordinator>>,
    events: Receiver<NodeEvent>,
}

impl Node {
    fn start(settings: &LinkSettings, targets: Vec<LinkTarget>) -> Self {
        let (events, heard) = channel();
        let links = NodeLinks::start(settings, targets, handler!(events)).unwrap();
        Self { links, events: heard }
    }

    fn new(own: &str, address: SocketAddr) -> Self {
        Self::start(&settings(identity(own)), vec![target(address)])
    }

    fn next(&self) -> NodeEvent {
        self.events.recv_timeout(PATIENCE).unwrap()
    }

    /// The next link; failed attempts before it are ignored.
    fn up(&self) -> LinkId {
        loop {
            match self.next() {
                LinkEvent::Up { link, .. } => return link,
                LinkEvent::Missed { .. } => {}
                other => panic!("{}", shown(&other)),
            }
        }
    }

    fn down(&self) -> (LinkId, Lost) {
        match self.next() {
            LinkEvent::Down { link, why, .. } => (link, why),
            other => panic!("{}", shown(&other)),
        }
    }

    fn missed(&self) -> Lost {
        match self.next() {
            LinkEvent::Missed { why, .. } => why,
            other => panic!("{}", shown(&other)),
        }
    }

    fn received(&self) -> ToNode {
        match self.next() {
            LinkEvent::Received { message, .. } => message,
            other => panic!("{}", shown(&other)),
        }
    }

    fn tell(&self, command: Command<ToCoordinator>) {
        assert!(self.links.teller().tell(command).is_ok());
    }
}

fn shown<In: std::fmt::Debug, C>(event: &LinkEvent<In, C>) -> String {
    match event {
        LinkEvent::Up { link, peer } => format!("up: {link:?} {peer}"),
        LinkEvent::Received { link, message } => format!("received: {link:?} {message:?}"),
        LinkEvent::Down { link, peer, why } => format!("down: {link:?} {peer} {why:?}"),
        LinkEvent::Missed { peer, why } => format!("missed: {peer} {why:?}"),
        LinkEvent::Told(_) | LinkEvent::Tick => "told or tick".to_owned(),
    }
}

fn target(address: SocketAddr) -> LinkTarget {
    LinkTarget { name: name("c"), address }
}

fn ask(ask: u64) -> ToCoordinator {
    ToCoordinator::Ask { ask, name: SegmentName([7; 16]), bytes: 5 }
}

fn answer(ask: u64) -> ToNode {
    ToNode::Answer { ask, answer: skep_wire::cache::CoordinatorAnswer::Refused }
}

/// A message of some kilobytes.
fn long_answer() -> ToNode {
    let names = vec![SegmentName([1; 16]); 64];
    let replica_statuses = vec![skep_wire::cache::ReplicaStatus::Sole; 64];
    ToNode::Tail { names, replica_statuses, roomiest: None }
}

#[test]
fn messages_go_both_ways_in_order() {
    let coordinator = Coordinator::new();
    let node = Node::new("n", coordinator.server.address());
    let (at_node, at_coordinator) = (node.up(), coordinator.up());
    for number in 0..10_000 {
        node.tell(Command::Send(at_node, ask(number)));
    }
    for number in 0..10_000 {
        assert_eq!(coordinator.received(), ask(number));
    }
    for number in 0..10_000 {
        coordinator.tell(Command::Send(at_coordinator, answer(number)));
    }
    for number in 0..10_000 {
        assert_eq!(node.received(), answer(number));
    }
    node.tell(Command::SendAll(ask(10_000)));
    assert_eq!(coordinator.received(), ask(10_000));
    assert_eq!(coordinator.count(StreamCount::Received), 10_001);
    assert_eq!(coordinator.count(StreamCount::Greeted), 1);
}

#[test]
fn pings_keep_a_link_that_is_at_rest() {
    let quick = LinkSettings { ping_ms: 20, silence_ms: 1_000, ..settings(identity("c")) };
    let coordinator = Coordinator::start(&quick, listener().0);
    let mut node = client(coordinator.server.address(), Purpose::Link, "n");
    coordinator.up();
    // For longer than the silence limit.
    let began = std::time::Instant::now();
    while began.elapsed() < std::time::Duration::from_millis(1_200) {
        assert_eq!(read_frame(&mut node), b"");
        node.write_all(&PING).unwrap();
    }
    node.write_all(&frame(&ask(1).encode())).unwrap();
    assert_eq!(coordinator.received(), ask(1));
}

#[test]
fn who_does_not_belong_here_is_told_why() {
    let coordinator = Coordinator::new();
    let address = coordinator.server.address();
    let wrong_key = settings(identity_of(OTHER_KEY, "hive", "n"));
    let wrong_cluster = settings(identity_of(KEY, "swarm", "n"));
    for (settings, expected) in [
        (wrong_key, HelloError::Here(Reason::Proof)),
        (wrong_cluster, HelloError::There(Reason::Cluster)),
    ] {
        let node = Node::start(&settings, vec![target(address)]);
        assert_eq!(node.missed(), Lost::Refused(expected));
        assert_eq!(node.missed(), Lost::Refused(expected), "and tried again");
    }
    let stranger = LinkTarget { name: name("d"), address };
    let node = Node::start(&settings(identity("n")), vec![stranger]);
    assert_eq!(node.missed(), Lost::Refused(HelloError::Here(Reason::Name)));
    let mut fetcher = connect(address);
    let hello = Handshake::client(&identity("n"), Purpose::Fetch, None, [1; 32]);
    assert_eq!(greet(&mut fetcher, hello), Err(HelloError::There(Reason::Purpose)));
    read_to_close(&mut fetcher);
    assert_eq!(coordinator.server.counts().refused_here(Reason::Purpose), 1);
    assert!(coordinator.server.counts().refused_here(Reason::Cluster) >= 1);
    assert!(coordinator.events.try_recv().is_err(), "the handler hears nothing of it");
}

#[test]
fn a_proof_that_the_coordinator_made_is_not_taken_back() {
    let coordinator = Coordinator::new();
    let address = coordinator.server.address();
    let challenge = |stream: &mut TcpStream| {
        let hello = Handshake::client(&identity("c"), Purpose::Link, None, [1; 32]).output();
        stream.write_all(&hello).unwrap();
        let mut challenge = [0; 2 + 32 + 65 + 32];
        stream.read_exact(&mut challenge).unwrap();
        challenge
    };
    let mut victim = connect(address);
    let proof = challenge(&mut victim);
    victim.write_all(&proof[proof.len() - 32..]).unwrap();
    assert_eq!(read_to_close(&mut victim), Handshake::refusal(Reason::Proof));
    assert_eq!(coordinator.server.counts().refused_here(Reason::Proof), 1);
}

#[test]
fn garbage_ends_only_the_stream_that_it_came_on() {
    let coordinator = Coordinator::new();
    let address = coordinator.server.address();
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[1; 300], &[0], &[255; 4_000]] {
        let mut stream = connect(address);
        stream.write_all(garbage).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        read_to_close(&mut stream);
    }
    let mut wrong = frame(&ask(1).encode());
    *wrong.last_mut().unwrap() ^= 1;
    let too_long = FrameError::TooLong { bytes: u32::MAX, bytes_max: 1 << 20 };
    let not_a_message = Lost::NotAMessage(skep_wire::message::NotAMessage);
    for (bytes, expected) in [
        (wrong, Lost::Frame(FrameError::Checksum)),
        (vec![255; 8], Lost::Frame(too_long)),
        (frame(&[255; 40]), not_a_message),
        (frame(&[ask(1).encode(), vec![0]].concat()), not_a_message),
    ] {
        let mut stream = client(address, Purpose::Link, "n");
        let link = coordinator.up();
        stream.write_all(&bytes).unwrap();
        assert_eq!(coordinator.down(), (link, expected));
        read_to_close(&mut stream);
    }
    let mut cut = client(address, Purpose::Link, "n");
    let link = coordinator.up();
    cut.write_all(&frame(&ask(1).encode())[..10]).unwrap();
    // Not dropped: with an unread ping that would send a reset.
    cut.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(coordinator.down(), (link, Lost::Closed));
    read_to_close(&mut cut);
    assert_eq!(coordinator.count(StreamCount::Garbled), 4);
    let node = Node::new("n", address);
    assert_eq!(coordinator.up(), LinkId(5));
    node.up();
}

#[test]
fn who_falls_silent_is_lost_on_either_side() {
    let usual = LinkSettings::new(identity("c"), 1_000);
    let coordinator = Coordinator::start(&usual, listener().0);
    let mut silent = client(coordinator.server.address(), Purpose::Link, "n");
    let link = coordinator.up();
    assert_eq!(coordinator.down(), (link, Lost::Silent));
    let heard = read_to_close(&mut silent);
    assert!(!heard.is_empty() && heard.chunks(8).all(|ping| ping == PING), "{heard:?}");
    let (listener, address) = listener();
    let node = Node::start(&LinkSettings::new(identity("n"), 1_000), vec![target(address)]);
    let _silent = server(&listener, Purpose::Link, "c");
    let link = node.up();
    assert_eq!(node.down(), (link, Lost::Silent));
    assert_eq!(node.links.counts().of(StreamCount::Silent), 1);
}

#[test]
fn who_never_greets_is_closed() {
    let coordinator = Coordinator::new();
    let mut silent = connect(coordinator.server.address());
    assert_eq!(read_to_close(&mut silent), b"");
    assert_eq!(coordinator.count(StreamCount::Ungreeted), 1);
    let (_listener, address) = listener();
    assert_eq!(Node::new("n", address).missed(), Lost::Late);
}

#[test]
fn a_coordinator_that_starts_again_is_linked_again() {
    let coordinator = Coordinator::new();
    let address = coordinator.server.address();
    let node = Node::new("n", address);
    let first = node.up();
    coordinator.up();
    drop(coordinator);
    let (link, why) = node.down();
    assert!(link == first && matches!(why, Lost::Closed | Lost::Failed(_)), "{why:?}");
    let coordinator = Coordinator::start(&settings(identity("c")), rebind(address));
    let second = node.up();
    coordinator.up();
    assert_ne!(first, second);
    // A message for the earlier link is not sent on the new one.
    node.tell(Command::Send(first, ask(1)));
    node.tell(Command::Send(second, ask(2)));
    assert_eq!(coordinator.received(), ask(2));
}

/// Binds to the address of a listener that was closed, whose connections linger.
fn rebind(address: SocketAddr) -> TcpListener {
    // The standard library sets SO_REUSEADDR.
    TcpListener::bind(address).unwrap()
}

#[test]
fn a_second_link_of_the_same_node_ends_the_first() {
    let coordinator = Coordinator::new();
    let address = coordinator.server.address();
    let mut first = client(address, Purpose::Link, "n");
    let first_link = coordinator.up();
    let mut second = client(address, Purpose::Link, "n");
    assert_eq!(coordinator.down(), (first_link, Lost::Replaced));
    let second_link = coordinator.up();
    read_to_close(&mut first);
    second.write_all(&frame(&ask(3).encode())).unwrap();
    assert_eq!(coordinator.received(), ask(3));
    coordinator.tell(Command::Close(second_link));
    assert_eq!(coordinator.down(), (second_link, Lost::Dropped));
    read_to_close(&mut second);
}

#[test]
fn no_more_links_than_there_may_be() {
    let one = LinkSettings { links_max: 1, ..settings(identity("c")) };
    let coordinator = Coordinator::start(&one, listener().0);
    let node = Node::new("n", coordinator.server.address());
    node.up();
    coordinator.up();
    let other = Node::new("m", coordinator.server.address());
    assert_eq!(other.missed(), Lost::Refused(HelloError::There(Reason::Full)));
    assert!(coordinator.server.counts().refused_here(Reason::Full) >= 1);
}

#[test]
fn strangers_that_say_nothing_have_so_many_places_and_keep_them_for_a_while() {
    const STRANGERS: usize = 2 * 64;
    let coordinator = Coordinator::new();
    let address = coordinator.server.address();
    let refused = || coordinator.server.counts().refused_here(Reason::Full);
    let mut strangers = Vec::new();
    // They release their permits after a while, so many must connect faster than that.
    poll_until("no place is left", || {
        strangers.extend((0..STRANGERS).map(|_| connect(address)));
        refused() > 0
    });
    let all = strangers.len() as u64;
    for mut stranger in strangers {
        assert_eq!(read_to_close(&mut stranger), b"");
    }
    assert_eq!(refused() + coordinator.count(StreamCount::Ungreeted), all);
    let node = Node::new("n", address);
    node.up();
    coordinator.up();
}

#[test]
fn a_stranger_keeps_no_other_machine_from_linking() {
    let coordinator = Coordinator::new();
    let address = coordinator.server.address();
    let _strangers: Vec<_> = (0..2 * 64).map(|_| connect_from([127, 0, 0, 2], address)).collect();
    poll_until("it has no place any more", || {
        coordinator.server.counts().refused_here(Reason::Full) > 0
    });
    let node = Node::new("n", address);
    // At the first attempt.
    node.up();
}

#[test]
fn strangers_of_many_addresses_keep_no_machine_of_the_config_from_linking() {
    let members = vec![[127, 0, 0, 1].into()];
    let with_members = LinkSettings { members, ..settings(identity("c")) };
    let coordinator = Coordinator::start(&with_members, listener().0);
    let address = coordinator.server.address();
    let _strangers: Vec<_> =
        (0..2 * 64).map(|number| connect_from([127, 0, 1, 1 + number % 64], address)).collect();
    poll_until("they have all places that are not for members", || {
        coordinator.server.counts().refused_here(Reason::Full) > 0
    });
    let node = Node::new("n", address);
    node.up();
}

#[test]
fn a_flood_beyond_the_queue_ends_the_link_and_begins_a_new_one() {
    let coordinator = Coordinator::new();
    let address = coordinator.server.address();
    // Sends keepalives, and reads nothing.
    let mut deaf = client(address, Purpose::Link, "deaf");
    let link = coordinator.up();
    coordinator.tell(Command::Flood(link, long_answer()));
    assert_eq!(coordinator.down(), (link, Lost::Overflow));
    assert_eq!(coordinator.count(StreamCount::Overflowed), 1);
    deaf.write_all(&PING).ok();
    let node = Node::new("n", address);
    let first = node.up();
    let at_coordinator = coordinator.up();
    node.tell(Command::Flood(first, ask(1)));
    assert_eq!(node.down(), (first, Lost::Overflow));
    let second = node.up();
    node.tell(Command::Send(second, ask(2)));
    // Part of the flood may have arrived on the old link.
    loop {
        match coordinator.next() {
            LinkEvent::Received { link, message } if link == at_coordinator => {
                assert_eq!(message, ask(1));
            }
            LinkEvent::Received { message, .. } => break assert_eq!(message, ask(2)),
            LinkEvent::Down { link, .. } => assert_eq!(link, at_coordinator),
            LinkEvent::Up { link, .. } => assert_ne!(link, at_coordinator),
            other => panic!("{}", shown(&other)),
        }
    }
}

#[test]
fn targets_change_while_links_run() {
    let (one, two) = (Coordinator::new(), Coordinator::new());
    let node = Node::new("n", one.server.address());
    let first = node.up();
    node.links.set_targets(vec![target(two.server.address())]);
    assert_eq!(node.down(), (first, Lost::Dropped));
    one.up();
    assert!(is_end(one.down().1));
    node.up();
    two.up();
    node.links.set_targets(vec![]);
    assert!(is_end(two.down().1));
}

/// Whether the other side closed the connection; with a reset, if it had not read everything.
fn is_end(lost: Lost) -> bool {
    matches!(lost, Lost::Closed | Lost::Failed(std::io::ErrorKind::ConnectionReset))
}

#[test]
fn a_handler_that_is_busy_can_be_told_only_so_much() {
    let coordinator = Coordinator::new();
    let (here, is_here) = sync_channel(1);
    let (go, gone) = sync_channel(1);
    coordinator.tell(Command::Hold(here, gone));
    is_here.recv_timeout(PATIENCE).unwrap();
    let teller = coordinator.server.teller();
    let told = (0..100_000).take_while(|_| {
        let command = Command::SendAll(answer(1));
        teller.tell(command).is_ok()
    });
    assert_eq!(told.count(), 16 * 1024);
    go.send(()).unwrap();
    drop(coordinator);
    let command = Command::SendAll(answer(1));
    assert!(teller.tell(command).is_err(), "the thread is gone");
}

/// Not a test: prints the speed on this machine. `--ignored --nocapture`, in release.
#[test]
#[ignore = "prints figures"]
fn figures() {
    const ASKS: u64 = 2_000_000;
    let roomy = |own: &str| LinkSettings { queue_bytes_max: 1 << 28, ..settings(identity(own)) };
    let echo = |event, outbox: &mut Outbox<ToNode>| {
        if let LinkEvent::Received { link, message: ToCoordinator::Ask { ask, .. } } = event {
            outbox.send(link, &answer(ask));
        }
    };
    let server = LinkServer::<()>::start(&roomy("c"), listener().0, echo).unwrap();
    for window in [1, 64, 10_000] {
        let (done, is_done) = sync_channel(1);
        let asks = if window == 1 { ASKS / 100 } else { ASKS };
        let mut next = 0;
        let asking = move |event, outbox: &mut Outbox<ToCoordinator>| match event {
            LinkEvent::Up { link, .. } => {
                (0..window).for_each(|number| assert!(outbox.send(link, &ask(number))));
                next = window;
            }
            LinkEvent::Received { link, .. } if next < asks => {
                outbox.send(link, &ask(next));
                next += 1;
            }
            LinkEvent::Received { message, .. } if message == answer(asks - 1) => {
                done.send(()).unwrap();
            }
            _ => {}
        };
        let began = std::time::Instant::now();
        let targets = vec![target(server.address())];
        let _node = NodeLinks::<()>::start(&roomy("n"), targets, asking).unwrap();
        is_done.recv().unwrap();
        let took = began.elapsed().as_secs_f64();
        println!("{window} at a time: {:.0} asks/s", asks as f64 / took);
    }
}
