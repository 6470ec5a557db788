//! What a dispatcher answers itself: echo requests, and packets that are too
//! big for the way to their node (`bpf/answer.h`).

use crate::icmp::{
    ECHO_REPLY, ECHO_REQUEST, UNREACHABLE, UNREACHABLE_TOO_BIG, V6_ECHO_REPLY, V6_ECHO_REQUEST,
    V6_TOO_BIG,
};
use crate::limits::{ANSWER_TTL, QUOTED_BYTES};
use crate::packet::{
    ICMP_BYTES, IPV4_BYTES, IPV6_BYTES, PROTOCOL_ICMP, PROTOCOL_ICMPV6, Packet, macs, word,
};
use crate::tables::Mac;

/// The Internet checksum (RFC 1071) of parts, each of even length but the last.
pub fn internet_checksum(parts: &[&[u8]]) -> u16 {
    let mut sum: u32 = 0;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
        }
    }
    fold(sum)
}

/// Addresses a frame: to `to`, from `from`.
pub(crate) fn address_frame(frame: &mut [u8], from: Mac, to: Mac) {
    if let Some(addresses) = frame.first_chunk_mut::<12>() {
        addresses[..6].copy_from_slice(&to);
        addresses[6..].copy_from_slice(&from);
    }
}

/// One hop less to live.
pub(crate) fn take_hop(frame: &mut [u8], packet: &Packet) {
    let Some(ip) = frame.get_mut(packet.ip_at..) else { return };
    if packet.is_ipv4 {
        set_ttl(ip, ip[8] - 1);
    } else {
        ip[7] -= 1;
    }
}

/// The request made its own reply.
pub(crate) fn echo(frame: &[u8], packet: &Packet, own: Mac) -> Vec<u8> {
    let mut reply = frame.to_vec();
    turn_frame(&mut reply, own);
    let (ip, icmp) = reply[packet.ip_at..].split_at_mut(packet.header_bytes());
    let (request, answer) = if packet.is_ipv4 {
        let (from, to) = ip[12..].split_at_mut(4);
        from.swap_with_slice(&mut to[..4]);
        set_ttl(ip, ANSWER_TTL);
        (ECHO_REQUEST, ECHO_REPLY)
    } else {
        let (from, to) = ip[8..].split_at_mut(16);
        from.swap_with_slice(to);
        ip[7] = ANSWER_TTL;
        (V6_ECHO_REQUEST, V6_ECHO_REPLY)
    };
    let change = (u16::from_be_bytes([request, 0]), u16::from_be_bytes([answer, 0]));
    icmp[0] = answer;
    adjust_checksum(&mut icmp[2..], change);
    reply
}

/// The ICMP error that tells the sender of the largest packet that fits; none
/// if the packet is shorter than what must be quoted.
pub(crate) fn too_big(frame: &[u8], packet: &Packet, own: Mac, mtu: u32) -> Option<Vec<u8>> {
    let quoted = frame.get(packet.ip_at..)?.get(..packet.header_bytes() + QUOTED_BYTES)?;
    let mut answer = frame[..packet.ip_at].to_vec();
    turn_frame(&mut answer, own);
    if packet.is_ipv4 {
        write_ipv4(&mut answer, quoted, mtu);
    } else {
        write_ipv6(&mut answer, quoted, mtu);
    }
    Some(answer)
}

fn write_ipv4(answer: &mut Vec<u8>, quoted: &[u8], mtu: u32) {
    let length = (IPV4_BYTES + ICMP_BYTES + quoted.len()) as u16;
    let mut ip = [0; IPV4_BYTES];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&length.to_be_bytes());
    ip[8] = ANSWER_TTL;
    ip[9] = PROTOCOL_ICMP;
    ip[12..16].copy_from_slice(&quoted[16..20]);
    ip[16..20].copy_from_slice(&quoted[12..16]);
    let checksum = internet_checksum(&[&ip]);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    // Less than the packet's length, which has 16 bits.
    let mtu = mtu as u16;
    let mut icmp = [UNREACHABLE, UNREACHABLE_TOO_BIG, 0, 0, 0, 0, 0, 0];
    icmp[6..].copy_from_slice(&mtu.to_be_bytes());
    let checksum = internet_checksum(&[&icmp, quoted]);
    icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
    answer.extend_from_slice(&ip);
    answer.extend_from_slice(&icmp);
    answer.extend_from_slice(quoted);
}

fn write_ipv6(answer: &mut Vec<u8>, quoted: &[u8], mtu: u32) {
    let length = ((ICMP_BYTES + quoted.len()) as u16).to_be_bytes();
    let mut ip = [0; IPV6_BYTES];
    ip[0] = 0x60;
    ip[4..6].copy_from_slice(&length);
    ip[6] = PROTOCOL_ICMPV6;
    ip[7] = ANSWER_TTL;
    ip[8..24].copy_from_slice(&quoted[24..40]);
    ip[24..40].copy_from_slice(&quoted[8..24]);
    let mut icmp = [V6_TOO_BIG, 0, 0, 0, 0, 0, 0, 0];
    icmp[4..].copy_from_slice(&mtu.to_be_bytes());
    let pseudo = [0, PROTOCOL_ICMPV6];
    let checksum = internet_checksum(&[&ip[8..], &length, &pseudo, &icmp, quoted]);
    icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
    answer.extend_from_slice(&ip);
    answer.extend_from_slice(&icmp);
    answer.extend_from_slice(quoted);
}

/// Back to where it came from.
fn turn_frame(frame: &mut [u8], own: Mac) {
    if let Some((from, _)) = macs(frame) {
        address_frame(frame, own, from);
    }
}

fn set_ttl(ip: &mut [u8], ttl: u8) {
    let change = (u16::from_be_bytes([ip[8], ip[9]]), u16::from_be_bytes([ttl, ip[9]]));
    ip[8] = ttl;
    adjust_checksum(&mut ip[10..], change);
}

/// A checksum at the start of `bytes`, after one word that it covers changed
/// (RFC 1624).
fn adjust_checksum(bytes: &mut [u8], (from, to): (u16, u16)) {
    let checksum = word(bytes, 0).unwrap_or_default();
    let sum = u32::from(!checksum) + u32::from(!from) + u32::from(to);
    bytes[..2].copy_from_slice(&fold(sum).to_be_bytes());
}

fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}
