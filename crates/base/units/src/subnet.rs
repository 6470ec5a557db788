//! A network of IP addresses, as `IP` or `IP/BITS`.

use std::net::IpAddr;
use std::str::FromStr;

/// The addresses with the same leading bits.
#[derive(Clone, Copy, Debug)]
pub struct Subnet {
    address: IpAddr,
    bits: u8,
}

/// A text is not a [`Subnet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an IP address, or one and `/` and the number of its leading bits")]
pub struct NotASubnet;

impl Subnet {
    /// The length of the common prefix in bits: of two subnets that contain an address, the one
    /// with more bits lies within the other.
    pub fn bits(&self) -> u32 {
        match self.address.to_canonical() {
            IpAddr::V4(_) => u32::from(self.bits.min(32)),
            IpAddr::V6(_) => u32::from(self.bits),
        }
    }

    /// Whether `ip` is in it. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.address.to_canonical(), ip.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(ip)) => {
                (own.to_bits() ^ ip.to_bits()).leading_zeros() >= self.bits()
            }
            (IpAddr::V6(own), IpAddr::V6(ip)) => {
                (own.to_bits() ^ ip.to_bits()).leading_zeros() >= self.bits()
            }
            _ => false,
        }
    }
}

/// Subnets with the same addresses are equal, however they are written.
impl PartialEq for Subnet {
    fn eq(&self, other: &Self) -> bool {
        self.bits() == other.bits() && self.contains(other.address)
    }
}

impl Eq for Subnet {}

impl FromStr for Subnet {
    type Err = NotASubnet;

    fn from_str(text: &str) -> Result<Self, NotASubnet> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NotASubnet)?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(bits_max), |bits| bits.parse().map_err(|_| NotASubnet))?;
        if bits > bits_max { Err(NotASubnet) } else { Ok(Self { address, bits }) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_network_has_the_addresses_of_its_leading_bits() {
        for (network, ip, is_in) in [
            ("192.0.2.0/24", "192.0.2.255", true),
            ("192.0.2.0/24", "::ffff:192.0.2.7", true),
            ("192.0.2.0/24", "192.0.3.0", false),
            ("192.0.2.0/24", "2001:db8::1", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.6", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("2001:db8::/32", "2001:db9::", false),
            ("::/0", "2001:db8::", true),
        ] {
            let network = network.parse::<Subnet>().unwrap();
            assert_eq!(network.contains(ip.parse().unwrap()), is_in, "{ip} in {network:?}");
        }
        for wrong in ["", "192.0.2.0/33", "192.0.2.0/", "::/129", "a/8", "192.0.2/24"] {
            assert_eq!(wrong.parse::<Subnet>(), Err(NotASubnet), "{wrong}");
        }
    }

    #[test]
    fn the_same_network_may_be_written_in_several_ways() {
        let network = |text: &str| text.parse::<Subnet>().unwrap();
        assert_eq!(network("192.0.2.0/24"), network("192.0.2.77/24"));
        assert_eq!(network("192.0.2.7"), network("::ffff:192.0.2.7"));
        assert_ne!(network("192.0.2.0/24"), network("192.0.2.0/25"));
        assert_ne!(network("192.0.2.0/24"), network("192.0.3.0/24"));
        assert_ne!(network("0.0.0.0/0"), network("::/0"));
    }
}
