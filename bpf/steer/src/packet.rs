//! Reading a frame: link layer, addresses, transport (`bpf/packet.h`).
//!
//! A fault is a verdict. Faults above the addresses are only acted on when the
//! packet turns out to be for a virtual address.

use std::net::{Ipv4Addr, Ipv6Addr};

use skep_wire::steer::Verdict;

use crate::limits::TAGS_MAX;
use crate::tables::Mac;

pub(crate) const ETHERNET_BYTES: usize = 14;
pub(crate) const IPV4_BYTES: usize = 20;
pub(crate) const IPV6_BYTES: usize = 40;
pub(crate) const TCP_BYTES: usize = 20;
pub(crate) const UDP_BYTES: usize = 8;
pub(crate) const ICMP_BYTES: usize = 8;

pub(crate) const PROTOCOL_ICMP: u8 = 1;
pub(crate) const PROTOCOL_TCP: u8 = 6;
pub(crate) const PROTOCOL_UDP: u8 = 17;
pub(crate) const PROTOCOL_ICMPV6: u8 = 58;
const PROTOCOL_FRAGMENT: u8 = 44;
/// Hop-by-hop, routing, authentication, destination, mobility, HIP, shim6.
const EXTENSIONS: [u8; 7] = [0, 43, 51, 60, 135, 139, 140];

pub(crate) const TCP_FIN: u8 = 1;
pub(crate) const TCP_SYN: u8 = 2;
pub(crate) const TCP_RST: u8 = 4;
pub(crate) const TCP_ACK: u8 = 16;

/// What is known of a packet; ports and flags only once they were read.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) client: Ipv6Addr,
    pub(crate) vip: Ipv6Addr,
    pub(crate) client_port: u16,
    pub(crate) vip_port: u16,
    pub(crate) protocol: u8,
    pub(crate) is_ipv4: bool,
    /// Where IP begins in the frame.
    pub(crate) ip_at: usize,
    pub(crate) ip_length: usize,
    pub(crate) tcp_flags: u8,
    /// The first of a flow or, of UDP, maybe the first.
    pub(crate) opens: bool,
    /// Of a SYN: the low half of its sequence number, by which it is known when it comes again.
    pub(crate) syn_sequence_low: u16,
}

impl Packet {
    pub(crate) fn header_bytes(&self) -> usize {
        if self.is_ipv4 { IPV4_BYTES } else { IPV6_BYTES }
    }

    /// Where the transport's header begins in the frame.
    pub(crate) fn transport_at(&self) -> usize {
        self.ip_at + self.header_bytes()
    }

    /// Where the packet ends in its frame; padding may follow.
    pub(crate) fn end(&self) -> usize {
        self.ip_at + self.ip_length
    }

    pub(crate) fn is_ported(&self) -> bool {
        matches!(self.protocol, PROTOCOL_TCP | PROTOCOL_UDP)
    }
}

/// Source and destination of a frame that has an Ethernet header.
pub(crate) fn macs(frame: &[u8]) -> Option<(Mac, Mac)> {
    let (to, rest) = frame.split_first_chunk()?;
    let (from, _) = rest.split_first_chunk()?;
    Some((*from, *to))
}

/// Ethernet and tags: where IP begins, and whether it says to be IPv4.
pub(crate) fn read_link(frame: &[u8]) -> Result<(usize, bool), Verdict> {
    let mut at = ETHERNET_BYTES;
    for tags in 0.. {
        match word(frame, at - 2).ok_or(Verdict::DropTruncated)? {
            0x0800 => return Ok((at, true)),
            0x86dd => return Ok((at, false)),
            0x8100 | 0x88a8 if tags < TAGS_MAX => at += 4,
            _ => break,
        }
    }
    Err(Verdict::PassNotIp)
}

/// The fixed part of the IP header: addresses and protocol.
pub(crate) fn read_addresses(frame: &[u8], ip_at: usize, is_ipv4: bool) -> Result<Packet, Verdict> {
    let ip = frame.get(ip_at..).unwrap_or_default();
    let addresses = if is_ipv4 { ipv4_addresses(ip) } else { ipv6_addresses(ip) };
    let (version, protocol, client, vip) = addresses.ok_or(Verdict::DropTruncated)?;
    if version != if is_ipv4 { 4 } else { 6 } {
        return Err(Verdict::PassNotIp);
    }
    Ok(Packet {
        client,
        vip,
        client_port: 0,
        vip_port: 0,
        protocol,
        is_ipv4,
        ip_at,
        ip_length: 0,
        tcp_flags: 0,
        opens: false,
        syn_sequence_low: 0,
    })
}

/// Version, protocol, source and destination.
pub(crate) type Addresses = (u8, u8, Ipv6Addr, Ipv6Addr);

pub(crate) fn ipv4_addresses(ip: &[u8]) -> Option<Addresses> {
    let header: &[u8; IPV4_BYTES] = ip.first_chunk()?;
    let address = |at: usize| {
        Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]).to_ipv6_mapped()
    };
    Some((header[0] >> 4, header[9], address(12), address(16)))
}

pub(crate) fn ipv6_addresses(ip: &[u8]) -> Option<Addresses> {
    let header: &[u8; IPV6_BYTES] = ip.first_chunk()?;
    let from: [u8; 16] = *header[8..].first_chunk()?;
    let to: [u8; 16] = *header[24..].first_chunk()?;
    Some((header[0] >> 4, header[6], from.into(), to.into()))
}

/// The rest of the IP header, then ports and flags.
pub(crate) fn read_transport(frame: &[u8], packet: &mut Packet) -> Result<(), Verdict> {
    if packet.is_ipv4 {
        check_ipv4(frame, packet)?;
    } else {
        check_ipv6(frame, packet)?;
    }
    let payload = frame.get(packet.transport_at()..packet.end()).ok_or(Verdict::DropTruncated)?;
    match packet.protocol {
        PROTOCOL_TCP => read_tcp(payload, packet).ok_or(Verdict::DropMalformed),
        PROTOCOL_UDP => read_udp(payload, packet).ok_or(Verdict::DropMalformed),
        _ => Ok(()),
    }
}

fn check_ipv4(frame: &[u8], packet: &mut Packet) -> Result<(), Verdict> {
    let ip = frame.get(packet.ip_at..).unwrap_or_default();
    let header: &[u8; IPV4_BYTES] = ip.first_chunk().ok_or(Verdict::DropTruncated)?;
    let header_bytes = usize::from(header[0] & 15) * 4;
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    if header_bytes < IPV4_BYTES || length < header_bytes {
        return Err(Verdict::DropMalformed);
    }
    if length > ip.len() {
        return Err(Verdict::DropTruncated);
    }
    // More to come, or not the first.
    if fragment & 0x3fff != 0 {
        return Err(Verdict::DropFragment);
    }
    if header_bytes != IPV4_BYTES {
        return Err(Verdict::DropOptions);
    }
    packet.ip_length = length;
    Ok(())
}

fn check_ipv6(frame: &[u8], packet: &mut Packet) -> Result<(), Verdict> {
    let ip = frame.get(packet.ip_at..).unwrap_or_default();
    let payload_length = word(ip, 4).ok_or(Verdict::DropTruncated)?;
    let length = IPV6_BYTES + usize::from(payload_length);
    if length > ip.len() {
        return Err(Verdict::DropTruncated);
    }
    if packet.protocol == PROTOCOL_FRAGMENT {
        return Err(Verdict::DropFragment);
    }
    if EXTENSIONS.contains(&packet.protocol) {
        return Err(Verdict::DropOptions);
    }
    packet.ip_length = length;
    Ok(())
}

fn read_tcp(payload: &[u8], packet: &mut Packet) -> Option<()> {
    let header: &[u8; TCP_BYTES] = payload.first_chunk()?;
    let header_bytes = usize::from(header[12] >> 4) * 4;
    let flags = header[13];
    let is_contradiction = flags & TCP_SYN != 0 && flags & (TCP_FIN | TCP_RST) != 0;
    if header_bytes < TCP_BYTES || header_bytes > payload.len() || is_contradiction {
        return None;
    }
    packet.client_port = word(header, 0)?;
    packet.vip_port = word(header, 2)?;
    packet.tcp_flags = flags;
    packet.opens = flags & (TCP_SYN | TCP_ACK) == TCP_SYN;
    if packet.opens {
        packet.syn_sequence_low = word(header, 6)?;
    }
    Some(())
}

fn read_udp(payload: &[u8], packet: &mut Packet) -> Option<()> {
    let header: &[u8; UDP_BYTES] = payload.first_chunk()?;
    let length = usize::from(word(header, 4)?);
    if length < UDP_BYTES || length > payload.len() {
        return None;
    }
    packet.client_port = word(header, 0)?;
    packet.vip_port = word(header, 2)?;
    packet.opens = true;
    Some(())
}

/// Sixteen bits of network order at a place.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map(|word| u16::from_be_bytes(*word))
}
