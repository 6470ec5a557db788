//! Sockets that exchange messages over loopback.

use std::net::{SocketAddr, UdpSocket};
use std::sync::OnceLock;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use skep_peer::{Priority, RealtimeWork, SendError, Socket, SocketSettings, spawn_realtime_thread};
use skep_units::Now;
use skep_wire::message::{FlowsTaken, Message, Name};
use skep_wire::seal::{Key, OpenError, PeerId};
use skep_wire::steer::ForwardingState;
use skep_wire::table::{Table, TableNode, TableVersion};

/// Timeout of waits that must succeed: far longer than they take.
const PATIENCE: Duration = Duration::from_secs(20);

fn clock() -> Now {
    static START: OnceLock<Instant> = OnceLock::new();
    Now(START.get_or_init(Instant::now).elapsed().as_millis() as u64)
}

fn settings(name: &str) -> SocketSettings {
    SocketSettings {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        key: Key::from_text("a secret of thirty-two characters").unwrap(),
        cluster: "hive".to_owned(),
        name: name.to_owned(),
        clock,
    }
}

/// Two machines that have each other's addresses.
fn pair() -> (Socket, Socket) {
    let mut a = Socket::bind(&settings("a")).unwrap();
    let mut b = Socket::bind(&settings("b")).unwrap();
    a.set_peer("b", b.address().unwrap());
    b.set_peer("a", a.address().unwrap());
    (a, b)
}

fn message(number: u64) -> Message {
    Message::FlowsTaken(FlowsTaken { dump: 1, number })
}

/// A table that needs many datagrams.
fn long_message() -> Message {
    let node = |index: u16| TableNode {
        index,
        name: Name::new(&format!("node-{index}")).unwrap(),
        address: ([10, 0, 0, 1], 80).into(),
        weight: 1,
        state: ForwardingState::Up,
        is_drained: false,
        mac: [2; 6],
        mtu: 1_500,
    };
    let version = TableVersion { epoch: 1, generation: 1 };
    Message::Table(Table { version, nodes: (0..256).map(node).collect(), ..Table::default() })
}

/// Sends `message` from one socket to the other until it is received.
fn say_until_heard(from: &mut Socket, to: &mut Socket, message: &Message) {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        from.send(to.own(), message).unwrap();
        // The sender also receives, for the answer to its hello.
        let heard = to.receive(Duration::from_millis(5)).unwrap();
        if heard.is_some_and(|received| received.message == *message && received.from == from.own())
        {
            return;
        }
        assert_eq!(from.receive(Duration::from_millis(5)).unwrap(), None);
    }
    panic!("not heard: {message:?}");
}

#[test]
fn machines_meet_and_talk_in_short_and_long_messages() {
    let (mut a, mut b) = pair();
    say_until_heard(&mut a, &mut b, &message(1));
    say_until_heard(&mut b, &mut a, &message(2));
    say_until_heard(&mut a, &mut b, &long_message());
    assert!(b.counts().hellos() > 0 && b.counts().live() > 2 && a.counts().sent() > 3);
    assert_eq!(a.counts().unsent(), 0);
}

#[test]
fn who_starts_again_is_met_again() {
    let (mut a, mut b) = pair();
    say_until_heard(&mut a, &mut b, &message(1));
    let address = b.address().unwrap();
    drop(b);
    let mut b = Socket::bind(&SocketSettings { address, ..settings("b") }).unwrap();
    b.set_peer("a", a.address().unwrap());
    say_until_heard(&mut a, &mut b, &message(2));
    say_until_heard(&mut b, &mut a, &message(3));
}

#[test]
fn strangers_are_counted_and_not_heard() {
    let (mut a, mut b) = pair();
    say_until_heard(&mut a, &mut b, &message(1));
    let key = Key::from_text("another secret of this many letters").unwrap();
    let mut stranger = Socket::bind(&SocketSettings { key, ..settings("c") }).unwrap();
    stranger.set_peer("b", b.address().unwrap());
    let cluster = "other".to_owned();
    let mut neighbour = Socket::bind(&SocketSettings { cluster, ..settings("c") }).unwrap();
    neighbour.set_peer("b", b.address().unwrap());
    let noise = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send(b.own(), &message(7)).unwrap();
    neighbour.send(b.own(), &message(8)).unwrap();
    for bytes in [0, 1, 64, 100, 1_400, 1_401, 9_000] {
        noise.send_to(&vec![255; bytes], b.address().unwrap()).unwrap();
    }
    a.send(b.own(), &message(9)).unwrap();
    let heard = b.receive(PATIENCE).unwrap().expect("what comes behind the noise");
    assert_eq!((heard.from, heard.message), (a.own(), message(9)));
    let refused = |reason| b.counts().refused(reason);
    assert_eq!(refused(OpenError::BadTag), 1);
    assert_eq!(refused(OpenError::ForeignCluster), 1);
    assert_eq!(refused(OpenError::Version), 4, "noise, however long");
    assert_eq!(refused(OpenError::TooShort), 1);
    assert_eq!(refused(OpenError::TooLong), 2);
}

#[test]
fn nothing_is_sent_to_who_has_no_address() {
    let (mut a, b) = pair();
    assert!(matches!(a.send(PeerId::of("nobody"), &message(1)), Err(SendError::Unknown)));
    a.forget_peer("b");
    assert!(matches!(a.send(b.own(), &message(1)), Err(SendError::Unknown)));
    a.send_all([b.own(), PeerId::of("nobody")], &message(1));
    assert_eq!(a.counts().sent(), 0);
}

#[test]
fn an_address_that_is_taken_is_named() {
    let (a, _) = pair();
    let address = a.address().unwrap();
    let error = Socket::bind(&SocketSettings { address, ..settings("b") }).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&address.to_string()) && text.contains("in use"), "{text}");
}

#[test]
fn a_message_that_waited_in_the_queue_is_as_old_as_it_is() {
    let (mut a, mut b) = pair();
    say_until_heard(&mut a, &mut b, &message(1));
    let before = clock();
    a.send(b.own(), &message(2)).unwrap();
    let after = clock();
    // As in a process that is stopped meanwhile.
    std::thread::sleep(Duration::from_millis(300));
    a.send(b.own(), &message(3)).unwrap();
    let late = clock();
    let [first, second] = [2, 3].map(|_| b.receive(PATIENCE).unwrap().unwrap());
    assert_eq!((first.message, second.message), (message(2), message(3)));
    // The clocks have whole milliseconds, and one of them is the kernel's.
    assert!(before.0 - 2 <= first.at.0 && first.at.0 <= after.0 + 2, "{before:?} {:?}", first.at);
    assert!(late.0 - 200 <= second.at.0 && second.at <= clock(), "{late:?} {:?}", second.at);
}

#[test]
fn a_wait_is_ended_from_another_thread_and_by_a_message() {
    let (mut a, mut b) = pair();
    say_until_heard(&mut a, &mut b, &message(1));
    let waker = b.waker();
    let (heard, hears) = sync_channel(1);
    let thread = spawn_realtime_thread(
        "heartbeat-test",
        RealtimeWork::Heartbeats,
        move |priority: Priority| {
            heard.send(b.receive(PATIENCE).unwrap()).unwrap();
            heard.send(b.receive(PATIENCE).unwrap()).unwrap();
            eprintln!("the thread got: {priority}");
            assert!(!priority.to_string().is_empty());
        },
    );
    // Counts even if the thread is not waiting yet.
    waker.wake();
    assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), None, "woken, and not by a message");
    a.send(PeerId::of("b"), &message(2)).unwrap();
    let received = hears.recv_timeout(PATIENCE).unwrap().unwrap();
    assert_eq!(received.message, message(2));
    thread.unwrap().join().unwrap();
}
