//! Tables as the bytes of map entries: the layouts of `bpf/abi.h`.
//!
//! Written a second time on purpose, apart from the loader's: a layout that
//! only one side has changed fails here.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use skep_steer::{
    FlowEntry, FlowKey, LoadEntry, Move, MoveKey, NetworkAccess, Rate, Steerer, Tables,
};
use skep_wire::steer::{
    Count, DatapathNode, DatapathService, Flow, ForwardingState, Measure, NO_NODE, NODES_MAX,
    Protocol, ROWS, Row,
};

use crate::machine::Program;

/// An entry of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The map's name.
    pub map: &'static str,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// Maps of which the programs write or remove entries.
pub const WRITTEN_BY_PROGRAM: [&str; 9] = [
    "moves",
    "flows",
    "assigned",
    "sources",
    "total",
    "verdicts",
    "service_counts",
    "node_counts",
    "events",
];

/// All entries but rows: what tables hold, nodes that are not there as zeros.
pub fn entries(tables: &Tables) -> Vec<Entry> {
    let mut entries = vec![entry("settings", index(0), settings(tables))];
    for vip in &tables.virtual_addresses {
        entries.push(entry("vips", vip.octets(), [0; 4]));
    }
    for service in &tables.services {
        entries.push(entry("services", service_key(service), service_value(service)));
    }
    for place in 0..NODES_MAX as u16 {
        let value = tables.nodes.get(&place).map_or(vec![0; 16], node);
        entries.push(entry("nodes", index(place.into()), value));
    }
    for (mac, steerer) in &tables.steerers {
        entries.push(entry("steerers", *mac, steerer_value(*steerer).to_ne_bytes()));
    }
    for (key, value) in &tables.moves {
        entries.push(entry("moves", move_key(key), move_value(value)));
    }
    entries.extend(dispatcher_entries(tables));
    entries
}

/// Whether a program has a map.
pub fn is_in(program: Program, map: &str) -> bool {
    match program {
        Program::Dispatch => map != "moves",
        Program::Node => is_in_node(map),
    }
}

fn is_in_node(map: &str) -> bool {
    matches!(
        map,
        "settings"
            | "vips"
            | "services"
            | "rows"
            | "nodes"
            | "steerers"
            | "verdicts"
            | "service_counts"
            | "node_counts"
            | "moves"
    )
}

fn dispatcher_entries(tables: &Tables) -> Vec<Entry> {
    let mut entries = vec![entry("total", index(0), rate(&tables.total))];
    for ((service, node), value) in &tables.loads {
        entries.push(entry("loads", place(*service, *node), load(value)));
    }
    for ((service, node), value) in &tables.assigned {
        entries.push(entry("assigned", place(*service, *node), value.to_ne_bytes()));
    }
    for (key, value) in &tables.flows {
        entries.push(entry("flows", flow_key(key), flow(value)));
    }
    for (address, value) in &tables.sources {
        entries.push(entry("sources", address.octets(), rate(value)));
    }
    for (network, admission) in &tables.networks {
        let (more_bits, address) = match network.address {
            IpAddr::V4(address) => (96, address.to_ipv6_mapped()),
            IpAddr::V6(address) => (0, address),
        };
        let bits = u32::from(network.prefix_bits) + more_bits;
        let key = [&bits.to_ne_bytes()[..], &address.octets()].concat();
        let value: u32 = match admission {
            NetworkAccess::Allow => 1,
            NetworkAccess::Deny => 2,
        };
        entries.push(entry("networks", key, value.to_ne_bytes()));
    }
    entries
}

fn entry(map: &'static str, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Entry {
    Entry { map, key: key.into(), value: value.into() }
}

/// A key of an array.
pub fn index(place: u32) -> [u8; 4] {
    place.to_ne_bytes()
}

/// A node's place in the maps of loads.
pub fn place(service: u16, node: u16) -> [u8; 4] {
    index(u32::from(service) * NODES_MAX as u32 + u32::from(node))
}

/// The place of a service's first row; the half that counts is the service's
/// id's last bit, so that both are used.
pub fn first_row(service: u16) -> u32 {
    (u32::from(service) * 2 + u32::from(half(service))) * ROWS as u32
}

fn half(service: u16) -> u8 {
    (service & 1) as u8
}

fn settings(tables: &Tables) -> Vec<u8> {
    let settings = &tables.settings;
    let flags = u32::from(!tables.networks.is_empty())
        | u32::from(settings.is_allow_listed) << 1
        | u32::from(settings.is_streaming) << 2
        | u32::from(settings.has_moves) << 3;
    [
        &settings.hash_seed.to_ne_bytes()[..],
        &settings.new_flows_max.to_ne_bytes(),
        &settings.new_flows_per_source_max.to_ne_bytes(),
        &settings.generation.to_ne_bytes(),
        &flags.to_ne_bytes(),
        &settings.own_device_index.to_ne_bytes(),
        &settings.own_node.to_ne_bytes(),
        &settings.own_mac,
        &[0; 4],
    ]
    .concat()
}

fn service_key(service: &DatapathService) -> Vec<u8> {
    let vip: Ipv6Addr = match service.address.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let protocol = match service.protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
    };
    [&vip.octets()[..], &service.address.port().to_be_bytes(), &[protocol, 0]].concat()
}

fn service_value(service: &DatapathService) -> Vec<u8> {
    let measure = match service.measure {
        Measure::First => 0,
        Measure::Turns => 1,
        Measure::Load => 2,
    };
    let bytes = [service.choices, measure, u8::from(service.by_address), half(service.id), 0, 0];
    [&service.id.to_ne_bytes()[..], &bytes].concat()
}

pub fn row(row: &Row) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (bytes, node) in bytes.chunks_mut(2).zip(row.0) {
        bytes.copy_from_slice(&node.to_ne_bytes());
    }
    bytes
}

fn node(node: &DatapathNode) -> Vec<u8> {
    let state = match node.state {
        ForwardingState::Down => 0,
        ForwardingState::Draining => 1,
        ForwardingState::Up => 2,
    };
    [
        &node.mac[..],
        &[state, u8::from(node.is_local)],
        &node.device_index.to_ne_bytes(),
        &node.mtu.to_ne_bytes(),
    ]
    .concat()
}

fn steerer_value(steerer: Steerer) -> u32 {
    match steerer {
        Steerer::Dispatcher => 1,
        Steerer::Node => 2,
        Steerer::Itself => 3,
    }
}

fn load(load: &LoadEntry) -> Vec<u8> {
    [
        &load.reported.to_ne_bytes()[..],
        &load.assigned_at_report.to_ne_bytes(),
        &load.assigned_at_table.to_ne_bytes(),
        &load.weight.to_ne_bytes(),
        &[0; 4],
    ]
    .concat()
}

fn rate(rate: &Rate) -> Vec<u8> {
    [rate.window_began_ns.to_ne_bytes(), rate.new_flows.to_ne_bytes()].concat()
}

fn flow_key(key: &FlowKey) -> Vec<u8> {
    [&key.client.octets()[..], &key.port.to_be_bytes(), &key.service.to_ne_bytes()].concat()
}

fn flow(flow: &FlowEntry) -> Vec<u8> {
    [
        &flow.node.to_ne_bytes()[..],
        &u16::from(flow.is_closing).to_ne_bytes(),
        &flow.generation.to_ne_bytes(),
        &flow.via,
        &flow.syn_sequence_low.to_ne_bytes(),
    ]
    .concat()
}

fn move_key(key: &MoveKey) -> Vec<u8> {
    [
        &key.client.octets()[..],
        &key.vip.octets(),
        &key.client_port.to_be_bytes(),
        &key.vip_port.to_be_bytes(),
    ]
    .concat()
}

fn move_value(value: &Move) -> Vec<u8> {
    let (state, node) = match value {
        Move::Blocked => (1u16, NO_NODE),
        Move::Redirect(node) => (2, *node),
    };
    [&state.to_ne_bytes()[..], &node.to_ne_bytes(), &[0; 12]].concat()
}

/// An entry of `moves`.
pub fn read_move(key: &[u8], value: &[u8]) -> (MoveKey, Move) {
    let key = MoveKey {
        client: take::<16>(key, 0).into(),
        vip: take::<16>(key, 16).into(),
        client_port: u16::from_be_bytes(take(key, 32)),
        vip_port: u16::from_be_bytes(take(key, 34)),
    };
    let entry = match u16::from_ne_bytes(take(value, 0)) {
        1 => Move::Blocked,
        2 => Move::Redirect(u16::from_ne_bytes(take(value, 2))),
        other => panic!("a state {other} of a move"),
    };
    (key, entry)
}

/// When an entry of `moves` was used last, in nanoseconds.
pub fn read_used_ns(value: &[u8]) -> u64 {
    u64::from_ne_bytes(take(value, 8))
}

/// Reads bytes of a known size from a place.
fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
    *bytes.unwrap_or_else(|| panic!("an entry without {N} bytes at {at}"))
}

/// The flow of an entry of `flows`.
pub fn read_flow(key: &[u8], value: &[u8]) -> (FlowKey, FlowEntry) {
    let key = FlowKey {
        client: take::<16>(key, 0).into(),
        port: u16::from_be_bytes(take(key, 16)),
        service: u16::from_ne_bytes(take(key, 18)),
    };
    let entry = FlowEntry {
        node: u16::from_ne_bytes(take(value, 0)),
        is_closing: u16::from_ne_bytes(take(value, 2)) & 1 != 0,
        generation: u32::from_ne_bytes(take(value, 4)),
        via: take(value, 8),
        syn_sequence_low: u16::from_ne_bytes(take(value, 14)),
    };
    (key, entry)
}

/// A flow that the program reported.
pub fn read_event(event: &[u8]) -> Flow {
    let (key, _) = read_flow(event, &[0; 16]);
    let client = SocketAddr::new(IpAddr::V6(key.client).to_canonical(), key.port);
    Flow { client, service: key.service, node: u16::from_ne_bytes(take(event, 20)) }
}

/// The place that a key of an array names.
pub fn read_index(key: &[u8]) -> u32 {
    u32::from_ne_bytes(take(key, 0))
}

/// An entry of `assigned`.
pub fn read_assigned(key: &[u8], value: &[u8]) -> ((u16, u16), u64) {
    let place = read_index(key);
    let (service, node) = (place / NODES_MAX as u32, place % NODES_MAX as u32);
    ((service as u16, node as u16), u64::from_ne_bytes(take(value, 0)))
}

/// A counter.
pub fn read_count(value: &[u8]) -> Count {
    Count { packets: u64::from_ne_bytes(take(value, 0)), bytes: u64::from_ne_bytes(take(value, 8)) }
}

pub fn read_rate(value: &[u8]) -> Rate {
    Rate {
        window_began_ns: u64::from_ne_bytes(take(value, 0)),
        new_flows: u64::from_ne_bytes(take(value, 8)),
    }
}
