//! Tests of devices, routes, offloads and notifications.

#![allow(clippy::unwrap_used, reason = "tests")]

use netlink_packet_route::link::LinkAttribute;
use netlink_packet_route::route::RouteType;

use super::bed::{Lan, Namespace, add_route, ip, new_second, set_link, wait_until};
use crate::{DeviceKind, Error, LinkWatch, Netif, Xdp, offloads, set_tx_checksum};

#[test]
fn a_device_is_described_and_found_by_name_and_address() {
    let Some(lan) = Lan::<2>::new() else { return };
    let [a, _] = &lan.machines;
    a.run(|netif, eth0| {
        assert_eq!((eth0.mac, eth0.mtu), (Some(a.mac), 1500));
        assert!(eth0.is_up && eth0.has_carrier);
        assert_eq!((eth0.kind, eth0.xdp), (DeviceKind::Veth { peer: None }, Xdp::None));
        assert!(eth0.has(a.v4) && eth0.has(a.v6));
        assert_eq!(netif.device_of(a.v6).unwrap().index, eth0.index);
        assert_eq!(netif.device_of(ip("127.0.0.1")).unwrap().kind, DeviceKind::Loopback);
        assert_eq!(netif.device_at(eth0.index).unwrap(), netif.device("eth0").unwrap());
        let error = netif.device("eth7").unwrap_err().to_string();
        assert!(error.starts_with("no network device called eth7: this machine has lo"), "{error}");
        assert!(error.contains("10.7.0.1"), "{error}");
        assert!(matches!(netif.device_of(ip("10.9.9.9")), Err(Error::NoDevice { .. })));
    });
}

#[test]
fn a_veth_whose_other_end_is_here_names_it() {
    let Some(namespace) = Namespace::new() else { return };
    namespace.run(|| {
        let mut netif = Netif::open().unwrap();
        let (one, other) = (new_second(&mut netif, "one"), netif.device("one-end").unwrap());
        assert_eq!(one.kind, DeviceKind::Veth { peer: Some(other.index) });
        assert_eq!(other.kind, DeviceKind::Veth { peer: Some(one.index) });
    });
}

#[test]
fn routes_tell_device_gateway_and_source() {
    let Some(lan) = Lan::<2>::new() else { return };
    let [a, b] = &lan.machines;
    a.run(|netif, eth0| {
        for (own, neighbour, network, refused, far) in [
            (a.v4, b.v4, (ip("198.51.100.0"), 24), ip("203.0.113.0"), ip("198.51.100.7")),
            (a.v6, b.v6, (ip("2001:db8:1::"), 48), ip("2001:db8:2::"), ip("2001:db8:1::7")),
        ] {
            let near = netif.route(neighbour, None).unwrap().unwrap();
            assert_eq!((near.device, near.gateway, near.source), (eth0.index, None, Some(own)));
            assert_eq!(netif.route(far, None).unwrap(), None, "no route to {far} yet");
            add_route(netif, network, RouteType::Unicast, Some(neighbour));
            let route = netif.route(far, Some(own)).unwrap().unwrap();
            assert_eq!((route.device, route.gateway), (eth0.index, Some(neighbour)));
            let kinds = [RouteType::Unreachable, RouteType::Prohibit, RouteType::BlackHole];
            for (bits, kind) in (0..).zip(kinds) {
                let prefix_bits = if own.is_ipv4() { 24 } else { 48 } + bits;
                add_route(netif, (refused, prefix_bits), kind, None);
                assert_eq!(netif.route(refused, None).unwrap(), None, "{kind:?}");
            }
        }
    });
}

#[test]
fn checksums_can_be_left_to_the_kernel() {
    let Some(lan) = Lan::<1>::new() else { return };
    lan.machines[0].run(|netif, eth0| {
        assert!(offloads(eth0).unwrap().unwrap().tx_checksum);
        set_tx_checksum(eth0, false).unwrap();
        assert!(!offloads(eth0).unwrap().unwrap().tx_checksum);
        set_tx_checksum(eth0, true).unwrap();
        assert!(offloads(eth0).unwrap().unwrap().tx_checksum);
        offloads(&netif.device("lo").unwrap()).unwrap();
    });
}

#[test]
fn news_come_when_a_cable_is_pulled_and_plugged() {
    let Some(lan) = Lan::<2>::new() else { return };
    let [a, _] = &lan.machines;
    let mut watch = a.run(|_, _| LinkWatch::open().unwrap());
    let mut netif = a.run(|_, _| Netif::open().unwrap());
    let mut learns = |has_carrier: bool| {
        wait_until("news of the carrier", || {
            watch.has_changes().unwrap() && netif.device("eth0").unwrap().has_carrier == has_carrier
        });
    };
    lan.set_cable(a, false);
    learns(false);
    lan.set_cable(a, true);
    learns(true);
    a.run(|netif, eth0| set_link(netif, eth0.index, true, vec![LinkAttribute::Mtu(1400)]));
    wait_until("news of the MTU", || watch.has_changes().unwrap());
}
