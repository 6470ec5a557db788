//! The node's program (`bpf/hand_on.h`): a packet in the middle of a connection
//! that this node does not have goes on to the others of the row, by their indexes, as
//! does a SYN where nobody listens. Before that, packets of a connection that is
//! handed off are dropped, or go to the node that has it.

use std::net::{IpAddr, SocketAddr};

use skep_wire::steer::{DatapathNode, DatapathService, NodeIndex, Verdict};

use crate::icmp::{IcmpKind, icmp_kind, read_quoted};
use crate::packet::{PROTOCOL_TCP, Packet, macs, read_addresses, read_link, read_transport};
use crate::tables::{FlowKey, Mac, Move, MoveKey, Steerer, Tables};
use crate::{Outcome, PacketAction, answer};

/// A question to the node's sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketQuery {
    /// The client's end.
    pub client: SocketAddr,
    /// The service's end.
    pub service: SocketAddr,
    /// Whether an ICMP error asks, which no half-open handshake answers to.
    pub is_error: bool,
}

/// Runs the node's program on a frame. `has_socket` tells whether this node has
/// the connection, has sent the cookie that this packet brings back, or, if the
/// packet opens a connection, listens.
pub fn hand_on(
    tables: &mut Tables,
    frame: &[u8],
    has_socket: impl FnOnce(SocketQuery) -> bool,
) -> Outcome {
    let mut way = Way::default();
    let verdict = decide(tables, frame, &mut way, has_socket).unwrap_or_else(|verdict| verdict);
    let node = way.node.map(|node| node.index);
    tables.counters.add(verdict, way.service, node, frame.len());
    let mut frame = frame.to_vec();
    let action = match (verdict, way.node, &way.packet) {
        (Verdict::NodeHandOn | Verdict::NodeMoved, Some(node), Some(packet)) => {
            answer::take_hop(&mut frame, packet);
            answer::address_frame(&mut frame, tables.settings.own_mac, node.mac);
            PacketAction::Transmit { device_index: node.device_index }
        }
        (Verdict::DropLoop | Verdict::NodeBlocked, ..) => PacketAction::Drop,
        _ => PacketAction::Pass,
    };
    Outcome { verdict, action, frame }
}

#[derive(Default)]
struct Way {
    packet: Option<Packet>,
    service: Option<u16>,
    node: Option<DatapathNode>,
}

fn decide(
    tables: &mut Tables,
    frame: &[u8],
    way: &mut Way,
    has_socket: impl FnOnce(SocketQuery) -> bool,
) -> Result<Verdict, Verdict> {
    // Nothing is dropped here that the kernel would judge as well.
    let (ip_at, is_ipv4) = read_link(frame).map_err(|_| Verdict::PassNotIp)?;
    let (from, to) = macs(frame).ok_or(Verdict::PassNotIp)?;
    if to != tables.settings.own_mac {
        return Err(Verdict::PassNotVip);
    }
    let packet = read_addresses(frame, ip_at, is_ipv4).map_err(|_| Verdict::PassNotIp)?;
    let packet = way.packet.insert(packet);
    if !tables.virtual_addresses.contains(&packet.vip) {
        return Err(Verdict::PassNotVip);
    }
    read_transport(frame, packet).map_err(|_| Verdict::PassNoService)?;
    let is_error = icmp_kind(frame, packet) == IcmpKind::Error;
    let flow = if is_error {
        read_quoted(frame, packet).map_err(|_| Verdict::PassNoService)?
    } else {
        packet.clone()
    };
    let service = tables.service(&flow).ok_or(Verdict::PassNoService)?;
    way.service = Some(service.id);
    let query = || SocketQuery {
        client: SocketAddr::new(IpAddr::V6(flow.client).to_canonical(), flow.client_port),
        service: service.address,
        is_error,
    };
    if flow.protocol != PROTOCOL_TCP {
        return Ok(Verdict::NodeOwn);
    }
    if let Some(moved) = follow_move(tables, &flow, from) {
        let Moved::To(node) = moved else { return Err(Verdict::NodeBlocked) };
        if hops_left(frame, packet) <= 1 {
            return Err(Verdict::DropLoop);
        }
        way.node = Some(node);
        return Ok(Verdict::NodeMoved);
    }
    if has_socket(query()) {
        return Ok(Verdict::NodeOwn);
    }
    let node = next_hop(tables, &flow, &service, from).ok_or(Verdict::NodeLast)?;
    if hops_left(frame, packet) <= 1 {
        return Err(Verdict::DropLoop);
    }
    way.node = Some(node);
    Ok(Verdict::NodeHandOn)
}

enum Moved {
    Blocked,
    To(DatapathNode),
}

/// What handing off has made of the connection; nothing if its receiver cannot have it. A SYN then
/// begins another one.
fn follow_move(tables: &mut Tables, flow: &Packet, from: Mac) -> Option<Moved> {
    let Packet { client, vip, client_port, vip_port, .. } = *flow;
    let key = MoveKey { client, vip, client_port, vip_port };
    let index = match tables.moves.get(&key).filter(|_| tables.settings.has_moves)? {
        Move::Blocked => return Some(Moved::Blocked),
        Move::Redirect(index) => *index,
    };
    let is_receiver = |node: &&DatapathNode| {
        !node.is_local && index != tables.settings.own_node && node.mac != from
    };
    let node = tables.live_node(index).filter(is_receiver).copied();
    if node.is_none() && flow.opens {
        tables.moves.remove(&key);
    }
    node.map(Moved::To)
}

fn next_hop(
    tables: &Tables,
    flow: &Packet,
    service: &DatapathService,
    from: Mac,
) -> Option<DatapathNode> {
    let row = tables.row(&FlowKey::new(flow, service), service)?;
    let own = tables.settings.own_node;
    let is_handed_on = tables.steerers.get(&from) == Some(&Steerer::Node);
    let comes_after = |index: NodeIndex| index > own || (!is_handed_on && index != own);
    let after = row.0.into_iter().filter(|&index| comes_after(index));
    after.filter_map(|index| tables.live_node(index)).min_by_key(|node| node.index).copied()
}

fn hops_left(frame: &[u8], packet: &Packet) -> u8 {
    let at = packet.ip_at + if packet.is_ipv4 { 8 } else { 7 };
    frame.get(at).copied().unwrap_or(0)
}
