//! What only the kernel can show: its clock in the guard, its ring of events,

//! its sockets under the node's program.

use std::io::{Read, Write, stderr};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use skep_bpf_tests::encode::read_event;
use skep_bpf_tests::frames::*;
use skep_bpf_tests::world::*;
use skep_bpf_tests::{Kernel, Machine, Object};
use skep_steer::{Move, MoveKey, Tables};
use skep_wire::steer::{
    DatapathService, Flow, Measure, NO_NODE, Protocol, ROW_NODES, ROWS, Row, Verdict,
};
use socket2::{Domain, Socket, Type};

fn load(object: Object) -> Option<Kernel> {
    Kernel::load(object)
        .map_err(|error| drop(writeln!(stderr(), "SKIPPED: {object:?}: {error:#}")))
        .ok()
}

/// The guard of all lets so many through in each window that its own map
/// tells, and not one more. Holds however slowly this runs.
#[test]
fn new_flows_are_bounded_in_each_window() {
    const FLOWS_MAX: u64 = 3;
    for object in [Object::DispatchXdp, Object::DispatchTc] {
        let Some(mut kernel) = load(object) else { return };
        let mut tables = world();
        tables.settings.new_flows_max = FLOWS_MAX;
        kernel.set_tables(&tables).unwrap();
        let mut before = kernel.total().unwrap();
        let (mut windows, mut guarded) = (0, 0);
        for port in 1..=12 {
            let syn = tcp_frame(CLIENT.into(), port, VIP.into(), HTTP, SYN);
            let verdict = kernel.run(0, &syn).unwrap().verdict;
            let after = kernel.total().unwrap();
            windows += u64::from(after.window_began_ns != before.window_began_ns);
            match verdict {
                Verdict::ForwardNew => assert!((1..=FLOWS_MAX).contains(&after.new_flows)),
                Verdict::ForwardGuarded => {
                    assert_eq!((after, after.new_flows), (before, FLOWS_MAX));
                    guarded += 1;
                }
                other => panic!("{other:?}"),
            }
            before = after;
        }
        assert!(windows * FLOWS_MAX + guarded >= 12, "{windows} windows, {guarded} guarded");
        let flows = kernel.state().unwrap().flows.len() as u64;
        assert_eq!(flows, 12 - guarded, "guarded flows are not stored");
    }
}

/// Each source has a rate of its own; what is over it is in the model's tests,
/// where time stands still.
#[test]
fn sources_are_counted_apart() {
    let Some(mut kernel) = load(Object::DispatchXdp) else { return };
    let mut tables = world();
    tables.settings.new_flows_per_source_max = 1;
    let client = CLIENT6.segments();
    let source = Ipv6Addr::new(client[0], client[1], client[2], client[3], 0, 0, 0, 0);
    kernel.set_tables(&tables).unwrap();
    let run = |kernel: &mut Kernel, from: IpAddr, port, vip: IpAddr| {
        kernel.run(0, &tcp_frame(from, port, vip, HTTP, SYN)).unwrap().verdict
    };
    assert_eq!(run(&mut kernel, CLIENT6.into(), 1, VIP6.into()), Verdict::ForwardNew);
    assert_eq!(run(&mut kernel, CLIENT.into(), 1, VIP.into()), Verdict::ForwardNew);
    let rates = kernel.sources().unwrap();
    assert_eq!(rates.len(), 2, "of IPv6 the first 64 bits: {rates:?}");
    assert!(rates.contains_key(&source) && rates.contains_key(&CLIENT.to_ipv6_mapped()));
}

#[test]
fn new_flows_are_reported() {
    for object in [Object::DispatchXdp, Object::DispatchTc] {
        let Some(mut kernel) = load(object) else { return };
        let mut tables = world();
        tables.settings.is_streaming = true;
        kernel.set_tables(&tables).unwrap();
        let frames = [
            tcp_frame(CLIENT.into(), 4000, VIP.into(), REMOTE, SYN),
            tcp_frame(CLIENT.into(), 4000, VIP.into(), REMOTE, ACK),
            tcp_frame(CLIENT6.into(), 4001, VIP6.into(), TIGHT, SYN),
        ];
        for frame in &frames {
            kernel.run(0, frame).unwrap();
        }
        let events: Vec<_> =
            kernel.events().unwrap().iter().map(|event| read_event(event)).collect();
        let id = |ip: IpAddr, port| {
            let address = SocketAddr::new(ip, port);
            tables.services.iter().find(|service| service.address == address).unwrap().id
        };
        let wanted = [
            Flow { client: (CLIENT, 4000).into(), service: id(VIP.into(), REMOTE), node: FAR },
            Flow { client: (CLIENT6, 4001).into(), service: id(VIP6.into(), TIGHT), node: NARROW },
        ];
        assert_eq!(events, wanted);
    }
}

/// The node's program and this machine's own sockets, on loopback.
#[test]
fn a_node_keeps_what_it_has_a_socket_for() {
    let Some(mut kernel) = load(Object::Node) else { return };
    for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)] {
        let Ok(listener) = TcpListener::bind((ip, 0)) else {
            let _ = writeln!(stderr(), "SKIPPED: {ip}: no such address here");
            continue;
        };
        let service = listener.local_addr().unwrap();
        let tables = world_with(service);
        kernel.set_tables(&tables).unwrap();
        let from = |kernel: &mut Kernel, port, flags| {
            let frame = tcp_frame(ip, port, ip, service.port(), flags);
            kernel.run(0, &frame).unwrap().verdict
        };
        let client = TcpStream::connect(service).unwrap();
        let accepted = listener.accept().unwrap();
        let own = client.local_addr().unwrap().port();
        // No connection of ours comes from port 1.
        assert_eq!(from(&mut kernel, own, ACK), Verdict::NodeOwn);
        assert_eq!(from(&mut kernel, own, RST), Verdict::NodeOwn);
        assert_eq!(from(&mut kernel, 1, SYN), Verdict::NodeOwn);
        assert_eq!(
            from(&mut kernel, 1, ACK),
            Verdict::NodeHandOn,
            "a listener has no cookie for it"
        );
        assert_eq!(from(&mut kernel, 1, FIN | ACK), Verdict::NodeHandOn);
        drop((client, accepted, listener));
        assert_eq!(from(&mut kernel, 1, SYN), Verdict::NodeHandOn, "nobody listens any more");
    }
}

/// The numbers of the next segment that comes to `service` from `client`.
fn next_segment(segments: &mut Socket, client: u16, service: u16) -> (u32, u32) {
    let mut packet = [0; 128];
    loop {
        let len = segments.read(&mut packet).unwrap();
        let number = |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().unwrap());
        let ports = [client.to_be_bytes(), service.to_be_bytes()].concat();
        if len >= 40 && packet[20..24] == ports {
            return (number(24), number(28));
        }
    }
}

/// What the kernel remembers of a connection is told from a later one of the same port, by both
/// numbers; while the client has not closed, what comes behind a gap is of the earlier one, too.
#[test]
fn a_node_keeps_what_continues_an_ended_connection_and_hands_on_a_later_one() {
    const FAR_BYTES: u32 = 1 << 20;
    let Some(mut kernel) = load(Object::Node) else { return };
    let ip = Ipv4Addr::LOCALHOST;
    let listener = TcpListener::bind((ip, 0)).unwrap();
    let service = listener.local_addr().unwrap();
    kernel.set_tables(&world_with(service)).unwrap();
    let mut segments = Socket::new(Domain::IPV4, Type::RAW, Some(socket2::Protocol::TCP)).unwrap();
    segments.set_read_timeout(Some(Duration::from_secs(10))).unwrap();

    let client = TcpStream::connect(service).unwrap();
    let port = client.local_addr().unwrap().port();
    let mut fate = |end: (u32, u32), flags, ahead: u32, acknowledged: u32| {
        let frame = tcp_frame(ip.into(), port, ip.into(), service.port(), flags);
        let (sequence, acknowledged) =
            (end.0.wrapping_add(ahead), end.1.wrapping_add(acknowledged));
        kernel.run(0, &tcp_frame_at(frame, sequence, acknowledged)).unwrap().verdict
    };
    let behind = 0u32.wrapping_sub(FAR_BYTES);
    // The node closes first, and forgets all but the numbers.
    drop(listener.accept().unwrap());
    let _syn = next_segment(&mut segments, port, service.port());
    let _handshake = next_segment(&mut segments, port, service.port());
    let half = next_segment(&mut segments, port, service.port());
    for (ahead, acknowledged, wanted) in [
        (0, 0, Verdict::NodeOwn),
        (FAR_BYTES, 0, Verdict::NodeOwn),
        (FAR_BYTES + 1, 0, Verdict::NodeHandOn),
        (behind + 1, 0, Verdict::NodeOwn),
        (behind, 0, Verdict::NodeHandOn),
        (0, 1, Verdict::NodeHandOn),
        (0, behind, Verdict::NodeHandOn),
    ] {
        let found = fate(half, ACK, ahead, acknowledged);
        assert_eq!(found, wanted, "half closed: {ahead:#x} ahead, {acknowledged:#x}");
    }
    drop(client);
    let (sequence, acknowledged) = next_segment(&mut segments, port, service.port());
    let end = (sequence.wrapping_add(1), acknowledged);
    for (flags, ahead, acknowledged, wanted) in [
        (ACK, 0, 0, Verdict::NodeOwn),
        (FIN | ACK, 0u32.wrapping_sub(1), 0, Verdict::NodeOwn),
        (ACK, 1, 0, Verdict::NodeHandOn),
        (ACK, behind + 1, behind + 1, Verdict::NodeOwn),
        (ACK, behind, 0, Verdict::NodeHandOn),
        (ACK, 0, 1, Verdict::NodeHandOn),
        (RST, 0, 1, Verdict::NodeOwn),
        (RST, 1, 0, Verdict::NodeHandOn),
        (SYN, 1, 0, Verdict::NodeOwn),
    ] {
        let found = fate(end, flags, ahead, acknowledged);
        assert_eq!(found, wanted, "ended: {flags:#x}, {ahead:#x} ahead, {acknowledged:#x}");
    }
}

#[test]
fn a_node_keeps_errors_about_its_connections() {
    let Some(mut kernel) = load(Object::Node) else { return };
    let ip = Ipv4Addr::LOCALHOST;
    let listener = TcpListener::bind((ip, 0)).unwrap();
    let service = listener.local_addr().unwrap();
    kernel.set_tables(&world_with(service)).unwrap();
    let client = TcpStream::connect(service).unwrap();
    let accepted = listener.accept().unwrap();
    let about = |port| {
        let quoted = ipv4(ip, ip, TCP, tcp(service.port(), port, ACK, b""));
        in_ip(CLIENT.into(), ip.into(), ICMP, icmp(3, 4, 1400, &quoted))
    };
    let own = client.local_addr().unwrap().port();
    assert_eq!(kernel.run(0, &about(own)).unwrap().verdict, Verdict::NodeOwn);
    assert_eq!(kernel.run(0, &about(1)).unwrap().verdict, Verdict::NodeHandOn);
    drop((client, accepted));
}

/// By the clock that netguard has, so that it can tell which connection is idle.
#[test]
fn a_redirect_is_as_old_as_its_last_packet() {
    let Some(mut kernel) = load(Object::Node) else { return };
    let mut tables = world();
    tables.settings.has_moves = true;
    let (client, vip) = (CLIENT.to_ipv6_mapped(), VIP.to_ipv6_mapped());
    let key = MoveKey { client, vip, client_port: 4000, vip_port: CHAIN };
    let frame = tcp_frame(CLIENT.into(), 4000, VIP.into(), CHAIN, ACK);
    let now_ns = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    // The program's clock is that of the last tick.
    const TICK_NS: u64 = 10_000_000;
    for (fate, is_used) in [(Move::Redirect(FAR), true), (Move::Blocked, false)] {
        tables.moves.insert(key, fate);
        kernel.set_tables(&tables).unwrap();
        let before = now_ns();
        kernel.run(0, &frame).unwrap();
        let after = now_ns();
        let used_ns = kernel.moves_used_ns().unwrap();
        let wanted = if is_used { before - TICK_NS..=after } else { 0..=0 };
        assert!(used_ns.len() == 1 && wanted.contains(&used_ns[0]), "{used_ns:?}, not {wanted:?}");
    }
}

/// The usual tables and a service more, whose row has `FIRST` and this node.
fn world_with(address: SocketAddr) -> Tables {
    let mut tables = world();
    let id = tables.services.len() as u16;
    tables.virtual_addresses.insert(match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    });
    tables.services.push(DatapathService {
        id,
        address,
        protocol: Protocol::Tcp,
        choices: 1,
        measure: Measure::First,
        by_address: false,
    });
    let mut row = [NO_NODE; ROW_NODES];
    row[..2].copy_from_slice(&[FIRST, SECOND]);
    tables.rows.insert(id, vec![Row(row); ROWS].into());
    tables
}
