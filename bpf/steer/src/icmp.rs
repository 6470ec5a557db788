//! Reading ICMP: echo requests, and errors about flows of ours (`bpf/icmp.h`).

use skep_wire::steer::Verdict;

use crate::packet::{
    ICMP_BYTES, IPV4_BYTES, IPV6_BYTES, PROTOCOL_ICMP, PROTOCOL_ICMPV6, Packet, ipv4_addresses,
    ipv6_addresses, word,
};

pub(crate) const ECHO_REPLY: u8 = 0;
pub(crate) const UNREACHABLE: u8 = 3;
pub(crate) const UNREACHABLE_TOO_BIG: u8 = 4;
pub(crate) const ECHO_REQUEST: u8 = 8;
pub(crate) const V6_TOO_BIG: u8 = 2;
pub(crate) const V6_ECHO_REQUEST: u8 = 128;
pub(crate) const V6_ECHO_REPLY: u8 = 129;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IcmpKind {
    /// Not ICMP, or nothing to us.
    None,
    /// Shorter than its header.
    Short,
    Echo,
    Error,
}

pub(crate) fn icmp_kind(frame: &[u8], packet: &Packet) -> IcmpKind {
    if packet.protocol != if packet.is_ipv4 { PROTOCOL_ICMP } else { PROTOCOL_ICMPV6 } {
        return IcmpKind::None;
    }
    let icmp = frame.get(packet.transport_at()..packet.end()).unwrap_or_default();
    let Some(header) = icmp.first_chunk::<ICMP_BYTES>() else { return IcmpKind::Short };
    match (packet.is_ipv4, header[0], header[1]) {
        (true, ECHO_REQUEST, 0) | (false, V6_ECHO_REQUEST, 0) => IcmpKind::Echo,
        // Unreachable, source quench, time exceeded, parameter problem.
        (true, UNREACHABLE | 4 | 11 | 12, _) => IcmpKind::Error,
        // Unreachable, too big, time exceeded, parameter problem.
        (false, 1..=4, _) => IcmpKind::Error,
        _ => IcmpKind::None,
    }
}

/// The flow that an error is about, as from its client: what is source in the
/// quoted packet is destination here.
pub(crate) fn read_quoted(frame: &[u8], packet: &Packet) -> Result<Packet, Verdict> {
    let at = packet.transport_at() + ICMP_BYTES;
    let quoted = frame.get(at..packet.end()).unwrap_or_default();
    let (mut flow, header_bytes) = if packet.is_ipv4 {
        read_quoted_ipv4(quoted, packet)?
    } else {
        read_quoted_ipv6(quoted, packet)?
    };
    if !flow.is_ported() {
        return Err(Verdict::PassNoService);
    }
    let port = |at| word(quoted, header_bytes + at).ok_or(Verdict::DropTruncated);
    (flow.vip_port, flow.client_port) = (port(0)?, port(2)?);
    Ok(flow)
}

fn read_quoted_ipv4(quoted: &[u8], packet: &Packet) -> Result<(Packet, usize), Verdict> {
    let (version, protocol, vip, client) = ipv4_addresses(quoted).ok_or(Verdict::DropTruncated)?;
    let header_bytes = usize::from(quoted[0] & 15) * 4;
    if version != 4 || header_bytes < IPV4_BYTES {
        return Err(Verdict::DropMalformed);
    }
    if word(quoted, 6).unwrap_or_default() & 0x1fff != 0 {
        return Err(Verdict::DropFragment);
    }
    Ok((Packet { client, vip, protocol, ..packet.clone() }, header_bytes))
}

fn read_quoted_ipv6(quoted: &[u8], packet: &Packet) -> Result<(Packet, usize), Verdict> {
    let (version, protocol, vip, client) = ipv6_addresses(quoted).ok_or(Verdict::DropTruncated)?;
    if version != 6 {
        return Err(Verdict::DropMalformed);
    }
    Ok((Packet { client, vip, protocol, ..packet.clone() }, IPV6_BYTES))
}
