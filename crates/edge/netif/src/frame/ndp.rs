//! IPv6 neighbour discovery over Ethernet (RFC 4861, RFC 2464).

use std::net::Ipv6Addr;

use super::{Claim, TYPE_IPV6, ethernet, internet_checksum};
use crate::limits::OPTIONS_MAX;
use crate::mac::MacAddr;

const IPV6_BYTES: usize = 40;
/// The length of type, code, checksum, flags and target address.
const MESSAGE_BYTES: usize = 24;

const ICMPV6: u8 = 58;
/// A packet with this hop limit has passed no router (RFC 4861 section 7.1).
const HOP_LIMIT: u8 = 255;

const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// The override flag, in the first byte of the flags.
const OVERRIDE: u8 = 0x20;

const SOURCE_MAC: u8 = 1;
const TARGET_MAC: u8 = 2;

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// An unsolicited advertisement. Its source is the address itself, as in those of the kernel.
pub(super) fn advertisement(vip: Ipv6Addr, mac: MacAddr) -> Vec<u8> {
    let mut message = message(ADVERTISEMENT, OVERRIDE, vip);
    message.extend([TARGET_MAC, 1]);
    message.extend(mac.0);
    frame(mac, vip, ALL_NODES, message)
}

/// A solicitation. Its destination is the solicited-node multicast group of `address`.
pub(super) fn solicitation(address: Ipv6Addr, mac: MacAddr) -> Vec<u8> {
    let [.., a, b, c] = address.octets();
    let low = u16::from_be_bytes([b, c]);
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), low);
    frame(mac, Ipv6Addr::UNSPECIFIED, group, message(SOLICITATION, 0, address))
}

/// The claim of a packet: an advertisement claims its target, a solicitation its sender's address. Validated
/// as RFC 4861 sections 7.1.1 and 7.1.2 require. `source` is the frame's.
pub(super) fn claim(packet: &[u8], source: MacAddr) -> Option<Claim> {
    let (head, rest) = packet.split_first_chunk::<IPV6_BYTES>()?;
    let len = u16::from_be_bytes([head[4], head[5]]);
    let message = rest.get(..usize::from(len))?;
    if head[0] >> 4 != 6 || head[6] != ICMPV6 || head[7] != HOP_LIMIT {
        return None;
    }
    let (from, to) = (address(&head[8..24])?, address(&head[24..40])?);
    let (fixed, options) = message.split_first_chunk::<MESSAGE_BYTES>()?;
    let target = address(&fixed[8..24])?;
    if fixed[1] != 0 || target.is_multicast() || checksum(from, to, message) != 0 {
        return None;
    }
    let (address, option) = match fixed[0] {
        ADVERTISEMENT => (target, TARGET_MAC),
        SOLICITATION => (from, SOURCE_MAC),
        _ => return None,
    };
    if address.is_unspecified() || address.is_multicast() {
        return None;
    }
    let mac = mac_option(options, option)?.unwrap_or(source);
    Some(Claim { address: address.into(), mac })
}

/// The hardware address in the options, if present; `None` if the options are malformed.
fn mac_option(mut options: &[u8], wanted: u8) -> Option<Option<MacAddr>> {
    let mut found = None;
    for _ in 0..OPTIONS_MAX {
        let [kind, eights, ..] = *options else { break };
        // A length of 0 would loop forever (RFC 4861 section 4.6).
        let (option, rest) = options.split_at_checked(usize::from(eights) * 8)?;
        if option.is_empty() {
            return None;
        }
        if kind == wanted && found.is_none() {
            found = MacAddr::try_from(&option[2..8]).ok();
        }
        options = rest;
    }
    Some(found)
}

fn address(bytes: &[u8]) -> Option<Ipv6Addr> {
    <[u8; 16]>::try_from(bytes).ok().map(Ipv6Addr::from)
}

fn message(kind: u8, flags: u8, target: Ipv6Addr) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, flags, 0, 0, 0];
    message.extend(target.octets());
    message
}

/// Prepends Ethernet and IPv6 headers to `message`, and sets its checksum.
fn frame(mac: MacAddr, from: Ipv6Addr, to: Ipv6Addr, mut message: Vec<u8>) -> Vec<u8> {
    let sum = checksum(from, to, &message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    // Multicast groups have hardware addresses that end with their last four bytes (RFC 2464 section 7).
    let [.., a, b, c, d] = to.octets();
    let mut frame = ethernet(MacAddr([0x33, 0x33, a, b, c, d]), mac, TYPE_IPV6);
    let len = message.len() as u16;
    frame.extend([0x60, 0, 0, 0]);
    frame.extend(len.to_be_bytes());
    frame.extend([ICMPV6, HOP_LIMIT]);
    frame.extend(from.octets());
    frame.extend(to.octets());
    frame.extend(message);
    frame
}

/// The checksum for `message`; 0 if the message already has a valid one (RFC 8200 section 8.1).
fn checksum(from: Ipv6Addr, to: Ipv6Addr, message: &[u8]) -> u16 {
    let length = (message.len() as u32).to_be_bytes();
    let ends = [from.octets(), to.octets()].concat();
    internet_checksum(&[&ends, &length, &[0, ICMPV6], message])
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A frame with any addresses and options, and a valid checksum.
    pub(crate) fn message(kind: u8, source: u128, target: u128, options: &[u8]) -> Vec<u8> {
        let mut message = super::message(kind, 0, target.into());
        message.extend(options);
        frame(MacAddr([2, 0, 0, 0, 0, 1]), source.into(), ALL_NODES, message)
    }

    #[test]
    fn options_tell_the_mac_and_malformed_ones_discard_the_message() {
        let mac = MacAddr([2, 0, 0, 0, 0, 9]);
        let option = [2, 1, 2, 0, 0, 0, 0, 9];
        let other = [14, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for (options, expected) in [
            (vec![], Some(None)),
            (option.to_vec(), Some(Some(mac))),
            ([&other[..], &option].concat(), Some(Some(mac))),
            ([1, 1, 2, 0, 0, 0, 0, 8].to_vec(), Some(None)),
            ([2, 0, 2, 0, 0, 0, 0, 9].to_vec(), None),
            ([2, 2, 2, 0, 0, 0, 0, 9].to_vec(), None),
        ] {
            assert_eq!(mac_option(&options, TARGET_MAC), expected, "{options:?}");
        }
    }
}
