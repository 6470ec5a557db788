//! The model by itself: balance, the guard's windows, answers that check, and
//! packets that find their owner in the row. That it is the programs' model
//! is shown in `bpf/tests`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use skep_wire::steer::{
    DatapathNode, DatapathService, ForwardingState, Measure, NO_NODE, NodeIndex, Protocol,
    ROW_NODES, ROWS, Row, Verdict,
};

use crate::limits::WINDOW_NS;
use crate::{
    FlowKey, LoadEntry, Mac, Move, MoveKey, Outcome, PacketAction, Settings, Steerer, Tables,
    hand_on, internet_checksum, row_of, steer,
};

const VIP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
const VIP6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x80);
const CLIENT: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const OWN: Mac = [2, 0, 0, 0, 0, 1];
const ROUTER: Mac = [2, 0, 0, 0, 0, 0xfe];
const IP_AT: usize = 14;

const SYN: u8 = 2;
const ACK: u8 = 16;

fn mac(index: NodeIndex) -> Mac {
    [2, 0, 0, 1, 0, index as u8]
}

/// Nodes that are up, and a service with this measure and rows for each address.
fn tables(nodes: NodeIndex, measure: Measure, choices: u8, rows: Vec<Row>) -> Tables {
    let mut tables = Tables {
        settings: Settings {
            hash_seed: 7,
            own_device_index: 3,
            own_mac: OWN,
            ..Settings::default()
        },
        virtual_addresses: [VIP.to_ipv6_mapped(), VIP6].into(),
        ..Tables::default()
    };
    for index in 0..nodes {
        let (mac, state) = (mac(index), ForwardingState::Up);
        let node = DatapathNode { index, mac, device_index: 3, mtu: 1400, state, is_local: false };
        tables.nodes.insert(index, node);
        tables.steerers.insert(mac, Steerer::Node);
        tables.loads.insert((0, index), LoadEntry { weight: 1, ..LoadEntry::default() });
    }
    let rows = std::sync::Arc::new(rows);
    for (id, ip) in [(0, IpAddr::from(VIP)), (1, IpAddr::from(VIP6))] {
        let address = SocketAddr::new(ip, 80);
        let (protocol, by_address) = (Protocol::Tcp, false);
        tables.services.push(DatapathService {
            id,
            address,
            protocol,
            choices,
            measure,
            by_address,
        });
        tables.rows.insert(id, rows.clone());
    }
    tables
}

fn row(nodes: &[NodeIndex]) -> Row {
    let mut row = [NO_NODE; ROW_NODES];
    row[..nodes.len()].copy_from_slice(nodes);
    Row(row)
}

/// A generator of numbers that look random: Weyl's sequence, mixed.
fn numbers() -> impl FnMut() -> u64 {
    let mut state = 0u64;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 29)
    }
}

/// Rows of four different nodes of eight.
fn rows_of_four() -> Vec<Row> {
    let mut next = numbers();
    let mut one = || {
        let mut nodes: Vec<NodeIndex> = (0..8).collect();
        for place in 0..4 {
            nodes.swap(place, place + next() as usize % (8 - place));
        }
        row(&nodes[..4])
    };
    (0..ROWS).map(|_| one()).collect()
}

fn frame_of(client: Ipv4Addr, port: u16, flags: u8, payload: usize) -> Vec<u8> {
    let mut frame = [&OWN[..], &ROUTER, &[8, 0, 0x45, 0]].concat();
    frame.extend((40 + payload as u16).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 60, 6, 0, 0]);
    frame.extend(client.octets());
    frame.extend(VIP.octets());
    let checksum = internet_checksum(&[&frame[IP_AT..IP_AT + 20]]);
    frame[IP_AT + 10..IP_AT + 12].copy_from_slice(&checksum.to_be_bytes());
    frame.extend(tcp(port, flags));
    frame.resize(frame.len() + payload, 0x5a);
    frame
}

fn frame6_of(client: Ipv6Addr, port: u16, flags: u8, payload: usize) -> Vec<u8> {
    let mut frame = [&OWN[..], &ROUTER, &[0x86, 0xdd, 0x60, 0, 0, 0]].concat();
    frame.extend((20 + payload as u16).to_be_bytes());
    frame.extend([6, 60]);
    frame.extend(client.octets());
    frame.extend(VIP6.octets());
    frame.extend(tcp(port, flags));
    frame.resize(frame.len() + payload, 0x5a);
    frame
}

fn tcp(port: u16, flags: u8) -> Vec<u8> {
    let mut segment = Vec::from(port.to_be_bytes());
    segment.extend([0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    segment
}

/// Flows that each node got of so many from different clients.
fn spread(tables: &mut Tables, flows: u32) -> Vec<u64> {
    for flow in 0..flows {
        let client = Ipv4Addr::from_bits(0x0a00_0000 + flow / 7);
        let outcome = steer(tables, 0, &frame_of(client, 1024 + (flow % 7) as u16, SYN, 0));
        assert_eq!(outcome.verdict, Verdict::ForwardNew);
    }
    (0..8).map(|node| tables.assigned.get(&(0, node)).copied().unwrap_or(0)).collect()
}

#[test]
fn turns_of_four_keep_eight_nodes_level() {
    let mut tables = tables(8, Measure::Turns, 4, rows_of_four());
    let flows = spread(&mut tables, 100_000);
    let busiest = *flows.iter().max().unwrap() as f64;
    assert!(busiest <= 1.05 * 100_000.0 / 8.0, "{flows:?}");
}

#[test]
fn turns_follow_weights() {
    let mut tables = tables(8, Measure::Turns, 4, rows_of_four());
    for node in 0..4 {
        tables.loads.get_mut(&(0, node)).unwrap().weight = 3;
    }
    let flows = spread(&mut tables, 100_000);
    for (node, &got) in flows.iter().enumerate() {
        let share = if node < 4 { 3.0 } else { 1.0 } / 16.0;
        let wanted = 100_000.0 * share;
        assert!((got as f64 - wanted).abs() <= 0.05 * wanted, "{node}: {flows:?}");
    }
}

#[test]
fn the_hash_spreads_neighbours_and_keeps_a_sticky_client() {
    let rows = (0..ROWS).map(|place| row(&[(place % 8) as NodeIndex])).collect();
    let mut tables = tables(8, Measure::First, 1, rows);
    let flows = spread(&mut tables, 100_000);
    let busiest = *flows.iter().max().unwrap() as f64;
    assert!(busiest <= 1.05 * 100_000.0 / 8.0, "{flows:?}");

    let mut sticky = tables.services[0];
    sticky.by_address = true;
    let key = |port| FlowKey { client: CLIENT.to_ipv6_mapped(), port, service: 0 };
    let places: Vec<_> = (1..100).map(|port| row_of(&key(port), &sticky, 7)).collect();
    assert!(places.iter().all(|&place| place == places[0] && place < ROWS));
    assert_ne!(row_of(&key(1), &sticky, 8), places[0], "another seed, another row");
}

#[test]
fn the_guard_opens_again_with_the_next_window() {
    let mut tables = tables(1, Measure::First, 1, vec![row(&[0]); ROWS]);
    tables.settings.new_flows_max = 2;
    let verdict = |tables: &mut Tables, now, port| {
        steer(tables, now, &frame_of(CLIENT, port, SYN, 0)).verdict
    };
    let began = 5 * WINDOW_NS;
    assert_eq!(verdict(&mut tables, began, 1), Verdict::ForwardNew);
    assert_eq!(verdict(&mut tables, began + 1, 2), Verdict::ForwardNew);
    assert_eq!(verdict(&mut tables, began + 2, 3), Verdict::ForwardGuarded);
    assert_eq!(verdict(&mut tables, began + WINDOW_NS - 1, 3), Verdict::ForwardGuarded);
    assert_eq!(verdict(&mut tables, began + WINDOW_NS, 3), Verdict::ForwardNew);
    assert_eq!(tables.flows.len(), 3, "what was guarded is not stored");
    assert_eq!(tables.assigned[&(0, 0)], 3);
    // Of a flow that is known, no rate is asked.
    assert_eq!(verdict(&mut tables, began + WINDOW_NS, 1), Verdict::ForwardFlow);
}

#[test]
fn a_source_over_its_rate_does_not_use_up_that_of_all() {
    let mut tables = tables(1, Measure::First, 1, vec![row(&[0]); ROWS]);
    tables.settings.new_flows_max = 5;
    tables.settings.new_flows_per_source_max = 2;
    let now = WINDOW_NS;
    let mut guarded = 0;
    for port in 1..=100 {
        let outcome = steer(&mut tables, now, &frame_of(CLIENT, port, SYN, 0));
        guarded += u32::from(outcome.verdict == Verdict::ForwardGuarded);
    }
    assert_eq!((guarded, tables.total.new_flows), (98, 2));
    let other = steer(&mut tables, now, &frame_of(Ipv4Addr::new(10, 0, 0, 1), 1, SYN, 0));
    assert_eq!(other.verdict, Verdict::ForwardNew);
}

#[test]
fn over_the_rate_of_all_no_source_is_noted() {
    let mut tables = tables(1, Measure::First, 1, vec![row(&[0]); ROWS]);
    tables.settings.new_flows_max = 3;
    tables.settings.new_flows_per_source_max = 2;
    for client in 0..1000 {
        let client = Ipv4Addr::from_bits(0x0a00_0000 + client);
        steer(&mut tables, WINDOW_NS, &frame_of(client, 1, SYN, 0));
    }
    assert_eq!(tables.sources.len(), 3);
    assert_eq!(tables.counters.packets(Verdict::ForwardGuarded), 997);
}

#[test]
fn a_source_of_ipv6_is_a_64() {
    let mut tables = tables(1, Measure::First, 1, vec![row(&[0]); ROWS]);
    tables.settings.new_flows_per_source_max = 1;
    let verdict = |tables: &mut Tables, client: &str| {
        steer(tables, WINDOW_NS, &frame6_of(client.parse().unwrap(), 1, SYN, 0)).verdict
    };
    assert_eq!(verdict(&mut tables, "2001:db8:1:2:3::4"), Verdict::ForwardNew);
    assert_eq!(verdict(&mut tables, "2001:db8:1:2:ffff::9"), Verdict::ForwardGuarded);
    assert_eq!(verdict(&mut tables, "2001:db8:1:3::4"), Verdict::ForwardNew);
}

#[test]
fn too_big_tells_the_sender_and_checks() {
    let mut tables = tables(1, Measure::First, 1, vec![row(&[0]); ROWS]);
    let outcome = steer(&mut tables, 0, &frame_of(CLIENT, 9, ACK, 1400));
    assert_eq!(outcome.verdict, Verdict::AnswerTooBig);
    assert_eq!(outcome.action, PacketAction::Transmit { device_index: 3 });
    let answer = &outcome.frame;
    assert_eq!(answer[..12], [ROUTER, OWN].concat());
    assert_eq!(internet_checksum(&[&answer[IP_AT..IP_AT + 20]]), 0);
    assert_eq!(internet_checksum(&[&answer[IP_AT + 20..]]), 0);
    assert_eq!(answer[IP_AT + 12..IP_AT + 20], [VIP.octets(), CLIENT.octets()].concat());
    assert_eq!(answer[IP_AT + 20..IP_AT + 22], [3, 4]);
    assert_eq!(answer[IP_AT + 26..IP_AT + 28], 1400u16.to_be_bytes());

    let client = "2001:db8:9::1".parse().unwrap();
    let outcome = steer(&mut tables, 0, &frame6_of(client, 9, ACK, 1400));
    assert_eq!(outcome.verdict, Verdict::AnswerTooBig);
    let answer = &outcome.frame[IP_AT..];
    let pseudo = [0, 0, 0, (answer.len() - 40) as u8, 0, 0, 0, 58];
    assert_eq!(internet_checksum(&[&answer[8..40], &pseudo, &answer[40..]]), 0);
    assert_eq!(answer[44..48], 1400u32.to_be_bytes());
}

/// Walks a packet through nodes without the connection, from where the
/// dispatcher has sent it, until somebody keeps it.
fn walk(tables: &Tables, first: NodeIndex, owner: NodeIndex) -> (NodeIndex, Verdict, usize) {
    walk_by(|_| tables.clone(), first, owner)
}

/// The same where each node has tables of its own.
fn walk_by(
    tables_of: impl Fn(NodeIndex) -> Tables,
    first: NodeIndex,
    owner: NodeIndex,
) -> (NodeIndex, Verdict, usize) {
    let mut frame = frame_of(CLIENT, 9, ACK, 0);
    let mut here = first;
    for hops in 0.. {
        let mut tables = tables_of(here);
        tables.settings.own_mac = mac(here);
        tables.settings.own_node = here;
        frame[..6].copy_from_slice(&mac(here));
        let Outcome { verdict, frame: out, .. } = hand_on(&mut tables, &frame, |_| here == owner);
        assert_eq!(internet_checksum(&[&out[IP_AT..IP_AT + 20]]), 0, "TTL and checksum agree");
        if verdict != Verdict::NodeHandOn && verdict != Verdict::NodeMoved {
            return (here, verdict, hops);
        }
        here = out[5].into();
        frame = out;
    }
    unreachable!("a walk ends")
}

#[test]
fn second_chances_find_the_owner_wherever_they_begin() {
    let nodes = [4, 2, 7, 0, 5];
    let mut tables = tables(8, Measure::First, 1, vec![row(&nodes); ROWS]);
    tables.nodes.get_mut(&2).unwrap().state = ForwardingState::Draining;
    for first in 0..8 {
        for owner in nodes {
            let (found, verdict, hops) = walk(&tables, first, owner);
            assert_eq!((found, verdict), (owner, Verdict::NodeOwn), "from {first}");
            assert!(hops <= nodes.len());
        }
        let nobody = walk(&tables, first, 200);
        assert_eq!(nobody.1, Verdict::NodeLast, "from {first}");
        assert!(nobody.2 <= nodes.len());
    }
    // A node that is down is passed over.
    tables.nodes.get_mut(&7).unwrap().state = ForwardingState::Down;
    assert_eq!(walk(&tables, 4, 5).0, 5);
}

/// A table comes to one machine earlier than to another.
#[test]
fn second_chances_find_the_owner_while_tables_spread() {
    const NODES: NodeIndex = 6;
    let mut next = numbers();
    let mut tables = tables(NODES, Measure::First, 1, vec![]);
    // A seed by which the flow has one of the first rows: the others are not needed.
    let key = FlowKey { client: CLIENT.to_ipv6_mapped(), port: 9, service: 0 };
    let place = |seed: &u64| row_of(&key, &tables.services[0], *seed);
    tables.settings.hash_seed = (0..).find(|seed| place(seed) < 16).unwrap();
    for _ in 0..20_000 {
        // Who took the flow's row under each membership, the first one first.
        let owners: Vec<_> = (0..2 + next() % 5).map(|_| (next() % 6) as NodeIndex).collect();
        let began = next() as usize % owners.len();
        let owner = owners[began];
        // Each machine has some table since; the last is the dispatcher's.
        let mut since = || began + next() as usize % (owners.len() - began);
        let tables_at: Vec<usize> = (0..=NODES).map(|_| since()).collect();
        let row_at = |machine: NodeIndex| row_under(&owners[..=tables_at[usize::from(machine)]]);
        let tables_of = |node| {
            let mut tables = tables.clone();
            tables.rows.insert(0, vec![row_at(node); 16].into());
            tables
        };
        let (found, verdict, hops) = walk_by(tables_of, row_at(NODES).0[0], owner);
        let what = format!("{owners:?}, tables {tables_at:?}, owner {owner}");
        assert_eq!((found, verdict), (owner, Verdict::NodeOwn), "{what}");
        assert!(hops <= usize::from(NODES), "{what}: {hops} hops");
    }
}

/// Tables of nodes of which each redirects the connection of `walk` so.
fn moved_by(tables: &Tables, moves: &[Option<Move>], node: NodeIndex) -> Tables {
    let mut tables = tables.clone();
    tables.settings.has_moves = true;
    let (client, vip) = (CLIENT.to_ipv6_mapped(), VIP.to_ipv6_mapped());
    let key = MoveKey { client, vip, client_port: 9, vip_port: 80 };
    tables.moves.extend(moves[usize::from(node)].map(|it| (key, it)));
    tables
}

/// However often a connection was moved, and in whatever order.
#[test]
fn moved_packets_find_the_owner_by_any_chain() {
    const NODES: NodeIndex = 6;
    let mut next = numbers();
    let rows = || vec![row(&[3, 1, 0]); ROWS];
    let tables = tables(NODES, Measure::First, 1, rows());
    for _ in 0..2_000 {
        let mut chain: Vec<NodeIndex> = (0..NODES).collect();
        for place in 0..chain.len() {
            let left = chain.len() - place;
            chain.swap(place, place + next() as usize % left);
        }
        let moves_made = next() as usize % chain.len();
        let mut moves = vec![None; usize::from(NODES)];
        for pair in chain[..=moves_made].windows(2) {
            moves[usize::from(pair[0])] = Some(Move::Redirect(pair[1]));
        }
        let owner = chain[moves_made];
        let (found, verdict, hops) =
            walk_by(|node| moved_by(&tables, &moves, node), chain[0], owner);
        assert_eq!((found, verdict), (owner, Verdict::NodeOwn), "{chain:?}, {moves:?}");
        assert_eq!(hops, moves_made);
    }
}

/// What nodes say of a connection that nobody has may be anything: no packet goes on for ever, and where
/// two point at each other it ends at a kernel that refuses it.
#[test]
fn moved_packets_end() {
    const NODES: NodeIndex = 4;
    let mut next = numbers();
    let tables = tables(NODES, Measure::First, 1, vec![row(&[0, 1]); ROWS]);
    for _ in 0..5_000 {
        let mut fate = || match next() % 6 {
            0 => None,
            1 => Some(Move::Blocked),
            _ => Some(Move::Redirect((next() % u64::from(NODES)) as NodeIndex)),
        };
        let moves: Vec<_> = (0..NODES).map(|_| fate()).collect();
        let (_, verdict, hops) = walk_by(|node| moved_by(&tables, &moves, node), 0, 200);
        let ends = [Verdict::NodeLast, Verdict::NodeBlocked, Verdict::DropLoop];
        assert!(ends.contains(&verdict), "{moves:?}: {verdict:?}");
        assert!(hops < 60, "a frame begins with a TTL of 60");
    }
    let moves = [1, 0].map(|node| Some(Move::Redirect(node)));
    let ends = walk_by(|node| moved_by(&tables, &moves, node), 0, 200);
    assert_eq!(ends, (1, Verdict::NodeLast, 1));
}

/// The row of a flow whose owners were these, the present one last.
fn row_under(owners: &[NodeIndex]) -> Row {
    let mut nodes = Vec::new();
    for owner in owners.iter().rev() {
        if !nodes.contains(owner) {
            nodes.push(*owner);
        }
    }
    row(&nodes)
}

#[test]
fn any_bytes_are_a_frame() {
    let mut next = numbers();
    let mut tables = tables(8, Measure::Turns, 4, rows_of_four());
    for _ in 0..20_000 {
        let mut frame: Vec<u8> = (0..next() % 120).map(|_| next() as u8).collect();
        if let Some(head) = frame.get_mut(..16) {
            head[..6].copy_from_slice(&OWN);
            head[12..14].copy_from_slice(if next().is_multiple_of(2) {
                &[8, 0]
            } else {
                &[0x86, 0xdd]
            });
        }
        let outcome = steer(&mut tables, next(), &frame);
        hand_on(&mut tables, &frame, |_| false);
        assert!(outcome.frame.len() <= frame.len().max(130));
    }
}
