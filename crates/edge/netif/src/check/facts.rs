//! Gathers the facts for [`super::judge`].

use std::net::IpAddr;

use super::CheckInput;
use crate::claims::survey;
use crate::device::{Device, DeviceKind, Xdp};
use crate::error::Error;
use crate::frame::Claim;
use crate::netif::Netif;
use crate::offload::offloads;
use crate::route::{Route, clients_of};
use crate::sysctl::{self, Knob};

/// The state of this machine and its segment.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// All devices.
    pub devices: Vec<Device>,
    /// `arp_ignore` in force on the segment's device.
    pub arp_ignore: i32,
    /// `arp_announce` in force there.
    pub arp_announce: i32,
    /// `rp_filter` in force there.
    pub rp_filter: i32,
    /// The route to each sample of clients, if there is one.
    pub routes: Vec<(IpAddr, Option<Route>)>,
    /// Whether the other end of a veth leaves checksums to it; `None` if that end is not in this
    /// network namespace.
    pub feeder_leaves_checksums: Option<bool>,
    /// Machines that answered for the virtual addresses and the peers'.
    pub answers: Vec<Claim>,
}

impl Facts {
    /// The segment's device.
    pub(super) fn device(&self, input: &CheckInput) -> Option<&Device> {
        self.devices.iter().find(|device| device.name == input.device)
    }
}

/// Inspects this machine and queries its segment. Facts that depend on a missing or disabled device
/// stay empty.
pub fn gather(netif: &mut Netif, input: &CheckInput) -> Result<Facts, Error> {
    let mut facts = Facts { devices: netif.devices()?, ..Facts::default() };
    let Some(device) = facts.device(input).cloned() else { return Ok(facts) };
    facts.arp_ignore = sysctl::in_force(Knob::ArpIgnore, &device.name)?;
    facts.arp_announce = sysctl::in_force(Knob::ArpAnnounce, &device.name)?;
    facts.rp_filter = sysctl::in_force(Knob::RpFilter, &device.name)?;
    facts.feeder_leaves_checksums = feeder_leaves_checksums(&facts.devices, &device)?;
    facts.routes = routes(netif, input, &facts.devices)?;
    if is_usable(&device) {
        let peers = input.peers.iter().map(|peer| peer.address);
        let asked: Vec<_> = input.vips.iter().copied().chain(peers).collect();
        facts.answers = match asked.is_empty() {
            true => Vec::new(),
            false => survey(&device, &asked, input.wait)?,
        };
    }
    Ok(facts)
}

/// The routes of replies to clients, for each family of virtual addresses.
fn routes(
    netif: &mut Netif,
    input: &CheckInput,
    devices: &[Device],
) -> Result<Vec<(IpAddr, Option<Route>)>, Error> {
    let mut routes = Vec::new();
    for is_ipv4 in [true, false] {
        let vips = || input.vips.iter().copied().filter(|vip| vip.is_ipv4() == is_ipv4);
        let Some(first) = vips().next() else { continue };
        // Rules may route by source, but the kernel refuses source addresses that this machine does not have.
        let source = vips().find(|vip| devices.iter().any(|device| device.has(*vip)));
        for client in clients_of(first, &input.clients) {
            routes.push((client, netif.route(client, source)?));
        }
    }
    Ok(routes)
}

/// Whether frames can be sent and received.
pub(super) fn is_usable(device: &Device) -> bool {
    device.mac.is_some() && device.is_up && device.has_carrier
}

fn feeder_leaves_checksums(devices: &[Device], device: &Device) -> Result<Option<bool>, Error> {
    let (DeviceKind::Veth { peer: Some(peer) }, Xdp::Native) = (device.kind, device.xdp) else {
        return Ok(None);
    };
    let Some(feeder) = devices.iter().find(|feeder| feeder.index == peer) else { return Ok(None) };
    Ok(offloads(feeder)?.map(|offloads| offloads.tx_checksum))
}
