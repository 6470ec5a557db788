//! The dispatcher's program (`bpf/steer.h`, `bpf/dispatch.h`).
//!
//! Read [`decide`] first: its order is the order in which verdicts win.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use skep_wire::steer::{
    DatapathNode, DatapathService, Flow, ForwardingState, Network, NodeIndex, Protocol, Verdict,
};

use crate::icmp::{IcmpKind, icmp_kind, read_quoted};
use crate::limits::MTU_MIN;
use crate::packet::{
    PROTOCOL_TCP, PROTOCOL_UDP, Packet, TCP_FIN, TCP_RST, macs, read_addresses, read_link,
    read_transport,
};
use crate::rate::is_guarded;
use crate::tables::{FlowEntry, FlowKey, Mac, NetworkAccess, Steerer, Tables};
use crate::{Outcome, PacketAction, answer};

/// Runs the dispatcher's program on a frame that comes in at `now_ns`.
pub fn steer(tables: &mut Tables, now_ns: u64, frame: &[u8]) -> Outcome {
    let mut way = Way::default();
    let verdict = decide(tables, now_ns, frame, &mut way).unwrap_or_else(|verdict| verdict);
    let node = way.node.map(|node| node.index);
    tables.counters.add(verdict, way.service, node, frame.len());
    act(tables, frame, &way, verdict)
}

/// Where a packet goes, and what it counts for.
#[derive(Default)]
struct Way {
    packet: Option<Packet>,
    service: Option<u16>,
    node: Option<DatapathNode>,
}

/// The verdict; `Err` where it ends the questions.
fn decide(
    tables: &mut Tables,
    now_ns: u64,
    frame: &[u8],
    way: &mut Way,
) -> Result<Verdict, Verdict> {
    let (ip_at, is_ipv4) = read_link(frame)?;
    let (from, to) = macs(frame).ok_or(Verdict::DropTruncated)?;
    if to != tables.settings.own_mac {
        return Err(Verdict::PassNotVip);
    }
    let mut packet = read_addresses(frame, ip_at, is_ipv4)?;
    let fault = read_transport(frame, &mut packet);
    let packet = &*way.packet.insert(packet);
    let service = fault.ok().and_then(|()| tables.service(packet));
    if service.is_none() && !tables.virtual_addresses.contains(&packet.vip) {
        return Err(Verdict::PassNotVip);
    }
    match tables.steerers.get(&from) {
        Some(_) if service.is_some_and(|service| tables.is_cleared(packet, from, &service)) => {}
        Some(Steerer::Itself) => return Err(Verdict::DropLoop),
        Some(_) => return Err(Verdict::PassSteered),
        None => {}
    }
    fault?;
    let Some(service) = service else { return decide_other(tables, frame, way) };
    way.service = Some(service.id);
    let key = FlowKey::new(packet, &service);
    let node = tables.owner(&key, packet);
    match node {
        Some(node) => follow(tables, &key, packet, from, node)?,
        None => place(tables, now_ns, &key, packet, from, &service)?,
    }
    .finish(tables, way)
}

/// A node by index and why it was taken.
struct Taken(NodeIndex, Verdict);

impl Taken {
    /// The last test before a packet leaves.
    fn finish(self, tables: &Tables, way: &mut Way) -> Result<Verdict, Verdict> {
        let Self(index, verdict) = self;
        let node = *tables.nodes.get(&index).ok_or(Verdict::PassNoNode)?;
        way.node = Some(node);
        let length = way.packet.as_ref().map_or(0, |packet| packet.ip_length);
        if node.is_local {
            return Ok(Verdict::PassLocal);
        }
        let is_error = verdict == Verdict::ForwardIcmp;
        let is_limited = node.mtu != 0 && length > node.mtu as usize && length > MTU_MIN;
        Ok(if is_limited && !is_error { Verdict::AnswerTooBig } else { verdict })
    }
}

/// A packet whose flow has an owner.
fn follow(
    tables: &mut Tables,
    key: &FlowKey,
    packet: &Packet,
    via: Mac,
    node: NodeIndex,
) -> Result<Taken, Verdict> {
    let generation = tables.settings.generation;
    let is_checked = tables.flows.get(key).is_some_and(|flow| flow.generation == generation);
    if !is_checked && tables.is_denied(packet.client) {
        return Err(Verdict::DropDenied);
    }
    if let Some(flow) = tables.flows.get_mut(key) {
        if !is_checked {
            (flow.via, flow.generation) = (via, generation);
        }
        if packet.opens {
            flow.syn_sequence_low = packet.syn_sequence_low;
        }
        flow.is_closing |= packet.tcp_flags & (TCP_FIN | TCP_RST) != 0;
    }
    Ok(Taken(node, Verdict::ForwardFlow))
}

/// A packet without a usable entry in the flow table.
fn place(
    tables: &mut Tables,
    now_ns: u64,
    key: &FlowKey,
    packet: &Packet,
    via: Mac,
    service: &DatapathService,
) -> Result<Taken, Verdict> {
    if tables.is_denied(packet.client) {
        return Err(Verdict::DropDenied);
    }
    let row = tables.row(key, service).ok_or(Verdict::PassNoNode)?;
    let (node, verdict) = if !packet.opens {
        (tables.first_live(&row), Verdict::ForwardRow)
    } else if is_guarded(tables, packet.client, now_ns) {
        (tables.first_up(&row), Verdict::ForwardGuarded)
    } else {
        (tables.choice(&row, service), Verdict::ForwardNew)
    };
    let node = node.ok_or(Verdict::PassNoNode)?;
    if verdict == Verdict::ForwardNew {
        store(tables, key, packet, via, node);
    }
    Ok(Taken(node, verdict))
}

/// Notes a new flow's owner, here and for who listens.
fn store(tables: &mut Tables, key: &FlowKey, packet: &Packet, via: Mac, node: NodeIndex) {
    let generation = tables.settings.generation;
    *tables.assigned.entry((key.service, node)).or_default() += 1;
    let syn_sequence_low = packet.syn_sequence_low;
    tables
        .flows
        .insert(*key, FlowEntry { node, is_closing: false, generation, via, syn_sequence_low });
    if tables.settings.is_streaming {
        let client = SocketAddr::new(IpAddr::V6(key.client).to_canonical(), key.port);
        tables.events.push(Flow { client, service: key.service, node });
    }
}

/// Neither TCP nor UDP.
fn decide_other(tables: &Tables, frame: &[u8], way: &mut Way) -> Result<Verdict, Verdict> {
    let Some(packet) = way.packet.clone() else { return Err(Verdict::PassNoService) };
    match icmp_kind(frame, &packet) {
        IcmpKind::Echo if tables.is_denied(packet.client) => Ok(Verdict::DropDenied),
        IcmpKind::Echo => Ok(Verdict::AnswerEcho),
        IcmpKind::Error => decide_error(tables, frame, &packet, way),
        IcmpKind::Short => Ok(Verdict::DropMalformed),
        IcmpKind::None => Ok(Verdict::PassNoService),
    }
}

/// An error goes to the owner of the flow that it is about.
fn decide_error(
    tables: &Tables,
    frame: &[u8],
    packet: &Packet,
    way: &mut Way,
) -> Result<Verdict, Verdict> {
    let quoted = read_quoted(frame, packet)?;
    let service = tables.service(&quoted).ok_or(Verdict::PassNoService)?;
    way.service = Some(service.id);
    let key = FlowKey::new(&quoted, &service);
    let of_row = || tables.row(&key, &service).and_then(|row| tables.first_live(&row));
    let node = tables.owner(&key, &quoted).or_else(of_row).ok_or(Verdict::PassNoNode)?;
    Taken(node, Verdict::ForwardIcmp).finish(tables, way)
}

fn act(tables: &Tables, frame: &[u8], way: &Way, verdict: Verdict) -> Outcome {
    let settings = &tables.settings;
    let out = PacketAction::Transmit { device_index: settings.own_device_index };
    let (action, frame) = match (verdict, &way.packet, way.node) {
        (
            Verdict::ForwardFlow
            | Verdict::ForwardNew
            | Verdict::ForwardRow
            | Verdict::ForwardGuarded
            | Verdict::ForwardIcmp,
            _,
            Some(node),
        ) => {
            let mut frame = frame.to_vec();
            answer::address_frame(&mut frame, settings.own_mac, node.mac);
            (PacketAction::Transmit { device_index: node.device_index }, frame)
        }
        (Verdict::AnswerEcho, Some(packet), _) => {
            (out, answer::echo(frame, packet, settings.own_mac))
        }
        (Verdict::AnswerTooBig, Some(packet), Some(node)) => {
            match answer::too_big(frame, packet, settings.own_mac, node.mtu) {
                Some(frame) => (out, frame),
                None => (PacketAction::Drop, frame.to_vec()),
            }
        }
        (
            Verdict::DropTruncated
            | Verdict::DropMalformed
            | Verdict::DropFragment
            | Verdict::DropOptions
            | Verdict::DropDenied
            | Verdict::DropLoop,
            _,
            _,
        ) => (PacketAction::Drop, frame.to_vec()),
        _ => (PacketAction::Pass, frame.to_vec()),
    };
    Outcome { verdict, action, frame }
}

impl FlowKey {
    pub(crate) fn new(packet: &Packet, service: &DatapathService) -> Self {
        Self { client: packet.client, port: packet.client_port, service: service.id }
    }
}

impl Tables {
    /// The service that a packet asks for.
    pub(crate) fn service(&self, packet: &Packet) -> Option<DatapathService> {
        let protocol = match packet.protocol {
            PROTOCOL_TCP => Protocol::Tcp,
            PROTOCOL_UDP => Protocol::Udp,
            _ => return None,
        };
        let is_asked = |service: &&DatapathService| {
            service.protocol == protocol
                && service.address.port() == packet.vip_port
                && mapped(service.address.ip()) == packet.vip
        };
        self.services.iter().find(is_asked).copied()
    }

    /// Whether a packet's flow has been checked with this source of frames.
    fn is_cleared(&self, packet: &Packet, from: Mac, service: &DatapathService) -> bool {
        let flow = self.flows.get(&FlowKey::new(packet, service));
        flow.is_some_and(|flow| flow.generation == self.settings.generation && flow.via == from)
    }

    /// The owner that the flow table names, if it may have this packet.
    fn owner(&self, key: &FlowKey, packet: &Packet) -> Option<NodeIndex> {
        let flow = self.flows.get(key)?;
        let node = self.live_node(flow.node)?;
        let is_another = packet.opens
            && packet.protocol == PROTOCOL_TCP
            && flow.syn_sequence_low != packet.syn_sequence_low;
        let takes_others = node.state == ForwardingState::Up && !flow.is_closing;
        (!is_another || takes_others).then_some(flow.node)
    }

    fn is_denied(&self, client: Ipv6Addr) -> bool {
        let fitting = self.networks.iter().filter(|(network, _)| contains(network, client));
        match fitting.max_by_key(|(network, _)| mapped_bits(network)) {
            Some((_, admission)) => *admission == NetworkAccess::Deny,
            None => self.settings.is_allow_listed,
        }
    }
}

pub(crate) fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

fn mapped_bits(network: &Network) -> u32 {
    u32::from(network.prefix_bits) + if network.address.is_ipv4() { 96 } else { 0 }
}

fn contains(network: &Network, client: Ipv6Addr) -> bool {
    let difference = u128::from(mapped(network.address)) ^ u128::from(client);
    difference.leading_zeros() >= mapped_bits(network)
}
