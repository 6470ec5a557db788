//! LCCP sockets over IP packets and over UDP, in a network namespace of their own.

use std::fs::File;
use std::future::poll_fn;
use std::io::{Write, stderr};
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::Instant;

use rustix::thread::UnshareFlags;
use skep_peer::{
    LCCP_PROTOCOL, LccpBatch, LccpReceived, LccpSettings, LccpSocket, LccpTransport, PacketRefusal,
    SendError, Socket as HeartbeatSocket, SocketSettings,
};
use skep_units::Now;
use skep_wire::seal::{BODY_BYTES_MAX, Key, OpenError, PeerId};
use socket2::{Domain, Protocol, Socket, Type};

use crate::support::{KEY, OTHER_KEY, PATIENCE, poll_until};

/// A transport of datagrams, with two addresses of this machine each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    RawV4,
    RawV6,
    Udp,
}

const RAW: [Way; 2] = [Way::RawV4, Way::RawV6];

impl Way {
    fn address(self, machine: u8) -> SocketAddr {
        match self {
            Self::RawV4 | Self::Udp => ([127, 0, 0, machine], 0).into(),
            Self::RawV6 => ([0xfd08, 0, 0, 0, 0, 0, 0, machine.into()], 0).into(),
        }
    }

    /// The transport of a machine, as netguard opens it.
    fn transport(self, machine: u8) -> LccpTransport {
        match self {
            Self::Udp => LccpTransport::Udp(self.address(machine)),
            Self::RawV4 | Self::RawV6 => LccpTransport::Raw(raw(self.address(machine)).into()),
        }
    }

    /// Sends arbitrary bytes to an LCCP socket.
    fn send_bytes(self, from: u8, bytes: &[u8], to: SocketAddr) {
        match self {
            Self::Udp => {
                UdpSocket::bind(self.address(from)).unwrap().send_to(bytes, to).unwrap();
            }
            Self::RawV4 | Self::RawV6 => {
                raw(self.address(from)).send_to(bytes, &to.into()).unwrap();
            }
        }
    }
}

fn raw(address: SocketAddr) -> Socket {
    let protocol = Some(Protocol::from(i32::from(LCCP_PROTOCOL)));
    let socket = Socket::new(Domain::for_address(address), Type::RAW, protocol).unwrap();
    socket.bind(&address.into()).unwrap();
    socket
}

fn clock() -> Now {
    static START: OnceLock<Instant> = OnceLock::new();
    Now(START.get_or_init(Instant::now).elapsed().as_millis() as u64)
}

fn settings(name: &str, key: &str) -> LccpSettings {
    let (key, cluster) = (Key::from_text(key).unwrap(), "hive".to_owned());
    LccpSettings { key, cluster, name: name.to_owned(), clock }
}

/// Two machines that have each other's addresses, and have exchanged hellos.
fn pair(way: Way) -> (LccpSocket, LccpSocket) {
    let mut a = LccpSocket::open(way.transport(1), &settings("a", KEY)).unwrap();
    let mut b = LccpSocket::open(way.transport(2), &settings("b", KEY)).unwrap();
    a.set_peer("b", b.address());
    b.set_peer("a", a.address());
    // The first hello is answered, which makes later datagrams live.
    a.greet(b.own()).unwrap();
    poll_until("b is met", || drained(&mut b).is_empty() && b.counts().hellos() == 1);
    poll_until("a has the answer", || {
        assert_eq!(drained(&mut a), []);
        a.counts().live() + a.counts().hellos() > 0
    });
    (a, b)
}

fn drained(socket: &mut LccpSocket) -> Vec<LccpReceived> {
    let mut received = Vec::new();
    while socket.receive(&mut received).unwrap() == LccpBatch::Full {}
    received
}

fn next(socket: &mut LccpSocket) -> LccpReceived {
    let mut received = Vec::new();
    poll_until("a message", || {
        received.extend(drained(socket));
        !received.is_empty()
    });
    assert_eq!(received.len(), 1);
    received.remove(0)
}

fn each_way(work: fn(Way)) {
    work(Way::Udp);
    each_raw_way(work);
}

/// Runs on a thread with a network of its own, or reports why it cannot.
fn each_raw_way(work: fn(Way)) {
    let run = move || {
        if !leave_network() {
            let _ = writeln!(stderr(), "SKIPPED: needs root, to make a network namespace");
        } else if !make_addresses() {
            let _ = writeln!(stderr(), "SKIPPED: needs `ip` of iproute2, and IPv6");
        } else {
            RAW.into_iter().for_each(work);
        }
    };
    if let Err(panic) = thread::spawn(run).join() {
        std::panic::resume_unwind(panic);
    }
}

fn make_addresses() -> bool {
    let addresses = [1, 2, 3].map(|machine| Way::RawV6.address(machine).ip());
    let add = |address| ip(&format!("address add {address}/128 dev lo nodad")).is_some();
    let is_made = ip("link set lo up").is_some() && addresses.iter().all(add);
    // The kernel adds the routes later, in a thread of its own.
    let is_local =
        |address| ip(&format!("route get {address}")).is_some_and(|it| it.starts_with("local"));
    if is_made {
        poll_until("addresses are usable", || addresses.iter().all(is_local));
    }
    is_made
}

fn ip(arguments: &str) -> Option<String> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[expect(unsafe_code, reason = "leaves the network, on a thread that ends soon after")]
fn leave_network() -> bool {
    // SAFETY: neither descriptors nor memory are unshared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.is_ok()
}

#[test]
fn messages_come_as_they_were_sent() {
    each_way(|way| {
        let (mut a, mut b) = pair(way);
        for bytes in [1, 100, BODY_BYTES_MAX] {
            let body = vec![bytes as u8; bytes];
            a.send(b.own(), &body).unwrap();
            let received = next(&mut b);
            assert_eq!((received.from, &received.body), (a.own(), &body), "{way:?}");
            assert_eq!(received.stamp.incarnation, a.incarnation());
            b.send(a.own(), &body).unwrap();
            assert_eq!(next(&mut a).body, body, "{way:?}");
        }
        let error = a.send(b.own(), &[0; BODY_BYTES_MAX + 1]).unwrap_err();
        assert!(matches!(error, SendError::BodyTooLong(_)), "{error}");
        let error = a.send(PeerId::of("nobody"), &[1]).unwrap_err();
        assert!(matches!(error, SendError::Unknown), "{error}");
        assert_eq!((a.counts().unsent(), refused(&a), refused(&b)), (0, 0, 0), "{way:?}");
    });
}

fn refused(socket: &LccpSocket) -> u64 {
    let counts = socket.counts();
    let dropped = PacketRefusal::ALL.iter().map(|&it| counts.dropped(it)).sum::<u64>();
    dropped + OpenError::ALL.iter().map(|&it| counts.refused(it)).sum::<u64>()
}

#[test]
fn forged_and_truncated_datagrams_are_counted_and_ignored() {
    each_way(|way| {
        let (a, mut b) = pair(way);
        drop(a);
        let mut forger = LccpSocket::open(way.transport(1), &settings("a", OTHER_KEY)).unwrap();
        forger.set_peer("b", b.address());
        forger.send(b.own(), b"forged").unwrap();
        for bytes in [0, 1, 64, 1_400, 1_401, 9_000] {
            way.send_bytes(1, &vec![2; bytes], b.address());
        }
        // From an address that is not in the config.
        way.send_bytes(3, &[2; 100], b.address());
        let counts = b.counts();
        poll_until("all came", || {
            assert_eq!(drained(&mut b), []);
            refused(&b) == 8
        });
        let expected = [
            (OpenError::BadTag, 1),
            (OpenError::TooShort, 3),
            (OpenError::ForeignCluster, 1),
            (OpenError::TooLong, 2),
        ];
        let found = expected.map(|(reason, _)| (reason, counts.refused(reason)));
        assert_eq!(found, expected, "{way:?}");
        assert_eq!(counts.dropped(PacketRefusal::Source), 1, "{way:?}");
        assert_eq!(counts.dropped(PacketRefusal::Header), 0, "{way:?}");
    });
}

#[test]
fn a_replayed_datagram_is_counted_and_ignored() {
    each_raw_way(|way| {
        let (mut a, mut b) = pair(way);
        // Receives what b receives: each raw socket gets a copy.
        let tap = raw(way.address(2));
        tap.set_read_timeout(Some(PATIENCE)).unwrap();
        a.send(b.own(), b"once").unwrap();
        assert_eq!(next(&mut b).body, b"once");
        let mut packet = [0; 2_000];
        let bytes =
            rustix::net::recv(&tap, &mut packet[..], rustix::net::RecvFlags::empty()).unwrap().1;
        let header_bytes = if way == Way::RawV4 { 20 } else { 0 };
        way.send_bytes(1, &packet[header_bytes..bytes], b.address());
        poll_until("it came again", || {
            assert_eq!(drained(&mut b), []);
            b.counts().refused(OpenError::Replayed) == 1
        });
    });
}

#[test]
fn a_datagram_that_comes_twice_by_udp_is_heard_once() {
    let (mut a, mut b) = pair(Way::Udp);
    let relay = UdpSocket::bind(Way::Udp.address(1)).unwrap();
    relay.set_read_timeout(Some(PATIENCE)).unwrap();
    a.set_peer("b", relay.local_addr().unwrap());
    a.send(b.own(), b"once").unwrap();
    let mut datagram = [0; 2_000];
    let bytes = relay.recv(&mut datagram).unwrap();
    for _ in 0..3 {
        relay.send_to(&datagram[..bytes], b.address()).unwrap();
    }
    let mut received = Vec::new();
    poll_until("all came", || {
        received.extend(drained(&mut b));
        b.counts().refused(OpenError::Replayed) == 2
    });
    assert_eq!(received.len(), 1);
}

#[test]
fn a_datagram_of_the_heartbeats_socket_has_another_seal() {
    let mut b = LccpSocket::open(Way::Udp.transport(1), &settings("b", KEY)).unwrap();
    let LccpSettings { key, cluster, name, clock } = settings("a", KEY);
    let address = Way::Udp.address(1);
    let mut a =
        HeartbeatSocket::bind(&SocketSettings { address, key, cluster, name, clock }).unwrap();
    a.set_peer("b", b.address());
    b.set_peer("a", a.address().unwrap());
    let message = skep_wire::message::FlowsTaken { dump: 1, number: 1 };
    a.send(b.own(), &skep_wire::message::Message::FlowsTaken(message)).unwrap();
    poll_until("it came", || {
        assert_eq!(drained(&mut b), []);
        b.counts().refused(OpenError::BadTag) == 1
    });
    assert_eq!(b.counts().hellos(), 0);
}

#[test]
fn one_call_reads_a_bounded_number() {
    let (mut a, mut b) = pair(Way::Udp);
    for number in 0..100_u8 {
        a.send(b.own(), &[number]).unwrap();
    }
    let (mut received, mut batches) = (Vec::new(), 0);
    poll_until("all came", || {
        batches += usize::from(b.receive(&mut received).unwrap() == LccpBatch::Full);
        received.len() == 100
    });
    assert_eq!(batches, 1, "of 64");
    let numbers: Vec<_> = received.iter().map(|it| usize::from(it.body[0])).collect();
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
}

#[test]
fn a_runtime_waits_for_messages() {
    let (mut a, mut b) = pair(Way::Udp);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (to, readiness) = (b.own(), skep_peer::Readiness::of(&b).unwrap());
        for body in [b"first", b"later"] {
            let sends = async { a.send(to, body).unwrap() };
            let receives = async {
                let mut received = Vec::new();
                while received.is_empty() {
                    poll_fn(|context| readiness.poll_taken(context)).await;
                    while b.receive(&mut received).unwrap() == LccpBatch::Full {}
                }
                received
            };
            let both = async { tokio::join!(receives, sends).0 };
            let received = tokio::time::timeout(PATIENCE, both).await.unwrap();
            assert_eq!(received[0].body, body);
        }
    });
}

#[test]
fn what_is_no_socket_is_an_error() {
    let file = File::open("/dev/null").unwrap();
    let error = LccpSocket::open(LccpTransport::Raw(file.into()), &settings("a", KEY));
    assert!(error.unwrap_err().to_string().contains("0.0.0.0:0"));
}
