//! Machines in network namespaces on one segment: a bridge in a namespace of its own, and a veth from it to
//! each machine. Nothing has a name outside, so the kernel removes everything when the last descriptor is
//! closed, even if the process is killed.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::{self, File};
use std::io::{Write, stderr};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use crate::route::{family, host_prefix_bits};
use crate::{Device, DeviceIndex, MacAddr, Netif, probe};

/// Timeout of waits that end with an answer.
pub(super) const LONG: Duration = Duration::from_secs(20);
/// Duration of a wait for answers that must not arrive; real ones take microseconds.
pub(super) const SHORT: Duration = Duration::from_millis(200);

/// A network namespace.
pub(super) struct Namespace(OwnedFd);

impl Namespace {
    /// Creates a namespace with `lo` up; `None` without root.
    pub(super) fn new() -> Option<Self> {
        let made = thread::spawn(|| {
            unshare_network().ok()?;
            File::open("/proc/thread-self/ns/net").ok().map(OwnedFd::from)
        });
        let Some(namespace) = made.join().unwrap().map(Self) else {
            let _ = writeln!(stderr(), "SKIPPED: needs root, to make network namespaces");
            return None;
        };
        namespace.run(|| {
            let _ = fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0");
            let mut netif = Netif::open().unwrap();
            let lo = netif.device("lo").unwrap().index;
            set_link(&mut netif, lo, true, vec![]);
        });
        Some(namespace)
    }

    /// Runs `work` on a thread of its own in the namespace.
    pub(super) fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let in_namespace = || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(self.0.as_fd(), kind).unwrap();
            work()
        };
        match thread::scope(|scope| scope.spawn(in_namespace).join()) {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

#[expect(unsafe_code, reason = "leaves a namespace, on a thread that ends right after")]
fn unshare_network() -> rustix::io::Result<()> {
    // SAFETY: neither descriptors nor memory nor file system state are unshared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
}

/// A machine on the segment, with the device `eth0`.
pub(super) struct Machine {
    pub(super) namespace: Namespace,
    pub(super) mac: MacAddr,
    pub(super) v4: IpAddr,
    pub(super) v6: IpAddr,
    /// The bridge's end of its veth.
    port: DeviceIndex,
}

impl Machine {
    /// Runs `work` in its namespace, with its network and its device on the segment.
    pub(super) fn run<R: Send>(&self, work: impl FnOnce(&mut Netif, &Device) -> R + Send) -> R {
        self.namespace.run(|| {
            let mut netif = Netif::open().unwrap();
            let device = netif.device("eth0").unwrap();
            work(&mut netif, &device)
        })
    }
}

/// The segment.
pub(super) struct Lan<const N: usize> {
    hub: Namespace,
    pub(super) machines: [Machine; N],
}

impl<const N: usize> Lan<N> {
    /// Creates `N` machines with the addresses 10.7.0.1, fd07::1 and so on, which reach each other; `None`
    /// without root.
    pub(super) fn new() -> Option<Self> {
        let hub = Namespace::new()?;
        let bridge = hub.run(|| {
            let mut netif = Netif::open().unwrap();
            new_link(&mut netif, "br0", vec![LinkInfo::Kind(InfoKind::Bridge)]);
            let bridge = netif.device("br0").unwrap().index;
            set_link(&mut netif, bridge, true, vec![]);
            bridge
        });
        let machines = std::array::from_fn(|at| machine(&hub, bridge, at as u8 + 1));
        let lan = Self { hub, machines };
        for machine in &lan.machines {
            for other in lan.machines.iter().filter(|other| other.mac != machine.mac) {
                let reaches =
                    |ip| machine.run(|_, eth0| probe(eth0, ip, SHORT).unwrap() == Some(other.mac));
                wait_until("machines reach each other", || reaches(other.v4) && reaches(other.v6));
            }
        }
        Some(lan)
    }

    /// Disconnects or connects a machine, at the bridge.
    pub(super) fn set_cable(&self, machine: &Machine, is_plugged: bool) {
        self.hub.run(|| set_link(&mut Netif::open().unwrap(), machine.port, is_plugged, vec![]));
    }
}

fn machine(hub: &Namespace, bridge: DeviceIndex, number: u8) -> Machine {
    let namespace = Namespace::new().unwrap();
    let mac = MacAddr([2, 0, 0, 0, 7, number]);
    let port = hub.run(|| {
        let mut netif = Netif::open().unwrap();
        let name = format!("port{number}");
        let inside = LinkAttribute::NetNsFd(namespace.0.as_raw_fd());
        let device = LinkAttribute::IfName("eth0".to_owned());
        new_veth(&mut netif, &name, vec![inside, device, LinkAttribute::Address(mac.0.to_vec())]);
        let port = netif.device(&name).unwrap().index;
        set_link(&mut netif, port, true, vec![LinkAttribute::Controller(bridge)]);
        port
    });
    let v4: IpAddr = [10, 7, 0, number].into();
    let v6: IpAddr = [0xfd07, 0, 0, 0, 0, 0, 0, number.into()].into();
    let machine = Machine { namespace, mac, v4, v6, port };
    machine.run(|netif, eth0| {
        set_link(netif, eth0.index, true, vec![]);
        add_address(netif, eth0, v4, 24);
        add_address(netif, eth0, v6, 64);
    });
    machine
}

/// Creates a veth that is up and has a carrier, since both of its ends are here.
pub(super) fn new_second(netif: &mut Netif, name: &str) -> Device {
    let other = format!("{name}-end");
    new_veth(netif, name, vec![LinkAttribute::IfName(other.clone())]);
    for end in [other.as_str(), name] {
        let index = netif.device(end).unwrap().index;
        set_link(netif, index, true, vec![]);
    }
    netif.device(name).unwrap()
}

/// Creates a veth; `peer` are the attributes of its other end.
fn new_veth(netif: &mut Netif, name: &str, peer: Vec<LinkAttribute>) {
    let mut message = LinkMessage::default();
    message.attributes = peer;
    let data = LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(message)));
    new_link(netif, name, vec![LinkInfo::Kind(InfoKind::Veth), data]);
}

fn new_link(netif: &mut Netif, name: &str, info: Vec<LinkInfo>) {
    let mut message = LinkMessage::default();
    message.attributes =
        vec![LinkAttribute::IfName(name.to_owned()), LinkAttribute::LinkInfo(info)];
    create(netif, RouteNetlinkMessage::NewLink(message));
}

/// Brings a device up or down, and changes its `attributes`.
pub(super) fn set_link(
    netif: &mut Netif,
    index: DeviceIndex,
    is_up: bool,
    attributes: Vec<LinkAttribute>,
) {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.header.flags = if is_up { LinkFlags::Up } else { LinkFlags::empty() };
    message.header.change_mask = LinkFlags::Up;
    message.attributes = attributes;
    netif.netlink.ask("set a device", 0, &RouteNetlinkMessage::SetLink(message)).unwrap();
}

pub(super) fn add_address(netif: &mut Netif, device: &Device, ip: IpAddr, prefix_bits: u8) {
    let mut message = AddressMessage::default();
    message.header.family = family(ip);
    message.header.prefix_len = prefix_bits;
    message.header.index = device.index;
    message.attributes = vec![AddressAttribute::Local(ip), AddressAttribute::Address(ip)];
    if ip.is_ipv6() {
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    create(netif, RouteNetlinkMessage::NewAddress(message));
}

/// Adds a route to a network: through a gateway, or refusing packets with `kind`.
pub(super) fn add_route(
    netif: &mut Netif,
    to: (IpAddr, u8),
    kind: RouteType,
    gateway: Option<IpAddr>,
) {
    add_route_in(netif, RouteHeader::RT_TABLE_MAIN, to, kind, gateway);
}

/// Adds a route to a table other than the main one.
pub(super) fn add_route_in(
    netif: &mut Netif,
    table: u8,
    to: (IpAddr, u8),
    kind: RouteType,
    gateway: Option<IpAddr>,
) {
    let mut message = RouteMessage::default();
    message.header.address_family = family(to.0);
    message.header.destination_prefix_length = to.1;
    message.header.table = table;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = RouteScope::Universe;
    message.header.kind = kind;
    message.attributes.push(RouteAttribute::Destination(to.0.into()));
    message.attributes.extend(gateway.map(|ip| RouteAttribute::Gateway(ip.into())));
    create(netif, RouteNetlinkMessage::NewRoute(message));
}

/// Routes packets from `source` by `table`.
pub(super) fn add_rule(netif: &mut Netif, source: IpAddr, table: u8) {
    let mut message = RuleMessage::default();
    message.header.family = family(source);
    message.header.src_len = host_prefix_bits(source);
    message.header.action = RuleAction::ToTable;
    message.header.table = table;
    message.attributes.push(RuleAttribute::Source(source));
    create(netif, RouteNetlinkMessage::NewRule(message));
}

/// Adds a neighbour entry of `ip` at `mac`.
pub(super) fn set_neighbour(netif: &mut Netif, device: &Device, ip: IpAddr, mac: MacAddr) {
    let mut message = NeighbourMessage::default();
    message.header.family = family(ip);
    message.header.ifindex = device.index;
    message.header.state = NeighbourState::Reachable;
    message.attributes = vec![
        NeighbourAttribute::Destination(NeighbourAddress::from(ip)),
        NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()),
    ];
    let message = RouteNetlinkMessage::NewNeighbour(message);
    let flags = NLM_F_CREATE | NLM_F_REPLACE;
    netif.netlink.ask("set a neighbour", flags, &message).unwrap();
}

/// Returns the hardware address of `ip` in the machine's neighbour table.
pub(super) fn neighbour(netif: &mut Netif, ip: IpAddr) -> Option<MacAddr> {
    let mut question = NeighbourMessage::default();
    question.header.family = family(ip);
    let question = RouteNetlinkMessage::GetNeighbour(question);
    let wanted = NeighbourAttribute::Destination(NeighbourAddress::from(ip));
    netif.netlink.list("list neighbours", &question).unwrap().iter().find_map(|message| {
        let RouteNetlinkMessage::NewNeighbour(message) = message else { return None };
        message.attributes.contains(&wanted).then_some(())?;
        message.attributes.iter().find_map(|attribute| match attribute {
            NeighbourAttribute::LinkLayerAddress(bytes) => MacAddr::try_from(bytes.as_slice()).ok(),
            _ => None,
        })
    })
}

fn create(netif: &mut Netif, message: RouteNetlinkMessage) {
    netif.netlink.ask("build the test bed", NLM_F_CREATE | NLM_F_EXCL, &message).unwrap();
}

/// Waits until a condition holds, by polling.
pub(super) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "never came true: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A virtual address of either family.
pub(super) fn vips() -> [IpAddr; 2] {
    [ip("10.7.0.80"), ip("fd07::80")]
}
