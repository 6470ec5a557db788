//! Frames that claim or probe addresses: encodes ours, parses those of others.
//!
//! Invariant: parsing never panics, whatever the bytes; a malformed frame claims nothing.

mod arp;
mod ndp;
mod tcp;

use std::net::IpAddr;

use crate::mac::MacAddr;

pub(crate) use tcp::question as question_of_connection;

pub(crate) const ETHERNET_BYTES: usize = 14;
pub(crate) const TYPE_ARP: u16 = 0x0806;
pub(crate) const TYPE_IPV6: u16 = 0x86dd;

/// A claim of an address by a machine on the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    pub address: IpAddr,
    /// The claimed hardware address.
    pub mac: MacAddr,
}

/// Returns the frames that announce on the segment that `mac` has `vip` from now on.
///
/// IPv4: an ARP announcement as a request (RFC 5227 section 3) and as a reply, because some receivers accept
/// only one of them. IPv6: an unsolicited neighbour advertisement with the override flag (RFC 4861 section
/// 7.2.6).
pub(crate) fn announcements(vip: IpAddr, mac: MacAddr) -> Vec<Vec<u8>> {
    match vip {
        IpAddr::V4(vip) => {
            vec![arp::announcement_request(vip, mac), arp::announcement_reply(vip, mac)]
        }
        IpAddr::V6(vip) => vec![ndp::advertisement(vip, mac)],
    }
}

/// Returns the frame that probes for `address`, without our own address: an ARP probe (RFC 5227 section
/// 2.1.1), or a solicitation as in duplicate address detection (RFC 4862 section 5.4.2).
pub(crate) fn question(address: IpAddr, mac: MacAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => arp::probe(address, mac),
        IpAddr::V6(address) => ndp::solicitation(address, mac),
    }
}

/// Internet checksum (RFC 1071) over `parts`, of which all but the last have an even number of bytes.
fn internet_checksum(parts: &[&[u8]]) -> u16 {
    let word = |pair: &[u8]| u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    let mut sum: u32 = parts.iter().flat_map(|part| part.chunks(2)).map(word).sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

/// Returns the claim that a frame makes; `None` if it makes none, or is malformed. Probes without a sender's
/// address claim nothing.
pub(crate) fn claim(frame: &[u8]) -> Option<Claim> {
    let (header, payload) = frame.split_first_chunk::<ETHERNET_BYTES>()?;
    let source = MacAddr::try_from(&header[6..12]).ok()?;
    let claim = match u16::from_be_bytes([header[12], header[13]]) {
        TYPE_ARP => arp::claim(payload),
        TYPE_IPV6 => ndp::claim(payload, source),
        _ => None,
    }?;
    claim.mac.is_single().then_some(claim)
}

fn ethernet(to: MacAddr, from: MacAddr, ether_type: u16) -> Vec<u8> {
    [&to.0[..], &from.0, &ether_type.to_be_bytes()].concat()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const OWN: MacAddr = MacAddr([0x02, 0, 0, 0, 0, 0x0a]);

    /// Parses hexadecimal digits; spaces are ignored.
    fn bytes(text: &str) -> Vec<u8> {
        let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
        digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_ipv4_announcement_is_a_request_and_a_reply() {
        let frames = announcements(ip("192.0.2.80"), OWN);
        let head = "ffffffffffff 02000000000a 0806 0001 0800 06 04";
        assert_eq!(
            frames,
            [
                bytes(&format!("{head} 0001 02000000000a c0000250 000000000000 c0000250")),
                bytes(&format!("{head} 0002 02000000000a c0000250 02000000000a c0000250")),
            ]
        );
    }

    #[test]
    fn an_ipv6_announcement_overrides() {
        let frames = announcements(ip("2001:db8::80"), OWN);
        let expected = "333300000001 02000000000a 86dd 60000000 0020 3a ff \
             20010db8000000000000000000000080 ff020000000000000000000000000001 \
             88 00 f823 20000000 20010db8000000000000000000000080 02 01 02000000000a";
        assert_eq!(frames, [bytes(expected)]);
    }

    #[test]
    fn questions_name_no_address_of_ours() {
        let arp = "ffffffffffff 02000000000a 0806 0001 0800 06 04 0001 \
             02000000000a 00000000 000000000000 c0000250";
        assert_eq!(question(ip("192.0.2.80"), OWN), bytes(arp));
        let ndp = "3333ff000080 02000000000a 86dd 60000000 0018 3a ff \
             00000000000000000000000000000000 ff0200000000000000000001ff000080 \
             87 00 4bef 00000000 20010db8000000000000000000000080";
        assert_eq!(question(ip("2001:db8::80"), OWN), bytes(ndp));
    }

    #[test]
    fn announcements_claim_and_questions_do_not() {
        for vip in [ip("192.0.2.80"), ip("2001:db8::80")] {
            let expected = Some(Claim { address: vip, mac: OWN });
            for frame in announcements(vip, OWN) {
                assert_eq!(claim(&frame), expected);
            }
            assert_eq!(claim(&question(vip, OWN)), None);
        }
    }

    #[test]
    fn malformed_frames_say_nothing() {
        let arp = announcements(ip("192.0.2.80"), OWN).remove(0);
        let ndp = announcements(ip("2001:db8::80"), OWN).remove(0);
        for (frame, at, value, what) in [
            (&arp, 12, 0x81, "ethertype"),
            (&arp, 15, 6, "hardware type"),
            (&arp, 16, 0x86, "protocol type"),
            (&arp, 18, 8, "length of hardware addresses"),
            (&arp, 19, 16, "length of protocol addresses"),
            (&arp, 21, 3, "operation"),
            (&arp, 22, 0x03, "sender is a group"),
            (&ndp, 14, 0x40, "version"),
            (&ndp, 19, 0x21, "length, longer than the frame"),
            (&ndp, 19, 0x17, "length, shorter than an advertisement"),
            (&ndp, 20, 17, "next header"),
            (&ndp, 21, 254, "hop limit: a router was passed"),
            (&ndp, 54, 134, "type"),
            (&ndp, 55, 1, "code"),
            (&ndp, 57, 0xff, "checksum"),
        ] {
            let mut frame = frame.clone();
            frame[at] = value;
            assert_eq!(claim(&frame), None, "{what}");
        }
        for frame in [arp, ndp] {
            for len in 0..frame.len() {
                assert_eq!(claim(&frame[..len]), None, "{len} bytes");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(frame in vec(any::<u8>(), 0..200)) {
            let _ = claim(&frame);
        }

        /// A half-valid frame exercises more of the parser than random bytes do.
        #[test]
        fn damaged_frames_are_read_without_harm(
            is_ipv6: bool,
            damage in vec((0usize..90, any::<u8>()), 0..6),
            len in 0usize..100,
            tail in vec(any::<u8>(), 0..40),
        ) {
            let vip = if is_ipv6 { ip("2001:db8::80") } else { ip("192.0.2.80") };
            let mut frame = announcements(vip, OWN).remove(0);
            frame.truncate(len);
            frame.extend(tail);
            for (at, value) in damage {
                if let Some(byte) = frame.get_mut(at) {
                    *byte = value;
                }
            }
            if let Some(claim) = claim(&frame) {
                prop_assert!(claim.mac.is_single());
                prop_assert!(!claim.address.is_unspecified() && !claim.address.is_multicast());
            }
        }

        /// A valid checksum, so that options of every form are reached.
        #[test]
        fn options_of_any_shape_are_read_without_harm(
            options in vec(any::<u8>(), 0..80),
            kind in prop_oneof![Just(135u8), Just(136u8)],
            source: u128,
            target: u128,
        ) {
            let frame = ndp::tests::message(kind, source, target, &options);
            if let Some(claim) = claim(&frame) {
                prop_assert!(claim.mac.is_single());
                let said = if kind == 135 { source } else { target };
                prop_assert_eq!(claim.address, IpAddr::V6(said.into()));
            }
        }
    }
}
