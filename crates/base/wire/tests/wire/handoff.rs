//! LCCP: encoded messages decode to the same, nothing else decodes, and layouts are pinned.

use proptest::prelude::*;
use skep_units::Rng;
use skep_wire::handoff::fragments::{Assembly, Fragment, cut};
use skep_wire::handoff::lccp::{
    Lccp, LccpCommand, MovedFlow, NotLccp, QueryKey, Receptor, RefuseCause,
};
use skep_wire::handoff::tcp::{TcpOptions, TcpState, TcpWindow, WindowScales};
use skep_wire::handoff::{HandoffId, HandoffInfo, NotAnInfo, SocketId};
use skep_wire::limits::{
    HANDOFF_FRAGMENT_BYTES, HANDOFF_FRAGMENTS_MAX, HANDOFF_INFO_HEAD_BYTES,
    HANDOFF_QUEUE_BYTES_MAX, MOVED_FLOWS_MAX, MOVES_MAX, QUERY_BYTES_MAX,
};
use skep_wire::seal::BODY_BYTES_MAX;
use skep_wire::steer::NODES_MAX;

fn socket4() -> SocketId {
    SocketId::new("192.168.7.9:50000".parse().unwrap(), "192.168.7.80:80".parse().unwrap()).unwrap()
}

fn socket6() -> SocketId {
    let client = "[2001:db8::9]:65535".parse().unwrap();
    SocketId::new(client, "[2001:db8::80]:443".parse().unwrap()).unwrap()
}

fn info(received: usize, read_ahead: usize) -> HandoffInfo {
    let window = TcpWindow {
        send_updated_at: 0x21,
        send: 0x22,
        send_max: 0x23,
        receive: 0x24,
        receive_updated_at: 0x25,
    };
    let options = TcpOptions {
        sack: true,
        window_scales: Some(WindowScales { send: 7, receive: 14 }),
        timestamp: Some(0xa1a2_a3a4),
    };
    let tcp = TcpState {
        send_next: 0x0102_0304,
        receive_next: 0x1112_1314,
        mss_clamp: 1_460,
        options,
        window,
        congestion_window: 10,
        rtt_us: 300,
        received: (0..received).map(|at| at as u8).collect(),
    };
    HandoffInfo { tcp, read_ahead: vec![b'G'; read_ahead], moves: 1, accepted_by: 3 }
}

fn message(command: LccpCommand) -> Lccp {
    Lccp { id: HandoffId { incarnation: 0x0102_0304_0506, number: 9 }, command }
}

fn key(host: usize, target: usize) -> QueryKey {
    QueryKey::new(&vec![b'h'; host], &vec![b'/'; target]).unwrap()
}

fn all() -> Vec<Lccp> {
    let whole = cut(&info(HANDOFF_QUEUE_BYTES_MAX, 0).encode());
    let offers = whole.into_iter().map(|fragment| LccpCommand::Offer(socket6(), fragment));
    let refusals = RefuseCause::ALL.map(|cause| LccpCommand::Refuse(socket4(), cause));
    let flow = MovedFlow { socket: socket6(), node: NODES_MAX as u16 - 1, moves: MOVES_MAX };
    let others = [
        LccpCommand::Offer(socket4(), cut(&info(0, 400).encode()).remove(0)),
        LccpCommand::Ready(socket6()),
        LccpCommand::Go(socket4()),
        LccpCommand::Done(socket4()),
        LccpCommand::Gone(socket6()),
        LccpCommand::Abort(socket4()),
        LccpCommand::Aborted(socket6()),
        LccpCommand::Moved(vec![flow; MOVED_FLOWS_MAX]),
        LccpCommand::Moved(vec![MovedFlow { socket: socket4(), node: 0, moves: 1 }]),
        LccpCommand::Moved(Vec::new()),
        LccpCommand::MovedTaken,
        LccpCommand::Query(socket6(), key(20, QUERY_BYTES_MAX - 20)),
        LccpCommand::Query(socket4(), key(0, 1)),
        LccpCommand::Decision(socket4(), Some(7)),
        LccpCommand::Decision(socket6(), None),
    ];
    offers.chain(refusals).chain(others).map(message).collect()
}

#[test]
fn what_is_written_is_read_again_and_fits_a_datagram() {
    for message in all() {
        let bytes = message.encode();
        assert!(bytes.len() <= BODY_BYTES_MAX, "{} bytes of {message:?}", bytes.len());
        assert_eq!(Lccp::decode(&bytes), Ok(message));
    }
}

#[test]
fn a_message_cut_short_or_with_something_behind_it_is_another_or_none() {
    for message in all() {
        let bytes = message.encode();
        for end in 0..bytes.len() {
            let read = Lccp::decode(&bytes[..end]);
            // A shorter last fragment, or a shorter target, is valid, too: the seal protects the
            // length.
            let may_be_shorter =
                matches!(message.command, LccpCommand::Offer(..) | LccpCommand::Query(..));
            assert!(read == Err(NotLccp) || may_be_shorter, "{end} bytes of {message:?}: {read:?}");
        }
        let mut longer = bytes;
        longer.push(0);
        assert_ne!(Lccp::decode(&longer), Ok(message));
    }
}

#[test]
fn layouts_are_pinned_because_machines_must_agree() {
    let head = [
        1, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, // receptor, command, data
        6, 5, 4, 3, 2, 1, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, // the handoff
    ];
    let socket = [4, 192, 168, 7, 9, 0x50, 0xc3, 192, 168, 7, 80, 80, 0];
    assert_eq!(message(LccpCommand::Go(socket4())).encode(), [head.as_slice(), &socket].concat());
    // For IPv4, the socket id is the paper's 96 bits, after the family.
    assert_eq!(socket.len() * 8, 8 + 96);
    let bytes = message(LccpCommand::Ready(socket6())).encode();
    assert_eq!(bytes.len(), 28 + 37);
    assert_eq!(bytes[..8], [2, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!((bytes[28], bytes[29], bytes[44], &bytes[45..47]), (6, 0x20, 9, &[255, 255][..]));

    let numbers = [
        (LccpCommand::Refuse(socket4(), RefuseCause::Late), [2, 3, 6]),
        (LccpCommand::Done(socket4()), [2, 5, 0]),
        (LccpCommand::Gone(socket4()), [2, 6, 0]),
        (LccpCommand::Abort(socket4()), [1, 7, 0]),
        (LccpCommand::Aborted(socket4()), [2, 8, 0]),
        (LccpCommand::Moved(vec![MovedFlow { socket: socket4(), node: 5, moves: 2 }]), [3, 9, 1]),
        (LccpCommand::MovedTaken, [4, 10, 0]),
        (LccpCommand::Query(socket4(), key(3, 7)), [3, 11, 3]),
        (LccpCommand::Decision(socket4(), Some(5)), [4, 12, 5]),
        (LccpCommand::Decision(socket4(), None), [4, 12, 0xffff]),
    ];
    for (command, expected) in numbers {
        let bytes = message(command).encode();
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!([number(0), number(4), number(8)], expected);
    }
    let moved =
        message(LccpCommand::Moved(vec![MovedFlow { socket: socket4(), node: 5, moves: 2 }]))
            .encode();
    assert_eq!(moved[28..], [&[0][..], &socket, &[5, 0, 2]].concat());
    let query =
        message(LccpCommand::Query(socket4(), QueryKey::new(b"h", b"/?a").unwrap())).encode();
    assert_eq!(query[41..], *b"h/?a");
}

#[test]
fn handoff_information_is_pinned_too() {
    let bytes = info(2, 1).encode();
    assert_eq!(bytes.len(), HANDOFF_INFO_HEAD_BYTES + 3);
    assert_eq!(bytes[..12], [4, 3, 2, 1, 0x14, 0x13, 0x12, 0x11, 0xb4, 5, 7, 7]);
    assert_eq!(bytes[12..20], [14, 1, 3, 0, 0xa4, 0xa3, 0xa2, 0xa1]);
    for (at, value) in [(20, 0x21), (24, 0x22), (28, 0x23), (32, 0x24), (36, 0x25), (40, 10)] {
        assert_eq!(bytes[at..at + 4], [value, 0, 0, 0]);
    }
    assert_eq!(bytes[44..], [0x2c, 1, 0, 0, 2, 0, 1, 0, 0, 1, b'G']);
    let plain = TcpOptions { sack: false, window_scales: None, timestamp: None };
    let mut info = info(0, 0);
    info.tcp.options = plain;
    assert_eq!(info.encode()[10..13], [0, 0, 0]);
    assert_eq!(HandoffInfo::decode(&info.encode()), Ok(info));
}

#[test]
fn information_beyond_the_bounds_is_none() {
    let good = info(10, 10).encode();
    assert!(HandoffInfo::decode(&good).is_ok());
    for (what, at, byte) in [
        ("an unknown flag", 10, 15),
        ("a scale without its flag", 10, 5),
        ("a timestamp without its flag", 10, 3),
        ("a scale that there is not", 11, 15),
        ("no move", 13, 0),
        ("too many moves", 13, MOVES_MAX + 1),
        ("no node", 15, 4),
        ("more bytes than there are", 48, 11),
        ("fewer bytes than there are", 50, 9),
    ] {
        let mut bad = good.clone();
        bad[at] = byte;
        assert_eq!(HandoffInfo::decode(&bad), Err(NotAnInfo), "{what}");
    }
    assert!(
        info(HANDOFF_QUEUE_BYTES_MAX, 0).is_sound() && info(0, HANDOFF_QUEUE_BYTES_MAX).is_sound()
    );
    assert!(!info(HANDOFF_QUEUE_BYTES_MAX, 1).is_sound());
}

#[test]
fn messages_beyond_the_bounds_are_none() {
    let changed = |command: LccpCommand, at: usize, byte: u8| {
        let mut bytes = message(command).encode();
        bytes[at] = byte;
        Lccp::decode(&bytes)
    };
    let go = || LccpCommand::Go(socket4());
    let fragment = |index, count, bytes: &[u8]| {
        LccpCommand::Offer(socket4(), Fragment { index, count, bytes: bytes.into() })
    };
    let moved = || LccpCommand::Moved(vec![MovedFlow { socket: socket4(), node: 5, moves: 2 }]);
    for (what, read) in [
        ("the receptor of another command", changed(go(), 0, Receptor::Donor as u8)),
        ("no command", changed(go(), 4, 0)),
        ("an unknown command", changed(go(), 4, 13)),
        ("data where there is none", changed(go(), 8, 1)),
        ("no number", changed(go(), 20, 0)),
        ("no family", changed(go(), 28, 5)),
        ("an unknown cause", changed(LccpCommand::Refuse(socket4(), RefuseCause::Full), 8, 8)),
        ("a node too high", changed(LccpCommand::Decision(socket4(), Some(1)), 9, 4)),
        ("a host longer than the query", changed(LccpCommand::Query(socket4(), key(1, 1)), 8, 3)),
        ("more flows than there are", changed(moved(), 8, 2)),
        ("a flow of no socket", changed(moved(), 29, 0)),
        ("a flow of a node too high", changed(moved(), 43, 4)),
        ("a flow without a move", changed(moved(), 44, 0)),
    ] {
        assert_eq!(read, Err(NotLccp), "{what}");
    }
    let full = [7; HANDOFF_FRAGMENT_BYTES];
    for command in [
        fragment(0, 0, &full),
        fragment(2, 2, &full),
        fragment(0, 2, b"short"),
        fragment(1, 2, b""),
        fragment(0, HANDOFF_FRAGMENTS_MAX as u16 + 1, &full),
    ] {
        assert_eq!(Lccp::decode(&message(command.clone()).encode()), Err(NotLccp), "{command:?}");
    }
    assert!(QueryKey::new(&[0; QUERY_BYTES_MAX], b"").is_some());
    assert_eq!(QueryKey::new(&[0; QUERY_BYTES_MAX], b"/"), None);
}

#[test]
fn a_connection_has_one_name() {
    let mapped = "[::ffff:192.168.7.9]:50000".parse().unwrap();
    let server = "[::ffff:192.168.7.80]:80".parse().unwrap();
    assert_eq!(SocketId::new(mapped, server), Some(socket4()));
    assert_eq!(SocketId::new(socket4().client, socket6().server), None);
    // A non-canonical name is rejected.
    let other = SocketId { client: mapped, server };
    assert_eq!(Lccp::decode(&message(LccpCommand::Go(other)).encode()), Err(NotLccp));
}

#[test]
fn information_comes_back_from_fragments_in_any_order() {
    let mut rng = Rng::new(1);
    for bytes in [0, 1, 1_211, 1_212, 1_213, 2_475, HANDOFF_QUEUE_BYTES_MAX] {
        let info = info(bytes, 0);
        let mut fragments = cut(&info.encode());
        assert!(fragments.len() <= HANDOFF_FRAGMENTS_MAX);
        for at in (1..fragments.len()).rev() {
            fragments.swap(at, rng.below(at as u64 + 1) as usize);
        }
        let mut assembly = Assembly::new(fragments[0].count);
        let last = fragments.pop().unwrap();
        for fragment in &fragments {
            assert_eq!(assembly.take(fragment), None);
            assert_eq!(assembly.take(fragment), None, "twice");
        }
        assert_eq!(assembly.take(&Fragment { count: last.count + 1, ..last.clone() }), None);
        let whole = assembly.take(&last).unwrap();
        assert_eq!(HandoffInfo::decode(&whole), Ok(info), "{bytes} bytes");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(message) = Lccp::decode(&bytes) {
            prop_assert_eq!(message.encode(), bytes.clone());
        }
        if let Ok(info) = HandoffInfo::decode(&bytes) {
            prop_assert_eq!(info.encode(), bytes);
        }
    }

    /// A decoded message is encoded to the same bytes: no message has two forms.
    #[test]
    fn no_change_makes_it_panic(seed: u64, which: prop::sample::Index) {
        let all = all();
        let mut bytes = which.get(&all).encode();
        let mut rng = Rng::new(seed);
        for _ in 0..=rng.below(6) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(4) {
                0 => bytes[at] ^= 1 << rng.below(8),
                1 => bytes[at] = rng.next_u64() as u8,
                2 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, rng.next_u64() as u8),
            }
        }
        if let Ok(message) = Lccp::decode(&bytes) {
            prop_assert_eq!(message.encode(), bytes);
        }
    }

    #[test]
    fn no_change_of_information_makes_it_panic(seed: u64, received in 0_usize..200) {
        let mut bytes = info(received, 30).encode();
        let mut rng = Rng::new(seed);
        for _ in 0..=rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(3) {
                0 => bytes[at] = rng.next_u64() as u8,
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, rng.next_u64() as u8),
            }
        }
        if let Ok(info) = HandoffInfo::decode(&bytes) {
            prop_assert_eq!(info.encode(), bytes);
        }
    }
}
