//! Derives complaints from facts; a pure function.

use std::net::IpAddr;

use super::facts::is_usable;
use super::{CheckInput, CheckedPeer, Complaint, ComplaintKind, Dispatching, Facts};
use crate::device::{Device, DeviceKind, Xdp};
use crate::mac::MacAddr;
use crate::sysctl::{ALL, Knob};

/// All complaints, in the order in which to fix them: causes precede their consequences.
pub fn judge(input: &CheckInput, facts: &Facts) -> Vec<Complaint> {
    let mut complaints = Complaints(Vec::new());
    let Some(device) = facts.device(input) else {
        let names: Vec<_> = facts.devices.iter().map(|device| device.name.as_str()).collect();
        complaints.add(
            ComplaintKind::NoDevice,
            &input.device,
            "a network device of this name",
            names.join(", "),
            "Name the device of the segment that dispatchers and nodes share.",
        );
        return complaints.0;
    };
    complaints.judge_device(device);
    complaints.judge_places(input, facts, device);
    if input.is_node && input.vips.iter().any(IpAddr::is_ipv4) {
        complaints.judge_arp(facts, device);
        complaints.judge_reverse_path(facts, device);
    }
    if input.is_node {
        complaints.judge_routes(facts);
    }
    if input.dispatching != Dispatching::No {
        complaints.judge_checksums(facts, device);
    }
    if is_usable(device) {
        complaints.judge_answerers(input, facts);
        complaints.judge_peers(input, facts, device);
    }
    complaints.0
}

struct Complaints(Vec<Complaint>);

impl Complaints {
    fn add(
        &mut self,
        fault: ComplaintKind,
        place: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.0.push(Complaint {
            fault,
            is_doubt: false,
            place: place.into(),
            expected: expected.into(),
            found: found.into(),
            remedy: remedy.into(),
        });
    }

    /// Like [`Self::add`], for a mere suspicion.
    fn doubt(
        &mut self,
        fault: ComplaintKind,
        place: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(fault, place, expected, found, remedy);
        if let Some(doubt) = self.0.last_mut() {
            doubt.is_doubt = true;
        }
    }

    fn judge_device(&mut self, device: &Device) {
        let name = &device.name;
        if device.mac.is_none() {
            let remedy = "Direct dispatch rewrites hardware addresses: name an Ethernet device.";
            self.add(ComplaintKind::NoDevice, name, "an Ethernet device", "another kind", remedy);
        } else if !device.is_up {
            let remedy = format!("Switch it on: ip link set {name} up");
            self.add(ComplaintKind::DeviceDown, name, "a device that is up", "it is down", remedy);
        } else if !device.has_carrier {
            let remedy = "Look at the cable, and at the switch or bridge at its other end.";
            self.add(ComplaintKind::NoCarrier, name, "a carrier", "none", remedy);
        }
    }

    /// A virtual address belongs on `lo` of nodes and on the segment's device
    /// of the active dispatcher, and nowhere else.
    fn judge_places(&mut self, input: &CheckInput, facts: &Facts, segment: &Device) {
        let is_active = input.dispatching == Dispatching::Active;
        for device in &facts.devices {
            let name = &device.name;
            let is_meant = match device.kind {
                DeviceKind::Loopback => input.is_node,
                _ => is_active && device.index == segment.index,
            };
            for &vip in &input.vips {
                let bits = if vip.is_ipv4() { 32 } else { 128 };
                if is_meant && !device.has(vip) {
                    let (expected, found) = (format!("the virtual address {vip}"), "it is missing");
                    let remedy = format!("Add it: ip address add {vip}/{bits} dev {name}");
                    self.add(ComplaintKind::VipMissing, name, expected, found, remedy);
                } else if !is_meant && device.has(vip) {
                    let expected = format!("no virtual address {vip}");
                    let remedy = "It belongs on lo of nodes and on the device of the active \
                         dispatcher only. Take it away, here and where it is configured.";
                    self.add(ComplaintKind::VipMisplaced, name, expected, "it is there", remedy);
                }
            }
        }
    }

    fn judge_arp(&mut self, facts: &Facts, device: &Device) {
        // The effect of 3 depends on the address's scope; of the greater values only 8 has a meaning: never
        // answer.
        if ![1, 2, 8].contains(&facts.arp_ignore) {
            let place = Knob::ArpIgnore.name(&device.name);
            let found = format!("{}: this node answers ARP for them", facts.arp_ignore);
            let expected = "1, so that only the active dispatcher answers for virtual addresses";
            self.add(ComplaintKind::AnswersArp, place, expected, found, set(Knob::ArpIgnore, 1));
        }
        if facts.arp_announce != 2 {
            let place = Knob::ArpAnnounce.name(&device.name);
            let found = format!("{}: routers learn this node's instead", facts.arp_announce);
            let expected = "2, so that no question of this node names a virtual address";
            self.add(ComplaintKind::AsksWithVip, place, expected, found, set(Knob::ArpAnnounce, 2));
        }
    }

    fn judge_reverse_path(&mut self, facts: &Facts, device: &Device) {
        if facts.rp_filter != 1 {
            return;
        }
        let leaves_elsewhere = facts.routes.iter().find_map(|(client, route)| {
            let index = route.filter(|_| client.is_ipv4())?.device;
            (index != device.index).then_some((client, index))
        });
        let Some((client, index)) = leaves_elsewhere else { return };
        let other = facts.devices.iter().find(|device| device.index == index);
        let other = other.map_or("another device", |device| &device.name);
        let name = &device.name;
        let found = format!(
            "1 (strict) while replies to clients such as {client} leave by {other}: what comes \
             from the dispatcher by {name} is dropped"
        );
        let remedy = format!("Loosen it: sysctl -w {}=2", Knob::RpFilter.name(name));
        let place = Knob::RpFilter.name(name);
        self.add(ComplaintKind::StrictReversePath, place, "2 (loose) or 0", found, remedy);
    }

    fn judge_routes(&mut self, facts: &Facts) {
        for (client, _) in facts.routes.iter().filter(|(_, route)| route.is_none()) {
            let family = if client.is_ipv4() { "-4" } else { "-6" };
            let remedy = format!(
                "Nodes reply to clients themselves. Add a default route: ip {family} route add \
                 default via ROUTER"
            );
            let expected = format!("a route to clients such as {client}");
            // If all clients are on the segment, no route is needed.
            self.doubt(ComplaintKind::NoRouteBack, "routes", expected, "none", remedy);
        }
    }

    /// A veth does not compute the checksums that its sender left to it, so a packet program that forwards
    /// its frames sends wrong ones: ping works, but TCP does not.
    fn judge_checksums(&mut self, facts: &Facts, device: &Device) {
        let (DeviceKind::Veth { .. }, Xdp::Native) = (device.kind, device.xdp) else { return };
        let name = &device.name;
        let other_end = format!("the other end of {name}");
        let expected = "tx checksum offload off, since a packet program takes its frames raw";
        let remedy = format!(
            "Switch it off there: ethtool -K DEVICE tx off; or attach the program of {name} by tc"
        );
        match facts.feeder_leaves_checksums {
            Some(false) => {}
            Some(true) => {
                self.add(
                    ComplaintKind::UnfinishedChecksums,
                    other_end,
                    expected,
                    "it is on",
                    remedy,
                );
            }
            None => {
                let found = "it is in another network namespace and cannot be seen from here";
                self.doubt(ComplaintKind::UnfinishedChecksums, other_end, expected, found, remedy);
            }
        }
    }

    fn judge_answerers(&mut self, input: &CheckInput, facts: &Facts) {
        let is_active = input.dispatching == Dispatching::Active;
        for &vip in &input.vips {
            let expected = match input.active {
                _ if is_active => "no answer but from this machine".to_owned(),
                Some(mac) => format!("an answer from the active dispatcher, {mac}, only"),
                None => continue,
            };
            let place = format!("virtual address {vip}");
            let mut is_answered = false;
            for claim in facts.answers.iter().filter(|claim| claim.address == vip) {
                is_answered = true;
                if is_active || input.active != Some(claim.mac) {
                    let found = format!("one from {}", who(claim.mac, &input.peers));
                    let remedy = "If that machine is a node, set arp_ignore there and have the \
                         address on its lo only; if not, two clusters or machines use this \
                         address, and one must give it up.";
                    self.add(ComplaintKind::WrongAnswerer, &place, &expected, found, remedy);
                }
            }
            if !is_active && !is_answered {
                let remedy = "Is the active dispatcher on the same segment and VLAN as this \
                     machine, and does a firewall or switch drop its ARP?";
                self.add(ComplaintKind::NoAnswerer, place, expected, "none", remedy);
            }
        }
    }

    fn judge_peers(&mut self, input: &CheckInput, facts: &Facts, device: &Device) {
        for peer in &input.peers {
            let place = format!("{} ({})", peer.name, peer.address);
            let answers = || facts.answers.iter().filter(|claim| claim.address == peer.address);
            if answers().next().is_none() {
                let expected = format!("an answer on the segment of {}", device.name);
                let remedy = "Direct dispatch needs all machines in one layer-2 segment: look at \
                     cables, VLANs and whether a router stands between.";
                self.add(ComplaintKind::PeerNotFound, &place, expected, "none", remedy);
            }
            for claim in answers().filter(|claim| claim.mac != peer.mac) {
                let expected = format!("{}, as in its heartbeats", peer.mac);
                let found = who(claim.mac, &input.peers);
                let remedy = "Two machines have this address, or a proxy answers for it: give \
                     each machine its own address on the segment.";
                self.add(ComplaintKind::PeerDiffers, &place, expected, found, remedy);
            }
            if peer.mtu != 0 && peer.mtu != device.mtu {
                let expected = format!("an MTU of {} as on {} here", device.mtu, device.name);
                let found = format!("{}", peer.mtu);
                let remedy = "Larger packets than a machine's MTU are lost on the way to it: \
                     give all devices of the segment the same.";
                self.add(ComplaintKind::MtuDiffers, place, expected, found, remedy);
            }
        }
    }
}

fn set(knob: Knob, value: i32) -> String {
    let name = knob.name(ALL);
    format!("Set it: sysctl -w {name}={value}, and look in /etc/sysctl.d for what sets it back")
}

/// A hardware address, with the machine's name if it belongs to the cluster.
fn who(mac: MacAddr, peers: &[CheckedPeer]) -> String {
    match peers.iter().find(|peer| peer.mac == mac) {
        Some(peer) => format!("{} ({mac})", peer.name),
        None => format!("{mac}, which is no machine of this cluster that is known here"),
    }
}
