//! A TCP segment that makes the other end of a connection send an acknowledgment.

use std::net::IpAddr;

use super::internet_checksum;

/// Length of a TCP header without options, in bytes.
pub(crate) const TCP_BYTES: usize = 20;

const PROTOCOL_TCP: u8 = 6;
const FLAG_ACK: u8 = 0x10;

/// Builds an empty segment with an acknowledgment and the sequence number `sequence`, from `from` to `to`
/// (address and port).
///
/// If the number is outside of its window, the peer of the connection replies with an acknowledgment of the
/// sequence number that it expects (RFC 9293 section 3.10.7.4).
pub(crate) fn question(from: (IpAddr, u16), to: (IpAddr, u16), sequence: u32) -> [u8; TCP_BYTES] {
    let mut segment = [0; TCP_BYTES];
    segment[0..2].copy_from_slice(&from.1.to_be_bytes());
    segment[2..4].copy_from_slice(&to.1.to_be_bytes());
    segment[4..8].copy_from_slice(&sequence.to_be_bytes());
    segment[12] = ((TCP_BYTES / 4) as u8) << 4;
    segment[13] = FLAG_ACK;
    let checksum = checksum(from.0, to.0, &segment);
    segment[16..18].copy_from_slice(&checksum.to_be_bytes());
    segment
}

/// Checksum, including the pseudo header (RFC 9293 section 3.1).
fn checksum(from: IpAddr, to: IpAddr, segment: &[u8]) -> u16 {
    let protocol = u16::from(PROTOCOL_TCP).to_be_bytes();
    let length = (segment.len() as u16).to_be_bytes();
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            internet_checksum(&[&from.octets(), &to.octets(), &protocol, &length, segment])
        }
        _ => internet_checksum(&[&octets(from), &octets(to), &protocol, &length, segment]),
    }
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_segment_is_an_acknowledgment_with_a_right_checksum() {
        for (from, to) in
            [([10, 0, 0, 1].into(), [10, 0, 0, 2].into()), ([1u16; 8].into(), [2u16; 8].into())]
        {
            let (from, to): (IpAddr, IpAddr) = (from, to);
            let segment = question((from, 80), (to, 4000), 0x8000_0001);
            assert_eq!(&segment[..8], &[0, 80, 15, 160, 0x80, 0, 0, 1]);
            assert_eq!((segment[12], segment[13]), (0x50, 0x10));
            assert_eq!(checksum(from, to, &segment), 0);
        }
    }
}
