//! Tests of the judge, by a table: facts with one change, and the expected complaints.
//! tidy: table

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::device::{Address, Device, DeviceKind, Xdp};
use crate::frame::Claim;
use crate::route::Route;

const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const ACTIVE: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const NODE: MacAddr = MacAddr([2, 0, 0, 0, 0, 3]);
const FOREIGN: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn device(index: u32, name: &str, kind: DeviceKind, ips: &[&str]) -> Device {
    let address = |text: &&str| Address { ip: ip(text), prefix_bits: 24 };
    Device {
        index,
        name: name.to_owned(),
        kind,
        mac: (kind != DeviceKind::Loopback).then_some(OWN),
        mtu: 1500,
        is_up: true,
        has_carrier: true,
        xdp: Xdp::None,
        addresses: ips.iter().map(address).collect(),
    }
}

fn claim(address: &str, mac: MacAddr) -> Claim {
    Claim { address: ip(address), mac }
}

fn via(device: u32) -> Option<Route> {
    Some(Route { device, gateway: Some(ip("10.0.0.254")), source: None })
}

/// A node without faults: `eth0` is the segment's device, `eth1` another one.
fn node() -> (CheckInput, Facts) {
    let peer =
        CheckedPeer { name: "node-2".to_owned(), address: ip("10.0.0.3"), mac: NODE, mtu: 1500 };
    let input = CheckInput {
        device: "eth0".to_owned(),
        vips: vec![ip("10.0.0.80"), ip("fd00::80")],
        is_node: true,
        dispatching: Dispatching::No,
        active: Some(ACTIVE),
        peers: vec![peer],
        clients: vec![],
        wait: Duration::ZERO,
    };
    let facts = Facts {
        devices: vec![
            device(1, "lo", DeviceKind::Loopback, &["127.0.0.1", "10.0.0.80", "fd00::80"]),
            device(2, "eth0", DeviceKind::Other, &["10.0.0.1"]),
            device(3, "eth1", DeviceKind::Other, &[]),
        ],
        arp_ignore: 1,
        arp_announce: 2,
        rp_filter: 1,
        routes: vec![(ip("198.41.0.4"), via(2)), (ip("2001:503::30"), via(2))],
        feeder_leaves_checksums: None,
        answers: vec![
            claim("10.0.0.80", ACTIVE),
            claim("fd00::80", ACTIVE),
            claim("10.0.0.3", NODE),
        ],
    };
    (input, facts)
}

/// An active dispatcher without faults.
fn dispatcher() -> (CheckInput, Facts) {
    let (mut input, mut facts) = node();
    input.is_node = false;
    input.dispatching = Dispatching::Active;
    input.active = None;
    facts.devices[0] = device(1, "lo", DeviceKind::Loopback, &["127.0.0.1"]);
    facts.devices[1] = device(2, "eth0", DeviceKind::Other, &["10.0.0.2", "10.0.0.80", "fd00::80"]);
    facts.answers.retain(|claim| claim.mac == NODE);
    facts.arp_ignore = 0;
    facts.arp_announce = 0;
    (input, facts)
}

type Change = fn(&mut CheckInput, &mut Facts);

fn verdict(sound: fn() -> (CheckInput, Facts), change: Change) -> Vec<Complaint> {
    let (mut input, mut facts) = sound();
    change(&mut input, &mut facts);
    judge(&input, &facts)
}

fn expect(sound: fn() -> (CheckInput, Facts), cases: &[(&str, Change, &[ComplaintKind])]) {
    for (what, change, expected) in cases {
        let complaints = verdict(sound, *change);
        let faults: Vec<_> = complaints.iter().map(|complaint| complaint.fault).collect();
        assert_eq!(faults, *expected, "{what}: {complaints:#?}");
    }
}

#[test]
fn nodes() {
    let cases: &[(&str, Change, &[ComplaintKind])] = &[
        ("sound", |_, _| {}, &[]),
        ("no device", |i, _| i.device = "eth9".to_owned(), &[ComplaintKind::NoDevice]),
        ("no Ethernet", |_, f| f.devices[1].mac = None, &[ComplaintKind::NoDevice]),
        ("down", |_, f| f.devices[1].is_up = false, &[ComplaintKind::DeviceDown]),
        ("no carrier", |_, f| f.devices[1].has_carrier = false, &[ComplaintKind::NoCarrier]),
        ("one missing", |_, f| f.devices[0].addresses.truncate(2), &[ComplaintKind::VipMissing]),
        ("all missing", |_, f| f.devices[0].addresses.clear(), &[ComplaintKind::VipMissing; 2]),
        (
            "on the segment's device too",
            |_, f| f.devices[1].addresses.push(Address { ip: ip("fd00::80"), prefix_bits: 128 }),
            &[ComplaintKind::VipMisplaced],
        ),
        ("arp_ignore 0", |_, f| f.arp_ignore = 0, &[ComplaintKind::AnswersArp]),
        ("arp_ignore 2", |_, f| f.arp_ignore = 2, &[]),
        ("arp_ignore 3", |_, f| f.arp_ignore = 3, &[ComplaintKind::AnswersArp]),
        ("arp_ignore 8", |_, f| f.arp_ignore = 8, &[]),
        ("arp_announce 1", |_, f| f.arp_announce = 1, &[ComplaintKind::AsksWithVip]),
        (
            "IPv6 needs no settings",
            |i, f| {
                i.vips.remove(0);
                (f.arp_ignore, f.arp_announce) = (0, 0);
                f.routes.remove(0);
            },
            &[],
        ),
        ("strict, other way", |_, f| f.routes[0].1 = via(3), &[ComplaintKind::StrictReversePath]),
        ("IPv6 is not filtered", |_, f| f.routes[1].1 = via(3), &[]),
        ("loose, other way", |_, f| (f.rp_filter, f.routes[0].1) = (2, via(3)), &[]),
        ("no route", |_, f| f.routes[1].1 = None, &[ComplaintKind::NoRouteBack]),
        ("foreign answer", |_, f| f.answers[0].mac = FOREIGN, &[ComplaintKind::WrongAnswerer]),
        (
            "foreign answer beside the right one",
            |_, f| f.answers.push(claim("fd00::80", FOREIGN)),
            &[ComplaintKind::WrongAnswerer],
        ),
        ("no answer", |_, f| f.answers[1] = f.answers[0], &[ComplaintKind::NoAnswerer]),
        (
            "active is not known",
            |i, f| {
                i.active = None;
                f.answers.remove(0);
            },
            &[],
        ),
        ("peer is silent", |_, f| f.answers.truncate(2), &[ComplaintKind::PeerNotFound]),
        ("peer elsewhere", |_, f| f.answers[2].mac = FOREIGN, &[ComplaintKind::PeerDiffers]),
        ("peer's MTU", |i, _| i.peers[0].mtu = 9000, &[ComplaintKind::MtuDiffers]),
        ("peer's MTU is not known", |i, _| i.peers[0].mtu = 0, &[]),
    ];
    expect(node, cases);
}

#[test]
fn dispatchers() {
    fn veth(facts: &mut Facts, xdp: Xdp, feeder_leaves_checksums: Option<bool>) {
        facts.devices[1].kind = DeviceKind::Veth { peer: None };
        facts.devices[1].xdp = xdp;
        facts.feeder_leaves_checksums = feeder_leaves_checksums;
    }
    let cases: &[(&str, Change, &[ComplaintKind])] = &[
        ("sound", |_, _| {}, &[]),
        ("missing", |_, f| f.devices[1].addresses.clear(), &[ComplaintKind::VipMissing; 2]),
        ("needs no routes", |_, f| f.routes[0].1 = None, &[]),
        (
            "on lo, without being a node",
            |_, f| f.devices[0].addresses.push(Address { ip: ip("fd00::80"), prefix_bits: 128 }),
            &[ComplaintKind::VipMisplaced],
        ),
        (
            "another answers",
            |_, f| f.answers.push(claim("10.0.0.80", NODE)),
            &[ComplaintKind::WrongAnswerer],
        ),
        (
            "standby that has them",
            |i, f| {
                (i.dispatching, i.active) = (Dispatching::Standby, Some(ACTIVE));
                f.answers.extend([claim("10.0.0.80", ACTIVE), claim("fd00::80", ACTIVE)]);
            },
            &[ComplaintKind::VipMisplaced; 2],
        ),
        (
            "also a node",
            |i, f| {
                i.is_node = true;
                f.devices[0] = node().1.devices.remove(0);
                (f.arp_ignore, f.arp_announce) = (1, 2);
            },
            &[],
        ),
        ("veth, tc", |_, f| veth(f, Xdp::None, None), &[]),
        ("veth, generic", |_, f| veth(f, Xdp::Generic, None), &[]),
        ("veth, whole", |_, f| veth(f, Xdp::Native, Some(false)), &[]),
        (
            "veth, not whole",
            |_, f| veth(f, Xdp::Native, Some(true)),
            &[ComplaintKind::UnfinishedChecksums],
        ),
        ("veth, unseen", |_, f| veth(f, Xdp::Native, None), &[ComplaintKind::UnfinishedChecksums]),
    ];
    expect(dispatcher, cases);
    let unseen = verdict(dispatcher, |_, f| veth(f, Xdp::Native, None));
    assert!(unseen[0].is_doubt, "what cannot be seen is only suspected");
}

#[test]
fn sentences_say_where_what_and_what_to_do() {
    let cases: &[(Change, &str)] = &[
        (
            |_, f| f.answers[0].mac = NODE,
            "virtual address 10.0.0.80: expected an answer from the active dispatcher, \
             02:00:00:00:00:02, only, found one from node-2 (02:00:00:00:00:03). If that machine \
             is a node, set arp_ignore there and have the address on its lo only; if not, two \
             clusters or machines use this address, and one must give it up.",
        ),
        (
            |_, f| f.devices[0].addresses.truncate(2),
            "lo: expected the virtual address fd00::80, found it is missing. Add it: ip address \
             add fd00::80/128 dev lo",
        ),
        (
            |_, f| f.routes[0].1 = via(3),
            "net.ipv4.conf.eth0.rp_filter: expected 2 (loose) or 0, found 1 (strict) while \
             replies to clients such as 198.41.0.4 leave by eth1: what comes from the dispatcher \
             by eth0 is dropped. Loosen it: sysctl -w net.ipv4.conf.eth0.rp_filter=2",
        ),
        (
            |_, f| f.routes[1].1 = None,
            "routes: expected a route to clients such as 2001:503::30, found none. Nodes reply to \
             clients themselves. Add a default route: ip -6 route add default via ROUTER",
        ),
    ];
    for (change, expected) in cases {
        let complaints = verdict(node, *change);
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        assert_eq!(complaints[0].to_string(), *expected);
    }
}
