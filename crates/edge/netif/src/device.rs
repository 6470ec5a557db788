//! Network devices and the addresses on them.

use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, LinkXdp, XdpAttached,
};

use crate::error::Error;
use crate::mac::MacAddr;
use crate::netif::Netif;

/// The kernel's index of a device, unique within its network namespace.
pub type DeviceIndex = u32;

/// A network device, at the time of the query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub index: DeviceIndex,
    pub name: String,
    pub kind: DeviceKind,
    /// Its hardware address, if it is an Ethernet device.
    pub mac: Option<MacAddr>,
    /// Size of the largest IP packet that it sends, in bytes.
    pub mtu: u32,
    /// Whether it is administratively up.
    pub is_up: bool,
    /// Whether it has a carrier.
    pub has_carrier: bool,
    /// The packet program before the kernel's network stack.
    pub xdp: Xdp,
    pub addresses: Vec<Address>,
}

impl Device {
    /// Whether it has this address, with any prefix length.
    pub fn has(&self, ip: IpAddr) -> bool {
        self.addresses.iter().any(|address| address.ip == ip)
    }
}

/// Kinds of devices that are treated differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// `lo`.
    Loopback,
    /// One end of a virtual Ethernet pair (veth).
    Veth {
        /// The other end, if it is in the same network namespace.
        peer: Option<DeviceIndex>,
    },
    /// Any other.
    Other,
}

/// How a packet program is attached before the network stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Xdp {
    /// No program is attached.
    None,
    /// In the driver.
    Native,
    /// After the driver, on the kernel's buffers.
    Generic,
    /// In the network card.
    Offloaded,
}

/// An address of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Length of its prefix, in bits.
    pub prefix_bits: u8,
}

impl Netif {
    /// Returns all devices with their addresses, ordered by index.
    pub fn devices(&mut self) -> Result<Vec<Device>, Error> {
        let question = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let links = self.netlink.list("list network devices", &question)?;
        let mut devices: Vec<Device> = links.iter().filter_map(device).collect();
        devices.sort_by_key(|device| device.index);
        let question = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        for message in self.netlink.list("list addresses", &question)? {
            let RouteNetlinkMessage::NewAddress(message) = message else { continue };
            let index = message.header.index;
            let owner = devices.iter_mut().find(|device| device.index == index);
            if let (Some(device), Some(address)) = (owner, address(&message)) {
                device.addresses.push(address);
            }
        }
        Ok(devices)
    }

    pub fn device(&mut self, name: &str) -> Result<Device, Error> {
        self.find(format!("called {name}"), |device| device.name == name)
    }

    /// Returns the device that has this address.
    pub fn device_of(&mut self, ip: IpAddr) -> Result<Device, Error> {
        self.find(format!("with the address {ip}"), |device| device.has(ip))
    }

    /// Returns the device with this index.
    pub fn device_at(&mut self, index: DeviceIndex) -> Result<Device, Error> {
        self.find(format!("with the number {index}"), |device| device.index == index)
    }

    fn find(&mut self, wanted: String, fits: impl Fn(&Device) -> bool) -> Result<Device, Error> {
        let devices = self.devices()?;
        devices.iter().find(|device| fits(device)).cloned().ok_or_else(|| {
            let describe = |device: &Device| {
                let ips: Vec<_> = device.addresses.iter().map(|a| a.ip.to_string()).collect();
                format!("{} ({})", device.name, ips.join(" "))
            };
            let found: Vec<_> = devices.iter().map(describe).collect();
            Error::NoDevice { wanted, found: found.join(", ") }
        })
    }
}

fn device(message: &RouteNetlinkMessage) -> Option<Device> {
    let RouteNetlinkMessage::NewLink(message) = message else { return None };
    let flags = message.header.flags;
    let is_loopback = flags.contains(LinkFlags::Loopback);
    let mut device = Device {
        index: message.header.index,
        name: String::new(),
        kind: if is_loopback { DeviceKind::Loopback } else { DeviceKind::Other },
        mac: None,
        mtu: 0,
        is_up: flags.contains(LinkFlags::Up),
        has_carrier: flags.contains(LinkFlags::LowerUp),
        xdp: Xdp::None,
        addresses: Vec::new(),
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => device.name.clone_from(name),
            LinkAttribute::Address(bytes) if !is_loopback => {
                device.mac = MacAddr::try_from(bytes.as_slice()).ok();
            }
            LinkAttribute::Mtu(mtu) => device.mtu = *mtu,
            LinkAttribute::Xdp(facts) => device.xdp = xdp(facts),
            LinkAttribute::LinkInfo(infos) if infos.contains(&LinkInfo::Kind(InfoKind::Veth)) => {
                device.kind = DeviceKind::Veth { peer: visible_peer(message) };
            }
            _ => {}
        }
    }
    Some(device)
}

/// The other end of a veth. Its index counts in its own namespace, which the kernel states only if it is
/// another one.
fn visible_peer(message: &LinkMessage) -> Option<DeviceIndex> {
    let attributes = &message.attributes;
    if attributes.iter().any(|attribute| matches!(attribute, LinkAttribute::LinkNetNsId(_))) {
        return None;
    }
    attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Link(index) => Some(*index),
        _ => None,
    })
}

fn xdp(facts: &[LinkXdp]) -> Xdp {
    let attached = facts.iter().find_map(|fact| match fact {
        LinkXdp::Attached(attached) => Some(attached),
        _ => None,
    });
    match attached {
        None | Some(XdpAttached::None) => Xdp::None,
        Some(XdpAttached::SocketBuffer) => Xdp::Generic,
        Some(XdpAttached::Hardware) => Xdp::Offloaded,
        // Several programs at once always include one in the driver.
        Some(_) => Xdp::Native,
    }
}

/// Parses an address. For an IPv4 address of a point-to-point link, `Local` is ours and `Address` the other
/// end's; otherwise `Local` may be missing.
fn address(message: &AddressMessage) -> Option<Address> {
    let attributes = &message.attributes;
    let local = attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(ip) => Some(*ip),
        _ => None,
    });
    let plain = attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(ip) => Some(*ip),
        _ => None,
    });
    let ip = local.or(plain)?;
    Some(Address { ip, prefix_bits: message.header.prefix_len })
}
