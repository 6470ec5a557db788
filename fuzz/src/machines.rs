//! The targets for messages between machines of a cluster, and their seeds: sealed datagrams, parts,
//! messages.

use std::sync::LazyLock;

use skep_units::Now;
use skep_wire::delta::TableDelta;
use skep_wire::limits::PARTIALS_MAX;
use skep_wire::message::{FlowBatch, FlowsTaken, Message, Name, NodeHeartbeat, NodeLoad};
use skep_wire::parts::{Reassembler, split};
use skep_wire::seal::{Endpoint, Key, OpenedDatagram, PeerId};
use skep_wire::steer::ForwardingState;
use skep_wire::table::{Share, Table, TableNode, TableVersion};

/// The number of authentic datagrams; all others must be refused.
const AUTHENTIC: u64 = 60;

/// Any datagram: accepted only if it is one that was sealed.
pub fn datagram(data: &[u8]) {
    static SEALED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(datagrams);
    let mut receiver = endpoint("receiver");
    let opened = receiver.open(Now(0), data);
    let is_authentic = SEALED.iter().any(|datagram| datagram == data);
    // The sender has not exchanged hellos with the receiver, so not even these are live.
    let is_hello =
        matches!(opened, Ok(OpenedDatagram::Hello { from }) if from == PeerId::of("sender"));
    assert_eq!(is_hello, is_authentic, "{opened:?}");
    assert_eq!(receiver.take_answer().is_some(), is_authentic);
    assert!(receiver.open(Now(0), data).is_err(), "heard twice");
}

/// Messages that a machine with the key may send: bodies, each preceded by its length, and the same bytes as
/// one message.
pub fn message(data: &[u8]) {
    check_message(data);
    let mut reassembler = Reassembler::default();
    let mut rest = data;
    while let Some((length, behind)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(behind.len());
        let (body, next) = behind.split_at(length);
        if let Ok(Some(whole)) = reassembler.take(PeerId(1), body) {
            check_message(&whole);
            let parts = split(&whole).unwrap_or_default();
            let mut again = Reassembler::default();
            let last = parts.iter().filter_map(|part| again.take(PeerId(2), part).ok()).last();
            assert_eq!(last, Some(Some(whole)));
        }
        assert!(reassembler.partials() <= PARTIALS_MAX);
        rest = next;
    }
}

/// A decoded message stays the same when it is encoded again, and a delta results in a table or an error.
fn check_message(data: &[u8]) {
    if let Ok(message) = Message::decode(data) {
        if let Message::TableDelta(delta) = &message
            && let Ok(table) = delta.apply(&Table::default())
        {
            assert_eq!(table.version, delta.version);
        }
        assert_eq!(Message::decode(&message.encode()), Ok(message));
    }
}

/// Authentic datagrams.
pub fn datagrams() -> Vec<Vec<u8>> {
    let mut sender = endpoint("sender");
    let receiver = PeerId::of("receiver");
    let body = |number: u64| vec![number as u8; number as usize * 3];
    (0..AUTHENTIC).filter_map(|number| sender.seal(receiver, &body(number)).ok()).collect()
}

/// Messages, as a whole and as their parts in several orders.
pub fn messages() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = (0..20).flat_map(kinds).map(|it| it.encode()).collect();
    let framed: Vec<Vec<u8>> = seeds.iter().map(|bytes| frame(bytes)).collect();
    seeds.extend(framed);
    seeds
}

/// One message of each kind that contains something bounded.
fn kinds(number: u16) -> [Message; 5] {
    let node = |index: u16| TableNode {
        index,
        name: Name::new("node").unwrap_or_default(),
        address: ([10, 0, 0, 1], 80).into(),
        weight: 1,
        state: ForwardingState::Up,
        is_drained: false,
        mac: [2; 6],
        mtu: 1_500,
    };
    let version = TableVersion { epoch: 8, generation: u64::from(number) };
    let shares = (0..number * 5).map(|index| Share { index, weight: 1 }).collect();
    let nodes = (0..number * 5).map(node).collect();
    let heartbeat = NodeHeartbeat {
        name: Name::new("n1").unwrap_or_default(),
        index: Some(number),
        mac: [2; 6],
        mtu: 1_500,
        addresses: vec![[10, 0, 0, 1].into(); usize::from(number)],
        services: vec![number.into(); usize::from(number)],
        table: version,
        hears: None,
        is_leaving: false,
        load: NodeLoad::default(),
    };
    let table = Table { version, nodes, memberships: vec![shares], ..Table::default() };
    let delta = TableDelta::between(&Table::default(), &table);
    let dump = u64::from(number);
    let flows = FlowBatch { dump, number: 0, is_first: true, is_last: false, flows: Vec::new() };
    [
        Message::Table(table),
        Message::TableDelta(delta),
        Message::Node(heartbeat),
        Message::Flows(flows),
        Message::FlowsTaken(FlowsTaken { dump, number: 1 }),
    ]
}

/// The parts of a message in reverse order, each preceded by its length.
fn frame(message: &[u8]) -> Vec<u8> {
    let mut framed = Vec::new();
    for body in split(message).unwrap_or_default().iter().rev() {
        framed.extend_from_slice(&(body.len() as u16).to_le_bytes());
        framed.extend_from_slice(body);
    }
    framed
}

#[expect(clippy::expect_used, reason = "the text is long enough")]
fn endpoint(name: &str) -> Endpoint {
    let key = Key::from_text("a secret for fuzzing, long enough").expect("32 characters");
    Endpoint::new(&key, "hive", name, 1_000)
}
