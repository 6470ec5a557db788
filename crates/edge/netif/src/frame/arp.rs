//! ARP for IPv4 over Ethernet (RFC 826, RFC 5227).

use std::net::Ipv4Addr;

use super::{Claim, TYPE_ARP, ethernet};
use crate::mac::MacAddr;

/// The types Ethernet and IPv4, and the lengths of their addresses.
const HEAD: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: u16 = 1;
const REPLY: u16 = 2;

pub(super) fn announcement_request(vip: Ipv4Addr, mac: MacAddr) -> Vec<u8> {
    frame(REQUEST, (mac, vip), (MacAddr::UNKNOWN, vip))
}

/// The announcement as a reply. Linux accepts a gratuitous reply only if the target's hardware address is the
/// sender's (`arp_is_garp`), as in those of arping(8) -A.
pub(super) fn announcement_reply(vip: Ipv4Addr, mac: MacAddr) -> Vec<u8> {
    frame(REPLY, (mac, vip), (mac, vip))
}

pub(super) fn probe(address: Ipv4Addr, mac: MacAddr) -> Vec<u8> {
    frame(REQUEST, (mac, Ipv4Addr::UNSPECIFIED), (MacAddr::UNKNOWN, address))
}

/// Both requests and replies claim the sender's address: receivers update their caches from both.
pub(super) fn claim(packet: &[u8]) -> Option<Claim> {
    let (packet, _padding) = packet.split_first_chunk::<28>()?;
    let operation = u16::from_be_bytes([packet[6], packet[7]]);
    if packet[..6] != HEAD || ![REQUEST, REPLY].contains(&operation) {
        return None;
    }
    let mac = MacAddr::try_from(&packet[8..14]).ok()?;
    let address = Ipv4Addr::new(packet[14], packet[15], packet[16], packet[17]);
    if address.is_unspecified() || address.is_multicast() || address.is_broadcast() {
        return None;
    }
    Some(Claim { address: address.into(), mac })
}

fn frame(operation: u16, sender: (MacAddr, Ipv4Addr), target: (MacAddr, Ipv4Addr)) -> Vec<u8> {
    let mut frame = ethernet(MacAddr::BROADCAST, sender.0, TYPE_ARP);
    frame.extend(HEAD);
    frame.extend(operation.to_be_bytes());
    for (mac, address) in [sender, target] {
        frame.extend(mac.0);
        frame.extend(address.octets());
    }
    frame
}
