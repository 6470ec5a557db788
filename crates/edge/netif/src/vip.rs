//! Adds and removes virtual addresses on devices, one by one.
//!
//! Invariant: only a /32 or /128 that the caller named is changed.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressMessage, AddressScope, CacheInfo,
};

use crate::device::{Device, DeviceKind};
use crate::error::Error;
use crate::netif::Netif;
use crate::route::{family, host_prefix_bits};
use crate::sysctl::{self, Knob};

/// An infinite lifetime, in seconds (RFC 4861 section 4.6.2).
const FOREVER_S: u32 = u32::MAX;

impl Netif {
    /// Adds `vip` to `device`, as a dispatcher does on its segment's device. Returns whether it was added: if
    /// the device already has it, with any prefix length, nothing is changed.
    pub fn claim(&mut self, device: &Device, vip: IpAddr) -> Result<bool, Error> {
        check_vip(vip)?;
        if self.device_at(device.index)?.has(vip) {
            return Ok(false);
        }
        self.add(device, vip)
    }

    /// Adds each of `vips` that `device` does not have. A failure does not stop the others: returns the
    /// addresses that `device` has now, and the first failure.
    pub fn claim_all(
        &mut self,
        device: &Device,
        vips: &[IpAddr],
    ) -> Result<(Vec<IpAddr>, Option<Error>), Error> {
        let found = self.device_at(device.index)?;
        let (mut held, mut failure) = (Vec::new(), None);
        for &vip in vips {
            let mut there = || check_vip(vip).and_then(|()| self.add(device, vip).map(drop));
            match if found.has(vip) { Ok(()) } else { there() } {
                Ok(()) => held.push(vip),
                Err(error) => drop(failure.get_or_insert(error)),
            }
        }
        Ok((held, failure))
    }

    /// Removes each of `vips` from `device`, as [`Netif::release`] does. A failure does not stop the
    /// others; returns the first.
    pub fn release_all(&mut self, device: &Device, vips: &[IpAddr]) -> Result<(), Error> {
        let released = vips.iter().map(|vip| self.release(device, *vip).map(drop));
        released.fold(Ok(()), Result::and)
    }

    /// Has `device` send ARP requests with the machine's own address as sender, even on behalf of a packet
    /// from another address. Receivers take the sender's address for an announcement, and virtual addresses
    /// are announced at certain times only. Is not reverted.
    pub fn ask_as_itself(&self, device: &Device) -> Result<(), Error> {
        match sysctl::in_force(Knob::ArpAnnounce, &device.name)? {
            ..2 => sysctl::write(Knob::ArpAnnounce, &device.name, 2),
            2.. => Ok(()),
        }
    }

    fn add(&mut self, device: &Device, vip: IpAddr) -> Result<bool, Error> {
        let action = format!("put {vip} on {}", device.name);
        let message = RouteNetlinkMessage::NewAddress(host_address(device, vip));
        match self.netlink.ask(&action, NLM_F_CREATE | NLM_F_EXCL, &message) {
            Ok(_) => Ok(true),
            Err(error) if error.errno() == Some(libc::EEXIST) => Ok(false),
            Err(error) if error.errno() == Some(libc::EACCES) && vip.is_ipv6() => {
                Err(Error::Ipv6Off { action, device: device.name.clone() })
            }
            Err(error) => Err(error),
        }
    }

    /// Removes `vip` from `device`: only the /32 or /128 that [`Netif::claim`] adds. Returns whether it was
    /// there.
    pub fn release(&mut self, device: &Device, vip: IpAddr) -> Result<bool, Error> {
        check_vip(vip)?;
        let action = format!("take {vip} from {}", device.name);
        let message = RouteNetlinkMessage::DelAddress(host_address(device, vip));
        match self.netlink.ask(&action, 0, &message) {
            Ok(_) => Ok(true),
            Err(error) if error.errno() == Some(libc::EADDRNOTAVAIL) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Rejects an address that cannot be a virtual address.
pub(crate) fn check_vip(vip: IpAddr) -> Result<(), Error> {
    let is_special = match vip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some(),
    };
    if is_special || vip.is_unspecified() || vip.is_loopback() || vip.is_multicast() {
        return Err(Error::NotAVip { address: vip });
    }
    Ok(())
}

/// `vip` as a host address. The kernel must not choose it as the source of local connections, whose replies
/// would be steered to some node: IPv4 on `lo` has host scope, IPv6 is deprecated from the beginning (RFC
/// 6724 section 5, rule 3). No duplicate address detection: it would disable the address for a second, and
/// the caller probes for other owners itself.
fn host_address(device: &Device, vip: IpAddr) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(vip);
    message.header.prefix_len = host_prefix_bits(vip);
    message.header.index = device.index;
    message.attributes.push(AddressAttribute::Local(vip));
    message.attributes.push(AddressAttribute::Address(vip));
    if vip.is_ipv6() {
        let mut lifetime = CacheInfo::default();
        lifetime.ifa_preferred = 0;
        lifetime.ifa_valid = FOREVER_S;
        message.attributes.push(AddressAttribute::CacheInfo(lifetime));
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    } else if device.kind == DeviceKind::Loopback {
        message.header.scope = AddressScope::Host;
    }
    message
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn what_is_no_address_of_one_host_is_no_virtual_address() {
        for (address, is_vip) in [
            ("192.0.2.1", true),
            ("10.0.0.1", true),
            ("2001:db8::1", true),
            ("fd00::1", true),
            ("0.0.0.0", false),
            ("127.0.0.2", false),
            ("169.254.1.1", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("fe80::1", false),
            ("ff02::1", false),
            ("::ffff:192.0.2.1", false),
        ] {
            assert_eq!(check_vip(address.parse().unwrap()).is_ok(), is_vip, "{address}");
        }
    }
}
