//! The tables that most tests begin with: one node of every kind, and a service
//! for every question.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use skep_steer::{LoadEntry, Mac, Settings, Steerer, Tables};
use skep_wire::steer::{
    DatapathNode, DatapathService, ForwardingState, Measure, NO_NODE, NodeIndex, Protocol,
    ROW_NODES, ROWS, Row,
};

/// This machine.
pub const OWN_MAC: Mac = [2, 0, 0, 0, 0, 1];
/// What clients' frames come from.
pub const ROUTER_MAC: Mac = [2, 0, 0, 0, 0, 0xfe];
/// The other dispatcher.
pub const STANDBY_MAC: Mac = [2, 0, 0, 0, 0, 2];
/// The device that this machine is attached to.
pub const OWN_DEVICE: u32 = 7;
/// Another device of this machine, by which [`FAR`] is reached.
pub const OTHER_DEVICE: u32 = 9;

/// The virtual addresses.
pub const VIP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
pub const VIP6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x80);
/// An address of nobody.
pub const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 81);
pub const ELSEWHERE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x81);
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 23);
pub const CLIENT6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0x23);

/// A node that takes new flows.
pub const FIRST: NodeIndex = 0;
/// Another.
pub const SECOND: NodeIndex = 1;
/// Behind the other device.
pub const FAR: NodeIndex = 2;
/// Keeps its flows.
pub const DRAINING: NodeIndex = 3;
/// Takes nothing.
pub const DOWN: NodeIndex = 4;
/// This machine.
pub const LOCAL: NodeIndex = 5;
/// Takes packets of at most [`NARROW_MTU`] bytes.
pub const NARROW: NodeIndex = 6;
/// One more that takes new flows.
pub const THIRD: NodeIndex = 7;
/// Bytes.
pub const NARROW_MTU: u32 = 1280;

/// Services' ports. TCP on both addresses; consistent hashing over four nodes.
pub const HTTP: u16 = 80;
/// Turns among four candidates.
pub const TURNS: u16 = 81;
/// The least loaded of two candidates.
pub const LOAD: u16 = 82;
/// By the client's address alone.
pub const STICKY: u16 = 83;
/// UDP on both addresses.
pub const DNS: u16 = 53;
/// A row with only [`DOWN`] in it.
pub const DEAD: u16 = 90;
/// [`DOWN`], then [`SECOND`].
pub const HALF_DEAD: u16 = 91;
/// [`DRAINING`], then [`SECOND`].
pub const LEAVING: u16 = 92;
/// [`LOCAL`].
pub const HERE: u16 = 93;
/// [`NARROW`]; on both addresses.
pub const TIGHT: u16 = 94;
/// [`FAR`].
pub const REMOTE: u16 = 95;
/// No node in its rows.
pub const EMPTY: u16 = 96;
/// [`FIRST`], [`THIRD`], [`SECOND`], [`DOWN`].
pub const CHAIN: u16 = 97;
/// Only [`DRAINING`].
pub const DRAINED: u16 = 98;
/// [`SECOND`], then [`FIRST`].
pub const BACKWARDS: u16 = 99;

pub fn world() -> Tables {
    let mut tables = Tables {
        settings: Settings {
            hash_seed: 0x5eed_5eed_5eed_5eed,
            generation: 1,
            own_device_index: OWN_DEVICE,
            own_node: SECOND,
            own_mac: OWN_MAC,
            ..Settings::default()
        },
        virtual_addresses: [VIP.to_ipv6_mapped(), VIP6].into(),
        ..Tables::default()
    };
    tables.nodes.extend((FIRST..=THIRD).map(|index| (index, node(index))));
    tables.steerers.insert(OWN_MAC, Steerer::Itself);
    tables.steerers.insert(STANDBY_MAC, Steerer::Dispatcher);
    tables.steerers.extend((FIRST..=THIRD).map(|index| (node_mac(index), Steerer::Node)));
    add_services(&mut tables);
    for (weight, index) in [(1, FIRST), (3, SECOND), (1, FAR), (2, THIRD)] {
        for id in 0..tables.services.len() as u16 {
            let load = LoadEntry { weight, reported: 5, ..LoadEntry::default() };
            tables.loads.insert((id, index), load);
        }
    }
    tables
}

/// Where frames for a node go.
pub fn node_mac(index: NodeIndex) -> Mac {
    [2, 0, 0, 1, 0, index as u8]
}

fn node(index: NodeIndex) -> DatapathNode {
    DatapathNode {
        index,
        mac: node_mac(index),
        device_index: if index == FAR { OTHER_DEVICE } else { OWN_DEVICE },
        mtu: if index == NARROW { NARROW_MTU } else { 1500 },
        state: match index {
            DRAINING => ForwardingState::Draining,
            DOWN => ForwardingState::Down,
            _ => ForwardingState::Up,
        },
        is_local: index == LOCAL,
    }
}

fn add_services(tables: &mut Tables) {
    const BOTH: [IpAddr; 2] = [IpAddr::V4(VIP), IpAddr::V6(VIP6)];
    let live = [FIRST, SECOND, FAR, THIRD];
    for vip in BOTH {
        add(tables, vip, HTTP, Protocol::Tcp, Measure::First, 1, &live);
        add(tables, vip, TURNS, Protocol::Tcp, Measure::Turns, 4, &live);
        add(tables, vip, LOAD, Protocol::Tcp, Measure::Load, 2, &live);
        add(tables, vip, DNS, Protocol::Udp, Measure::First, 1, &live);
        add(tables, vip, TIGHT, Protocol::Tcp, Measure::First, 1, &[NARROW]);
    }
    for (port, nodes) in [
        (DEAD, &[DOWN][..]),
        (HALF_DEAD, &[DOWN, SECOND]),
        (LEAVING, &[DRAINING, SECOND]),
        (HERE, &[LOCAL]),
        (REMOTE, &[FAR]),
        (EMPTY, &[]),
        (CHAIN, &[FIRST, THIRD, SECOND, DOWN]),
        (DRAINED, &[DRAINING]),
        (BACKWARDS, &[SECOND, FIRST]),
    ] {
        add(tables, BOTH[0], port, Protocol::Tcp, Measure::First, 1, nodes);
    }
    add(tables, BOTH[0], STICKY, Protocol::Tcp, Measure::First, 1, &live);
    if let Some(sticky) = tables.services.last_mut() {
        sticky.by_address = true;
    }
}

fn add(
    tables: &mut Tables,
    vip: IpAddr,
    port: u16,
    protocol: Protocol,
    measure: Measure,
    choices: u8,
    nodes: &[NodeIndex],
) {
    let id = tables.services.len() as u16;
    let address = SocketAddr::new(vip, port);
    tables.services.push(DatapathService {
        id,
        address,
        protocol,
        choices,
        measure,
        by_address: false,
    });
    tables.rows.insert(id, Arc::new(rows(nodes, measure)));
}

/// Rows that begin with another node each if `measure` or their number lets
/// the hash be seen, else all alike.
fn rows(nodes: &[NodeIndex], measure: Measure) -> Vec<Row> {
    let turns = nodes.len() == 4 || measure != Measure::First;
    let row = |place: usize| {
        let mut row = [NO_NODE; ROW_NODES];
        for (i, slot) in row.iter_mut().take(nodes.len()).enumerate() {
            let turn = if turns { place } else { 0 };
            *slot = nodes[(i + turn) % nodes.len()];
        }
        Row(row)
    };
    (0..ROWS).map(row).collect()
}
