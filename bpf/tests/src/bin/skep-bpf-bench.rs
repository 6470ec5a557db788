//! What a packet costs: nanoseconds in BPF_PROG_TEST_RUN, as a Markdown table.
//!
//! Every figure is the median of interleaved runs of [`REPEAT`] packets, all
//! counters on. The kernel runs the same buffer again and again, so nodes have
//! this machine's own address: a forwarded frame is once more one to forward.
//! New flows can't be repeated so: of them each is run once, and the clock's
//! own cost, as a frame that is not IP shows it, is taken off.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::Result;
use skep_bpf_tests::frames::{ACK, ARP, SYN, ethernet, tcp_frame};
use skep_bpf_tests::world::{
    CLIENT, CLIENT6, ELSEWHERE, HTTP, OWN_DEVICE, OWN_MAC, ROUTER_MAC, TURNS, VIP, VIP6,
};
use skep_bpf_tests::{Kernel, Machine, Object};
use skep_steer::{FlowEntry, FlowKey, LoadEntry, Move, MoveKey, Settings, Tables};
use skep_units::Rng;
use skep_wire::steer::{
    DatapathNode, DatapathService, ForwardingState, Measure, NO_NODE, NodeIndex, Protocol,
    ROW_NODES, ROWS, Row,
};

/// Packets of a run.
const REPEAT: u32 = 1_000_000;

/// Runs of which the median counts.
const ROUNDS: usize = 5;

/// New flows of a run.
const NEW_FLOWS: u16 = 4_000;

const NODES: [usize; 4] = [2, 8, 64, 256];

const OBJECTS: [(Object, &str); 2] = [(Object::DispatchXdp, "XDP"), (Object::DispatchTc, "tc")];

fn main() -> Result<()> {
    println!("| ns per packet | {} |", NODES.map(|nodes| format!("{nodes} nodes")).join(" | "));
    println!("|---|{}", "---|".repeat(NODES.len()));
    for (object, name) in OBJECTS {
        let mut rows: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        let mut names = Vec::new();
        for nodes in NODES {
            let mut kernel = Kernel::load(object)?;
            kernel.set_tables(&tables(nodes))?;
            let figures = measure(&mut kernel)?;
            names = figures.iter().map(|(case, _)| *case).collect();
            for (place, (_, ns)) in figures.into_iter().enumerate() {
                rows.entry(place).or_default().push(ns);
            }
        }
        for (case, figures) in names.iter().zip(rows.values()) {
            let figures: Vec<String> = figures.iter().map(u64::to_string).collect();
            println!("| {name}, {case} | {} |", figures.join(" | "));
        }
    }
    measure_node()
}

/// What a node pays for handoffs: on packets that it keeps, since those come again as they were. A SYN
/// for a listener stands for all that the node has a socket for.
fn measure_node() -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let (ip, port) = (Ipv4Addr::LOCALHOST, listener.local_addr()?.port());
    let frame = tcp_frame(ip.into(), 1, ip.into(), port, SYN);
    let mut kernel = Kernel::load(Object::Node)?;
    let mut runs: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for (case, has_moves, moves) in NODE_CASES {
            let mut tables = tables(8);
            tables.virtual_addresses.insert(ip.to_ipv6_mapped());
            tables.services[0].address = SocketAddr::from((ip, port));
            tables.settings.has_moves = has_moves;
            for number in 0..moves {
                let (client, vip) = (ip.to_ipv6_mapped(), ip.to_ipv6_mapped());
                // The frame's own is the first.
                let key = MoveKey { client, vip, client_port: number + 1, vip_port: port };
                tables.moves.insert(key, Move::Blocked);
            }
            kernel.set_tables(&tables)?;
            runs.entry(case).or_default().push(nanoseconds(&mut kernel, &frame, REPEAT)?);
        }
    }
    println!("\n| ns per packet at a node | |\n|---|---|");
    for (case, _, _) in NODE_CASES {
        println!("| {case} | {} |", median(runs.remove(case).unwrap_or_default()));
    }
    Ok(())
}

/// Each with whether connections are handed off, and how many are blocked.
const NODE_CASES: [(&str, bool, u16); 3] = [
    ("a socket is here, nothing is handed off", false, 0),
    ("a socket is here, looked up among moves", true, 0),
    ("blocked, of 1,000", true, 1_000),
];

/// The medians of all cases.
fn measure(kernel: &mut Kernel) -> Result<Vec<(&'static str, u64)>> {
    let cases = cases();
    let mut runs = vec![Vec::new(); cases.len()];
    let mut new_flows = Vec::new();
    let mut port = 1;
    for _ in 0..ROUNDS {
        for ((_, frame), runs) in cases.iter().zip(&mut runs) {
            runs.push(nanoseconds(kernel, frame, REPEAT)?);
        }
        let once = median(
            (0..NEW_FLOWS).map(|_| nanoseconds(kernel, &cases[0].1, 1)).collect::<Result<_>>()?,
        );
        let syn = |port| tcp_frame(CLIENT.into(), port, VIP.into(), TURNS, SYN);
        let mut opened = Vec::new();
        for _ in 0..NEW_FLOWS {
            opened.push(nanoseconds(kernel, &syn(port), 1)?);
            port += 1;
        }
        let floor = runs[0].last().copied().unwrap_or_default();
        new_flows.push((median(opened) + floor).saturating_sub(once));
    }
    let names = cases.iter().map(|(name, _)| *name);
    let mut figures: Vec<_> = names.zip(runs.into_iter().map(median)).collect();
    figures.push(("new flow, four candidates by turns", median(new_flows)));
    Ok(figures)
}

fn nanoseconds(kernel: &mut Kernel, frame: &[u8], repeat: u32) -> Result<u64> {
    Ok(u64::try_from(kernel.measure(frame, repeat)?.as_nanos())?)
}

fn median(mut runs: Vec<u64>) -> u64 {
    runs.sort_unstable();
    runs[runs.len() / 2]
}

fn cases() -> Vec<(&'static str, Vec<u8>)> {
    let http = |port, flags| tcp_frame(CLIENT.into(), port, VIP.into(), HTTP, flags);
    vec![
        ("not IP: the floor", ethernet(ARP, vec![0; 46])),
        ("not for a virtual address", tcp_frame(CLIENT.into(), 1, ELSEWHERE.into(), HTTP, ACK)),
        ("established, flow table", http(4000, ACK)),
        ("established, flow table, IPv6", tcp_frame(CLIENT6.into(), 4000, VIP6.into(), HTTP, ACK)),
        ("established, by the row", http(4001, ACK)),
    ]
}

fn tables(nodes: usize) -> Tables {
    let mut tables = Tables {
        settings: Settings {
            hash_seed: 42,
            generation: 1,
            own_device_index: OWN_DEVICE,
            own_mac: OWN_MAC,
            ..Settings::default()
        },
        virtual_addresses: [VIP.to_ipv6_mapped(), VIP6].into(),
        ..Tables::default()
    };
    for index in 0..nodes as NodeIndex {
        tables.nodes.insert(index, node(index));
        let load = LoadEntry { weight: 1, ..LoadEntry::default() };
        tables.loads.insert((1, index), load);
    }
    let http = (Measure::First, 1);
    for (id, address, (measure, choices)) in [
        (0, SocketAddr::from((VIP, HTTP)), http),
        (1, SocketAddr::from((VIP, TURNS)), (Measure::Turns, 4)),
        (2, SocketAddr::from((VIP6, HTTP)), http),
    ] {
        let protocol = Protocol::Tcp;
        let service =
            DatapathService { id, address, protocol, choices, measure, by_address: false };
        tables.services.push(service);
        tables.rows.insert(id, rows(nodes).into());
    }
    // As after the first packet: they have been checked for these frames.
    for (client, service) in [(CLIENT.to_ipv6_mapped(), 0), (CLIENT6, 2)] {
        let key = FlowKey { client, port: 4000, service };
        // The repeated buffer's second look has our address for its source.
        let entry = FlowEntry {
            node: 1,
            is_closing: false,
            generation: 1,
            via: OWN_MAC,
            syn_sequence_low: 0,
        };
        tables.flows.insert(key, entry);
    }
    debug_assert_ne!(OWN_MAC, ROUTER_MAC);
    tables
}

fn node(index: NodeIndex) -> DatapathNode {
    DatapathNode {
        index,
        mac: OWN_MAC,
        device_index: OWN_DEVICE,
        mtu: 1500,
        state: ForwardingState::Up,
        is_local: false,
    }
}

/// Rows of nodes drawn at random.
fn rows(nodes: usize) -> Vec<Row> {
    let mut rng = Rng::new(7);
    let mut row = || {
        let mut row = [NO_NODE; ROW_NODES];
        for slot in row.iter_mut().take(nodes) {
            *slot = rng.below(nodes as u64) as NodeIndex;
        }
        Row(row)
    };
    (0..ROWS).map(|_| row()).collect()
}
