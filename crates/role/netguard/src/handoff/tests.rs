//! Orders over a real socket, for real connections: a node with its packet program and a client, each
//! in a network namespace of its own that disappears with its thread.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write, stderr};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use skep_datapath::{MoveState, NodeProgram, PinPath, Sizes, is_in_repair};
use skep_guard::{HandoffAnswer, HandoffGuard, HandoffListener};
use skep_wire::guard::{ProgramSettings, Side};
use skep_wire::handoff::SocketId;
use skep_wire::handoff::guard::{CONTROL_PROTOCOL, HandoffOrder, HandoffResult};
use skep_wire::steer::{
    DatapathNode, DatapathService, ForwardingState, Measure, NO_NODE, Protocol, ROW_NODES, ROWS,
    Row, Verdict,
};

use super::{HandoffPlan, HandoffThread};

/// Limit for waits that must succeed.
const PATIENCE: Duration = Duration::from_secs(20);

/// This node and another one.
const OWN: u16 = 1;
const OTHER: u16 = 2;

const NODE: [&str; 2] = ["10.7.0.1", "fd07::1"];
const VIPS: [&str; 2] = ["10.7.0.100", "fd07::100"];
const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 7, 9];

fn ip_of(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn services() -> [SocketAddr; 2] {
    VIPS.map(|vip| SocketAddr::new(ip_of(vip), 80))
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {error}");
}

/// Moves this thread, and threads that it starts later, to new namespaces.
#[expect(deprecated, reason = "the other call is unsafe for descriptors, which stay here")]
fn leave(kinds: UnshareFlags) -> bool {
    rustix::thread::unshare(kinds).is_ok()
}

struct Bed {
    client: File,
    program: NodeProgram,
    thread: Option<HandoffThread>,
    plan: HandoffPlan,
    _folder: tempfile::TempDir,
}

/// Runs `work` in a bed, or prints why none can be made.
fn in_bed(work: impl FnOnce(&mut Bed) + Send + 'static) {
    let run = || {
        if !leave(UnshareFlags::NEWNET | UnshareFlags::NEWNS) {
            let _ = writeln!(stderr(), "SKIPPED: needs root, to make namespaces");
            return;
        }
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private).unwrap();
        while unmount("/sys/fs/bpf", UnmountFlags::DETACH).is_ok() {}
        if let Err(error) = skep_datapath::prepare() {
            let _ = writeln!(stderr(), "SKIPPED: {error}");
            return;
        }
        work(&mut Bed::new());
    };
    if let Err(panic) = thread::spawn(run).join() {
        std::panic::resume_unwind(panic);
    }
}

impl Bed {
    fn new() -> Self {
        let away = || {
            assert!(leave(UnshareFlags::NEWNET), "root may");
            File::open("/proc/thread-self/ns/net").unwrap()
        };
        let client = thread::spawn(away).join().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("comb-1.handoff.sock");
        let plan = HandoffPlan {
            addresses: services().to_vec(),
            of_node: Some(ip_of(NODE[0])),
            of_dispatcher: None,
            socket,
        };
        make_devices(&client);
        let mut bed = Self { client, program: program(), thread: None, plan, _folder: folder };
        bed.start();
        bed
    }

    fn start(&mut self) {
        let own = rustix::process::getuid().as_raw();
        let listener = HandoffListener::bind(&self.plan.socket, vec![own], None).unwrap();
        let thread =
            HandoffThread::start(self.plan.clone(), listener, |why| panic!("{why}")).unwrap();
        thread.set_moves(Some(self.program.moves().unwrap())).unwrap();
        self.thread = Some(thread);
    }

    fn guard(&self) -> HandoffGuard {
        HandoffGuard::connect(&self.plan.socket).unwrap()
    }

    fn at_client<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let client = &self.client;
        let inside = || {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(client.as_fd(), network).unwrap();
            work()
        };
        thread::scope(|scope| scope.spawn(inside).join().unwrap())
    }

    fn connect(&self, listener: &TcpListener) -> Connection {
        let service = listener.local_addr().unwrap();
        let client = self.at_client(|| TcpStream::connect_timeout(&service, PATIENCE).unwrap());
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        let id = SocketId { client: client.local_addr().unwrap(), server: service };
        Connection { client, server, id }
    }

    fn state(&self, id: SocketId) -> Option<MoveState> {
        self.program.moves().unwrap().state(id).unwrap()
    }

    fn packets(&self, verdict: Verdict) -> u64 {
        let counted = self.program.counters().unwrap().verdicts;
        counted.iter().find(|(it, _)| *it == verdict).unwrap().1.packets
    }
}

struct Connection {
    client: TcpStream,
    server: TcpStream,
    id: SocketId,
}

impl Connection {
    /// Both directions work, and every byte arrives.
    fn check(&mut self) {
        for (from, to) in [(&self.client, &self.server), (&self.server, &self.client)] {
            let sent: Vec<u8> = (0..50_000_u32).map(|it| (it % 251) as u8).collect();
            let mut received = vec![0; sent.len()];
            thread::scope(|scope| {
                scope.spawn(|| (&mut &*from).write_all(&sent).unwrap());
                (&mut &*to).read_exact(&mut received).unwrap();
            });
            assert!(received == sent, "bytes are not what was sent");
        }
    }
}

fn make_devices(client: &File) {
    let client = format!("/proc/{}/fd/{}", std::process::id(), client.as_raw_fd());
    ip("link set lo up");
    ip("link add eth0 address 02:00:00:00:07:01 type veth peer name eth1");
    ip(&format!("link set eth1 netns {client}"));
    for (node, vip) in [("10.7.0.1/24", "10.7.0.100/32"), ("fd07::1/64", "fd07::100/128")] {
        let nodad = if node.contains(':') { "nodad" } else { "" };
        ip(&format!("address add {node} dev eth0 {nodad}"));
        ip(&format!("address add {vip} dev lo {nodad}"));
    }
    ip("link set eth0 up");
    let within = format!("--net={client}");
    let steps = "ip link set lo up && ip address add 10.7.0.2/24 dev eth1 && \
                 ip address add fd07::2/64 dev eth1 nodad && ip link set eth1 up && \
                 ip route add 10.7.0.100 via 10.7.0.1 && ip route add fd07::100 via fd07::1";
    let made = Command::new("nsenter").args([&within, "sh", "-c", steps]).status().unwrap();
    assert!(made.success());
}

fn program() -> NodeProgram {
    let place = PinPath { pins: PathBuf::from("/sys/fs/bpf/skep/test/node") };
    let sizes = Sizes { flows_max: 64, sources_max: 64, services_max: 2 };
    let mut program = NodeProgram::open(&place, sizes).unwrap();
    program.attach("eth0").unwrap();
    let settings = ProgramSettings {
        hash_seed: 7,
        new_flows_max: 0,
        new_flows_per_source_max: 0,
        stream: false,
        own_node: OWN,
    };
    program.set_settings(&settings).unwrap();
    let index = fs::read_to_string("/sys/class/net/eth0/ifindex");
    let device_index = index.ok().and_then(|it| it.trim().parse().ok()).unwrap_or(1);
    program.set_nodes(&[OWN, OTHER].map(|index| node(index, device_index))).unwrap();
    let services = [0, 1].map(|id| DatapathService {
        id,
        address: services()[usize::from(id)],
        protocol: Protocol::Tcp,
        choices: 1,
        measure: Measure::First,
        by_address: false,
    });
    let mut row = [NO_NODE; ROW_NODES];
    row[0] = OWN;
    for service in &services {
        program.set_rows(service, &vec![Row(row); ROWS]).unwrap();
    }
    program.set_services(&services).unwrap();
    program.watch_moves(true).unwrap();
    program
}

fn node(index: u16, device_index: u32) -> DatapathNode {
    let mac = if index == OWN { [2, 0, 0, 0, 7, 1] } else { OTHER_MAC };
    let state = ForwardingState::Up;
    DatapathNode { index, mac, device_index, mtu: 0, state, is_local: index == OWN }
}

fn ask(
    guard: &mut HandoffGuard,
    order: HandoffOrder,
    descriptor: Option<BorrowedFd<'_>>,
) -> HandoffAnswer {
    guard.ask(&[(order, descriptor)]).unwrap().pop().unwrap()
}

fn done(guard: &mut HandoffGuard, order: HandoffOrder, descriptor: Option<BorrowedFd<'_>>) {
    let told = format!("{order:?}");
    assert_eq!(ask(guard, order, descriptor).result, HandoffResult::Done, "{told}");
}

#[track_caller]
fn refused(
    guard: &mut HandoffGuard,
    order: HandoffOrder,
    descriptor: Option<BorrowedFd<'_>>,
    why: &str,
) {
    let told = format!("{order:?}");
    match ask(guard, order, descriptor).result {
        HandoffResult::Refused(text) => assert!(text.contains(why), "{told}: {text}"),
        other => panic!("{told}: {other:?}, not {why:?}"),
    }
}

/// Returns the number of bytes from the client that are not acknowledged, from the table described in
/// the kernel's proc_net_tcp.txt.
fn unacknowledged(bed: &Bed, id: SocketId) -> u64 {
    let table = if id.client.is_ipv4() { "tcp" } else { "tcp6" };
    let path = format!("/proc/thread-self/net/{table}");
    let text = bed.at_client(|| fs::read_to_string(path).unwrap());
    let port = format!(":{:04X}", id.client.port());
    let is_it = |fields: &Vec<&str>| fields.get(1).is_some_and(|local| local.ends_with(&port));
    let line = text.lines().map(|line| line.split_whitespace().collect()).find(is_it).unwrap();
    u64::from_str_radix(line[4].split(':').next().unwrap(), 16).unwrap()
}

#[test]
fn a_frozen_connection_takes_and_sends_nothing_and_thawed_it_loses_nothing() {
    in_bed(|bed| {
        let mut guard = bed.guard();
        for service in services() {
            let listener = TcpListener::bind(service).unwrap();
            let mut it = bed.connect(&listener);
            it.check();
            for _ in 0..2 {
                let fd = it.server.as_fd();
                done(&mut guard, HandoffOrder::Freeze(it.id), Some(fd));
                done(&mut guard, HandoffOrder::Freeze(it.id), Some(fd));
                assert!(is_in_repair(fd).unwrap());
                assert_eq!(bed.state(it.id), Some(MoveState::Blocked));
                let before = bed.packets(Verdict::NodeBlocked);
                it.client.write_all(b"while it is frozen").unwrap();
                // The client retransmits it repeatedly.
                wait_until("packets dropped", || bed.packets(Verdict::NodeBlocked) >= before + 2);
                assert_eq!(unacknowledged(bed, it.id), 18);
                assert_eq!(rustix::io::ioctl_fionread(&it.server).unwrap(), 0);
                it.server.write_all(b"x").unwrap_err();
                done(&mut guard, HandoffOrder::Thaw(it.id), Some(it.server.as_fd()));
                done(&mut guard, HandoffOrder::Thaw(it.id), Some(it.server.as_fd()));
                assert_eq!(bed.state(it.id), None);
                let mut received = [0; 18];
                it.server.read_exact(&mut received).unwrap();
                assert_eq!(&received, b"while it is frozen");
                it.check();
            }
            drop(listener);
            // Nothing is left that blocks the address for the next listener. (A program that another
            // test starts inherits this listener until it calls exec.)
            wait_until("the address is free", || TcpListener::bind(service).is_ok());
        }
    });
}

#[test]
fn orders_for_what_is_not_that_connection_are_refused() {
    in_bed(|bed| {
        let mut guard = bed.guard();
        let listener = TcpListener::bind(services()[0]).unwrap();
        let mut it = bed.connect(&listener);
        let other = bed.connect(&listener);
        let id = it.id;
        let freeze = HandoffOrder::Freeze;
        let own = || Some(it.server.as_fd());
        let mut no = |order, fd, why| refused(&mut guard, order, fd, why);
        let foreign = SocketId { server: SocketAddr::new(ip_of(NODE[0]), 80), ..id };
        no(freeze(foreign), own(), "is the address of no service");
        let port = SocketId { server: SocketAddr::new(ip_of(VIPS[0]), 81), ..id };
        no(freeze(port), own(), "is the address of no service");
        no(HandoffOrder::Create(port), None, "is the address of no service");
        let mixed = SocketId { client: "[fd07::2]:4000".parse().unwrap(), ..id };
        no(freeze(mixed), own(), "of another version of IP");
        no(freeze(SocketId { server: services()[1], ..id }), own(), "of another version of IP");
        no(freeze(id), Some(other.server.as_fd()), "the socket's peer is 10.7.0.2:");
        no(freeze(id), Some(it.client.as_fd()), "the socket's local address is 10.7.0.2:");
        no(freeze(id), Some(listener.as_fd()), "cannot ask for the socket's peer");
        let udp = UdpSocket::bind(services()[0]).unwrap();
        no(freeze(id), Some(udp.as_fd()), "no TCP socket");
        let file = File::open("/dev/null").unwrap();
        no(freeze(id), Some(file.as_fd()), "no TCP socket");
        no(HandoffOrder::Redirect(id, OTHER), None, "is not blocked");
        no(HandoffOrder::Create(id), None, "is here already");
        assert_eq!(bed.state(id), None);
        assert!(!is_in_repair(it.server.as_fd()).unwrap());
        it.check();
        // The same over IPv6.
        let listener6 = TcpListener::bind(services()[1]).unwrap();
        let it6 = bed.connect(&listener6);
        refused(&mut guard, HandoffOrder::Create(it6.id), None, "is here already");

        done(&mut guard, freeze(id), Some(it.server.as_fd()));
        let mut no = |order, fd, why| refused(&mut guard, order, fd, why);
        no(HandoffOrder::Redirect(id, 1024), None, "place of a node 1024 is out of range");
        no(HandoffOrder::Start(id), Some(it.server.as_fd()), "frozen here");
        no(HandoffOrder::Create(id), None, "frozen here");
        no(HandoffOrder::Forget(id), None, "frozen here");
        no(HandoffOrder::Release(id), None, "frozen here");
        no(HandoffOrder::Thaw(id), Some(other.server.as_fd()), "the socket's peer");
        done(&mut guard, HandoffOrder::Thaw(id), Some(it.server.as_fd()));
        it.check();

        // The client has closed: this is no connection to move.
        it.client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(it.server.read(&mut [0]).unwrap(), 0);
        refused(&mut guard, freeze(id), Some(it.server.as_fd()), "not established");
        assert_eq!(bed.state(id), None);
    });
}

#[test]
fn a_frozen_socket_is_created_anew_once_nobody_has_it() {
    in_bed(|bed| {
        let mut guard = bed.guard();
        let listener = TcpListener::bind(services()[0]).unwrap();
        let it = bed.connect(&listener);
        done(&mut guard, HandoffOrder::Freeze(it.id), Some(it.server.as_fd()));
        refused(&mut guard, HandoffOrder::Create(it.id), None, "frozen here");
        refused(&mut guard, HandoffOrder::Recreate(it.id), None, "is here already");
        assert_eq!(bed.state(it.id), Some(MoveState::Blocked));
        refused(&mut guard, HandoffOrder::Create(it.id), None, "is here already");
        drop(it.server);
        let answer = ask(&mut guard, HandoffOrder::Create(it.id), None);
        assert_eq!(answer.result, HandoffResult::Created);
        assert!(is_in_repair(answer.socket.unwrap().as_fd()).unwrap());
        assert_eq!(bed.state(it.id), Some(MoveState::Blocked));
        done(&mut guard, HandoffOrder::Forget(it.id), None);
        assert_eq!(bed.state(it.id), None);
        // In the opposite order.
        let it = bed.connect(&listener);
        done(&mut guard, HandoffOrder::Freeze(it.id), Some(it.server.as_fd()));
        done(&mut guard, HandoffOrder::Redirect(it.id, OTHER), None);
        drop(it.server);
        refused(&mut guard, HandoffOrder::Recreate(it.id), None, "is redirected");
    });
}

#[test]
fn what_is_redirected_is_neither_thawed_nor_started_here() {
    in_bed(|bed| {
        let mut guard = bed.guard();
        let listener = TcpListener::bind(services()[0]).unwrap();
        let mut it = bed.connect(&listener);
        let id = it.id;
        done(&mut guard, HandoffOrder::Freeze(id), Some(it.server.as_fd()));
        done(&mut guard, HandoffOrder::Redirect(id, OTHER), None);
        done(&mut guard, HandoffOrder::Redirect(id, OTHER), None);
        refused(&mut guard, HandoffOrder::Redirect(id, OWN), None, "is not blocked");
        refused(&mut guard, HandoffOrder::Thaw(id), Some(it.server.as_fd()), "is redirected");
        refused(&mut guard, HandoffOrder::Start(id), Some(it.server.as_fd()), "frozen here");
        assert!(is_in_repair(it.server.as_fd()).unwrap());
        let before = bed.packets(Verdict::NodeMoved);
        it.client.write_all(b"to the other node").unwrap();
        wait_until("packets follow", || bed.packets(Verdict::NodeMoved) > before);
        drop(it.server);
        done(&mut guard, HandoffOrder::Release(id), None);
        done(&mut guard, HandoffOrder::Release(id), None);
        assert_eq!(bed.state(id), Some(MoveState::Redirected(OTHER)));
        // Because it was closed in repair mode, the client was sent nothing.
        it.client.set_nonblocking(true).unwrap();
        let silent = it.client.read(&mut [0]).unwrap_err();
        assert_eq!(silent.kind(), ErrorKind::WouldBlock);

        // The connection returns, and is given up again.
        let created = ask(&mut guard, HandoffOrder::Create(id), None);
        assert_eq!(created.result, HandoffResult::Created);
        assert_eq!(bed.state(id), Some(MoveState::Blocked));
        drop(created);
        done(&mut guard, HandoffOrder::Forget(id), None);
        assert_eq!(bed.state(id), Some(MoveState::Redirected(OTHER)));
    });
}

#[test]
fn a_receiver_gets_a_socket_beside_the_listener() {
    in_bed(|bed| {
        let mut guard = bed.guard();
        for (service, client) in services().into_iter().zip(["10.7.0.2:4000", "[fd07::2]:4000"]) {
            let listener = TcpListener::bind(service).unwrap();
            let id = SocketId { client: client.parse().unwrap(), server: service };
            let answers = guard
                .ask(&[(HandoffOrder::Create(id), None), (HandoffOrder::Create(id), None)])
                .unwrap();
            for answer in answers {
                let socket = TcpStream::from(answer.socket.unwrap());
                assert_eq!(socket.local_addr().unwrap(), service);
                assert!(is_in_repair(socket.as_fd()).unwrap());
            }
            assert_eq!(bed.state(id), Some(MoveState::Blocked));
            done(&mut guard, HandoffOrder::Forget(id), None);
            assert_eq!(bed.state(id), None);
            let mut it = bed.connect(&listener);
            it.check();
        }
    });
}

#[test]
fn a_client_hears_that_its_connection_is_lost() {
    in_bed(|bed| {
        let listener = TcpListener::bind(services()[0]).unwrap();
        // By an order.
        let mut guard = bed.guard();
        let mut it = bed.connect(&listener);
        done(&mut guard, HandoffOrder::Freeze(it.id), Some(it.server.as_fd()));
        done(&mut guard, HandoffOrder::Reset(it.id), Some(it.server.as_fd()));
        assert_eq!(it.client.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(bed.state(it.id), None);
        done(&mut guard, HandoffOrder::Reset(it.id), Some(it.server.as_fd()));
        // Or after the receiver has reported that it does not have the connection.
        let mut it = bed.connect(&listener);
        done(&mut guard, HandoffOrder::Freeze(it.id), Some(it.server.as_fd()));
        done(&mut guard, HandoffOrder::Redirect(it.id, OTHER), None);
        refused(&mut guard, HandoffOrder::Create(it.id), None, "frozen here");
        done(&mut guard, HandoffOrder::Reset(it.id), Some(it.server.as_fd()));
        assert_eq!(it.client.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(bed.state(it.id), None);
        // When its process has died, with its descriptors.
        let Connection { mut client, server, id } = bed.connect(&listener);
        let receiver = SocketId { client: "10.7.0.2:1".parse().unwrap(), ..id };
        done(&mut guard, HandoffOrder::Freeze(id), Some(server.as_fd()));
        let created = ask(&mut guard, HandoffOrder::Create(receiver), None);
        drop((server, created, guard));
        assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        wait_until("nothing is blocked", || bed.state(id).or(bed.state(receiver)).is_none());
        // After the process has redirected the connection, perhaps before the receiver was notified.
        let mut guard = bed.guard();
        let Connection { mut client, server, id } = bed.connect(&listener);
        done(&mut guard, HandoffOrder::Freeze(id), Some(server.as_fd()));
        done(&mut guard, HandoffOrder::Redirect(id, OTHER), None);
        drop((server, guard));
        assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(bed.state(id), Some(MoveState::Redirected(OTHER)));
        // When netguard ends as well.
        let mut guard = bed.guard();
        let Connection { mut client, server, id } = bed.connect(&listener);
        done(&mut guard, HandoffOrder::Freeze(id), Some(server.as_fd()));
        drop(server);
        bed.thread = None;
        assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(bed.state(id), None);
    });
}

#[test]
fn what_an_earlier_netguard_blocked_is_forgotten_and_nothing_else() {
    in_bed(|bed| {
        let listener = TcpListener::bind(services()[0]).unwrap();
        let kept = bed.connect(&listener);
        let at = |port| SocketAddr::new(kept.id.client.ip(), port);
        let [lost, redirected] = [1, 2].map(|port| SocketId { client: at(port), ..kept.id });
        // Emulates a netguard that was killed: nothing is undone.
        bed.thread = None;
        let mut moves = bed.program.moves().unwrap();
        [lost, redirected].iter().for_each(|id| moves.block(*id).unwrap());
        moves.redirect(redirected, OTHER).unwrap();
        bed.start();
        let [mut earlier, mut guard] = [bed.guard(), bed.guard()];
        done(&mut earlier, HandoffOrder::Freeze(kept.id), Some(kept.server.as_fd()));
        done(&mut guard, HandoffOrder::ForgetOrphans, None);
        assert_eq!((bed.state(kept.id), bed.state(lost)), (Some(MoveState::Blocked), None));
        assert_eq!(bed.state(redirected), Some(MoveState::Redirected(OTHER)));
        drop(earlier);
        wait_until("its client is gone", || bed.state(kept.id).is_none());
        // No process sends an order.
        bed.thread = None;
        moves.block(lost).unwrap();
        bed.start();
        wait_until("nobody has it", || bed.state(lost).is_none());
    });
}

#[test]
fn the_control_socket_hears_its_protocol_at_the_nodes_address_only() {
    in_bed(|bed| {
        let mut guard = bed.guard();
        let opened = ask(&mut guard, HandoffOrder::OpenControlSocket(Side::Node), None);
        assert_eq!(opened.result, HandoffResult::Created);
        let socket: OwnedFd = opened.socket.unwrap();
        let to = |address: &str, protocol: u8, text: &[u8]| {
            bed.at_client(|| {
                let protocol =
                    rustix::net::Protocol::from_raw(u32::from(protocol).try_into().unwrap());
                let (family, kind) =
                    (rustix::net::AddressFamily::INET, rustix::net::SocketType::RAW);
                let raw = rustix::net::socket(family, kind, Some(protocol)).unwrap();
                let to = SocketAddr::new(ip_of(address), 0);
                rustix::net::sendto(&raw, text, rustix::net::SendFlags::empty(), &to).unwrap();
            });
        };
        to(NODE[0], 254, b"another protocol");
        to(VIPS[0], CONTROL_PROTOCOL, b"another address");
        to(NODE[0], CONTROL_PROTOCOL, b"this");
        let mut packet = [0; 64];
        let mut len = 0;
        wait_until("it comes", || {
            let flags = rustix::net::RecvFlags::DONTWAIT;
            let received = rustix::net::recv(&socket, &mut packet, flags);
            len = received.map_or(0, |(_, len)| len);
            len > 0
        });
        assert_eq!(&packet[20..len], b"this", "the first, after its IPv4 header");
    });
}

/// Measures round trips to netguard, one at a time.
#[test]
#[ignore = "prints figures of this machine"]
fn figures() {
    in_bed(|bed| {
        const MOVES: usize = 2_000;
        let mut guard = bed.guard();
        let listener = TcpListener::bind(services()[0]).unwrap();
        let it = bed.connect(&listener);
        let receiver = SocketId { client: "10.7.0.2:1".parse().unwrap(), ..it.id };
        let own = || Some(it.server.as_fd());
        let mut took = [(); 4].map(|()| Vec::with_capacity(MOVES));
        for _ in 0..MOVES {
            let orders = [
                (HandoffOrder::Freeze(it.id), own()),
                (HandoffOrder::Thaw(it.id), own()),
                (HandoffOrder::Create(receiver), None),
                (HandoffOrder::Forget(receiver), None),
            ];
            for ((order, descriptor), took) in orders.into_iter().zip(&mut took) {
                let began = Instant::now();
                drop(ask(&mut guard, order, descriptor));
                took.push(began.elapsed());
            }
        }
        for (name, mut took) in ["Freeze", "Thaw", "Create", "Forget"].into_iter().zip(took) {
            took.sort_unstable();
            let [median, worst] = [took[MOVES / 2], took[MOVES * 99 / 100]];
            println!("{name}: {median:?} median, {worst:?} of 99 %");
        }
    });
}
