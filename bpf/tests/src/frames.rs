//! Frames written as one would say them, from the inside out:
//! `ethernet(IPV4, ipv4(CLIENT, VIP, TCP, tcp(4000, 80, SYN, b"")))`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use skep_steer::{Mac, internet_checksum};

use crate::world::{OWN_MAC, ROUTER_MAC};

/// Ethertypes.
pub const IPV4: u16 = 0x0800;
pub const IPV6: u16 = 0x86dd;
pub const ARP: u16 = 0x0806;
pub const TAG: u16 = 0x8100;
/// The outer of two.
pub const OUTER_TAG: u16 = 0x88a8;

/// Protocols.
pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const ICMPV6: u8 = 58;

/// TCP flags.
pub const FIN: u8 = 1;
/// Opens.
pub const SYN: u8 = 2;
/// Ends at once.
pub const RST: u8 = 4;
/// Carries data on at once.
pub const PSH: u8 = 8;
/// Answers.
pub const ACK: u8 = 16;

/// Bytes of an Ethernet header: where IP begins.
pub const IP_AT: usize = 14;
/// Where IPv4's payload begins.
pub const IPV4_PAYLOAD_AT: usize = IP_AT + 20;
/// Where IPv6's payload begins.
pub const IPV6_PAYLOAD_AT: usize = IP_AT + 40;

/// A frame from the router to this machine.
pub fn ethernet(ethertype: u16, payload: Vec<u8>) -> Vec<u8> {
    ethernet_between(ROUTER_MAC, OWN_MAC, ethertype, payload)
}

/// A frame from one machine to another.
pub fn ethernet_between(from: Mac, to: Mac, ethertype: u16, payload: Vec<u8>) -> Vec<u8> {
    [&to[..], &from, &ethertype.to_be_bytes(), &payload].concat()
}

/// A tag, and what is in it.
pub fn tag(ethertype: u16, payload: Vec<u8>) -> Vec<u8> {
    [&[0x20, 0x64][..], &ethertype.to_be_bytes(), &payload].concat()
}

/// An IPv4 packet.
pub fn ipv4(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, payload: Vec<u8>) -> Vec<u8> {
    ipv4_with_options(from, to, protocol, &[], payload)
}

/// An IPv4 packet with options, of a multiple of four bytes.
pub fn ipv4_with_options(
    from: Ipv4Addr,
    to: Ipv4Addr,
    protocol: u8,
    options: &[u8],
    payload: Vec<u8>,
) -> Vec<u8> {
    let header_bytes = 20 + options.len();
    let length = u16::try_from(header_bytes + payload.len()).unwrap_or(u16::MAX);
    let mut packet = vec![0x40 | (header_bytes / 4) as u8, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0x12, 0x34, 0x40, 0x00, 61, protocol, 0, 0]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(options);
    sum_ipv4(&mut packet);
    packet.extend(payload);
    packet
}

/// Writes the checksum of an IPv4 header that has changed.
pub fn sum_ipv4(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let header_bytes = usize::from(packet[0] & 15) * 4;
    let checksum = internet_checksum(&[&packet[..header_bytes]]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// An IPv6 packet; `next` is the protocol or the first extension header.
pub fn ipv6(from: Ipv6Addr, to: Ipv6Addr, next: u8, payload: Vec<u8>) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
    let mut packet = vec![0x60, 0x01, 0x02, 0x03];
    packet.extend(length.to_be_bytes());
    packet.extend([next, 61]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(payload);
    packet
}

/// An IPv6 extension header of eight bytes before its payload.
pub fn extension(next: u8, payload: Vec<u8>) -> Vec<u8> {
    [&[next, 0, 1, 4, 0, 0, 0, 0][..], &payload].concat()
}

/// An IPv6 fragment header; `place` counts eight bytes each.
pub fn fragment(next: u8, place: u16, has_more: bool, payload: Vec<u8>) -> Vec<u8> {
    let place = (place << 3 | u16::from(has_more)).to_be_bytes();
    [&[next, 0, place[0], place[1], 0, 0, 0, 7][..], &payload].concat()
}

/// A TCP segment.
pub fn tcp(from: u16, to: u16, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut segment = Vec::from(from.to_be_bytes());
    segment.extend(to.to_be_bytes());
    segment.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 1, 0, 0xaa, 0xbb, 0, 0]);
    segment.extend(payload);
    segment
}

/// A UDP datagram.
pub fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + payload.len()).unwrap_or(u16::MAX);
    let mut datagram = Vec::from(from.to_be_bytes());
    datagram.extend(to.to_be_bytes());
    datagram.extend(length.to_be_bytes());
    datagram.extend([0xaa, 0xbb]);
    datagram.extend(payload);
    datagram
}

/// An ICMP message with its checksum.
pub fn icmp(kind: u8, code: u8, word: u32, payload: &[u8]) -> Vec<u8> {
    icmp_over(&[], kind, code, word, payload)
}

/// An ICMPv6 message with its checksum, which covers addresses.
pub fn icmpv6(
    from: Ipv6Addr,
    to: Ipv6Addr,
    kind: u8,
    code: u8,
    word: u32,
    payload: &[u8],
) -> Vec<u8> {
    let length = (8 + payload.len()) as u32;
    let pseudo = [&from.octets()[..], &to.octets(), &length.to_be_bytes(), &[0, 0, 0, ICMPV6]];
    icmp_over(&pseudo.concat(), kind, code, word, payload)
}

fn icmp_over(pseudo: &[u8], kind: u8, code: u8, word: u32, payload: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend(word.to_be_bytes());
    message.extend(payload);
    let checksum = internet_checksum(&[pseudo, &message]);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

/// A TCP packet from a client to a service, in a frame.
pub fn tcp_frame(from: IpAddr, port: u16, to: IpAddr, service: u16, flags: u8) -> Vec<u8> {
    in_ip(from, to, TCP, tcp(port, service, flags, b"hello, node"))
}

/// The same by IPv4, with the numbers of sequence and acknowledgement.
pub fn tcp_frame_at(mut frame: Vec<u8>, sequence: u32, acknowledged: u32) -> Vec<u8> {
    const AT: usize = 14 + 20 + 4;
    frame[AT..AT + 4].copy_from_slice(&sequence.to_be_bytes());
    frame[AT + 4..AT + 8].copy_from_slice(&acknowledged.to_be_bytes());
    frame
}

/// A UDP packet from a client to a service, in a frame.
pub fn udp_frame(from: IpAddr, port: u16, to: IpAddr, service: u16) -> Vec<u8> {
    in_ip(from, to, UDP, udp(port, service, b"hello, node"))
}

/// A payload in an IP packet in a frame. Addresses of two families are a fault
/// of the test.
pub fn in_ip(from: IpAddr, to: IpAddr, protocol: u8, payload: Vec<u8>) -> Vec<u8> {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => ethernet(IPV4, ipv4(from, to, protocol, payload)),
        (IpAddr::V6(from), IpAddr::V6(to)) => ethernet(IPV6, ipv6(from, to, protocol, payload)),
        _ => panic!("{from} and {to} are of two families"),
    }
}

/// Writes bytes over a frame at a place.
pub fn with(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

/// The first so many bytes of a frame.
pub fn cut(mut frame: Vec<u8>, length: usize) -> Vec<u8> {
    frame.truncate(length);
    frame
}

/// The same frame from another machine.
pub fn via(frame: Vec<u8>, from: Mac) -> Vec<u8> {
    with(frame, 6, &from)
}
