//! Targets for handoffs, with structured seeds: LCCP messages, and the information that they carry.

use skep_wire::handoff::fragments::{Assembly, cut};
use skep_wire::handoff::lccp::{Lccp, LccpCommand, MovedFlow, QueryKey, RefuseCause};
use skep_wire::handoff::tcp::{TcpOptions, TcpState, TcpWindow, WindowScales};
use skep_wire::handoff::{HandoffId, HandoffInfo, SocketId};
use skep_wire::seal::BODY_BYTES_MAX;

/// A message has a unique encoding; the payload of an offer is handoff information with a unique encoding, or
/// invalid.
pub fn lccp(data: &[u8]) {
    check_info(data);
    let Ok(message) = Lccp::decode(data) else { return };
    assert_eq!(message.encode(), data, "{message:?}");
    if let LccpCommand::Offer(_, fragment) = &message.command {
        let mut assembly = Assembly::new(fragment.count);
        let whole = assembly.take(fragment);
        assert_eq!(whole.is_some(), fragment.count == 1, "{fragment:?}");
        check_info(&whole.unwrap_or_default());
    }
}

fn check_info(data: &[u8]) {
    if let Ok(info) = HandoffInfo::decode(data) {
        assert!(info.is_sound(), "{info:?}");
        assert_eq!(info.encode(), data);
    }
}

/// Messages of all kinds, and handoff information.
pub fn seeds() -> Vec<Vec<u8>> {
    let sockets = [("10.0.0.9:50000", "10.0.0.80:80"), ("[2001:db8::9]:1", "[2001:db8::80]:443")];
    let sockets = sockets
        .iter()
        .filter_map(|(client, server)| SocketId::new(client.parse().ok()?, server.parse().ok()?));
    let infos = [0, 4, 400, 3_000].map(|received| info(received).encode());
    let mut seeds: Vec<Vec<u8>> = sockets
        .flat_map(|socket| infos.iter().flat_map(move |info| messages(socket, info)))
        .collect();
    seeds.extend(infos.clone());
    seeds
}

fn messages(socket: SocketId, info: &[u8]) -> Vec<Vec<u8>> {
    let flow = MovedFlow { socket, node: 7, moves: 1 };
    let offers = cut(info).into_iter().map(|fragment| LccpCommand::Offer(socket, fragment));
    let query = QueryKey::new(b"example.org", b"/a?b").map(|key| LccpCommand::Query(socket, key));
    let others = [
        LccpCommand::Ready(socket),
        LccpCommand::Refuse(socket, RefuseCause::Full),
        LccpCommand::Go(socket),
        LccpCommand::Done(socket),
        LccpCommand::Gone(socket),
        LccpCommand::Abort(socket),
        LccpCommand::Aborted(socket),
        LccpCommand::Moved(vec![flow; 3]),
        LccpCommand::MovedTaken,
        LccpCommand::Decision(socket, Some(7)),
    ];
    let id = HandoffId { incarnation: 1_000, number: 7 };
    let encode = |command: LccpCommand| Lccp { id, command }.encode();
    let encoded: Vec<_> = offers.chain(query).chain(others).map(encode).collect();
    assert!(encoded.iter().all(|bytes| bytes.len() <= BODY_BYTES_MAX));
    encoded
}

fn info(received: usize) -> HandoffInfo {
    let window = TcpWindow {
        send_updated_at: 1,
        send: 65_535,
        send_max: 65_535,
        receive: 65_535,
        receive_updated_at: 1,
    };
    let options = TcpOptions {
        sack: true,
        window_scales: Some(WindowScales { send: 7, receive: 7 }),
        timestamp: Some(9),
    };
    let tcp = TcpState {
        send_next: 1,
        receive_next: 1,
        mss_clamp: 1_460,
        options,
        window,
        congestion_window: 10,
        rtt_us: 300,
        received: vec![b'x'; received],
    };
    HandoffInfo { tcp, read_ahead: b"GET / HTTP/1.1\r\n".to_vec(), moves: 1, accepted_by: 0 }
}
