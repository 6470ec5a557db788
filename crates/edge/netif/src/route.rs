//! Looks up the routes of packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::device::DeviceIndex;
use crate::error::Error;
use crate::netif::Netif;

/// The route of a packet out of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The output device.
    pub device: DeviceIndex,
    /// The gateway; `None` if the target is on the segment.
    pub gateway: Option<IpAddr>,
    /// The source address that the kernel would choose.
    pub source: Option<IpAddr>,
}

impl Netif {
    /// Returns the route of a packet to `to`, from this machine's address `from` if given. `None` if there is
    /// no route, or one that refuses packets.
    pub fn route(&mut self, to: IpAddr, from: Option<IpAddr>) -> Result<Option<Route>, Error> {
        let question = RouteNetlinkMessage::GetRoute(question(to, from));
        let answers = match self.netlink.ask(&format!("find the route to {to}"), 0, &question) {
            Ok(answers) => answers,
            Err(error) if is_unreachable(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(answers.iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(message) => route(message),
            _ => None,
        }))
    }
}

/// The kernel's errors for routes that are missing, unreachable, prohibited or black holes.
fn is_unreachable(error: &Error) -> bool {
    const NONE: [i32; 4] = [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EACCES, libc::EINVAL];
    error.errno().is_some_and(|errno| NONE.contains(&errno))
}

fn question(to: IpAddr, from: Option<IpAddr>) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(to);
    message.header.destination_prefix_length = host_prefix_bits(to);
    message.attributes.push(RouteAttribute::Destination(to.into()));
    if let Some(from) = from {
        message.header.source_prefix_length = host_prefix_bits(from);
        message.attributes.push(RouteAttribute::Source(from.into()));
    }
    message
}

fn route(message: &RouteMessage) -> Option<Route> {
    if !matches!(message.header.kind, RouteType::Unicast | RouteType::Local) {
        return None;
    }
    let mut device = None;
    let (mut gateway, mut source) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => device = Some(*index),
            RouteAttribute::Gateway(address) => gateway = ip(address),
            RouteAttribute::PrefSource(address) => source = ip(address),
            _ => {}
        }
    }
    Some(Route { device: device?, gateway, source })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}

/// The address that represents the Internet in route lookups; nothing is sent to it. It is that of the root
/// name server A, which no router treats as bogus.
const FAR_AWAY: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(198, 41, 0, 4)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0x503, 0xba3e, 0, 0, 0, 2, 0x30)),
];

/// Returns the targets of replies in the family of `vip`: the addresses in `clients`, or a distant one if
/// there are none.
pub(crate) fn clients_of(vip: IpAddr, clients: &[IpAddr]) -> Vec<IpAddr> {
    let of_family = |all: &[IpAddr]| -> Vec<IpAddr> {
        all.iter().copied().filter(|ip| ip.is_ipv4() == vip.is_ipv4()).collect()
    };
    let given = of_family(clients);
    if given.is_empty() { of_family(&FAR_AWAY) } else { given }
}

pub(crate) fn family(ip: IpAddr) -> AddressFamily {
    match ip {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

/// Length of the prefix of a single address, in bits.
pub(crate) fn host_prefix_bits(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}
