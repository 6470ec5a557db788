//! Nodes hold virtual addresses, and releasing them restores the earlier state.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::IpAddr;

use netlink_packet_route::route::RouteType;

use super::bed::{Lan, SHORT, add_address, add_route, ip, new_second, vips, wait_until};
use crate::sysctl::{self, Knob};
use crate::{Device, Netif, Record, probe};

const KNOBS: [Knob; 3] = [Knob::ArpIgnore, Knob::ArpAnnounce, Knob::RpFilter];

/// All state that holding an address may change.
fn state(netif: &mut Netif) -> (Vec<Device>, Vec<Option<i32>>) {
    let places = ["all", "default", "lo", "eth0"];
    let settings = places.iter().flat_map(|place| KNOBS.map(|knob| sysctl::read(knob, place)));
    (netif.devices().unwrap(), settings.map(Result::unwrap).collect())
}

fn prepared(netif: &mut Netif, eth0: &Device) -> Record {
    let mut record = Record::default();
    for vip in vips() {
        netif.prepare_hold(&mut record, eth0, vip, &[]).unwrap();
    }
    record
}

/// A record as the caller stores it, and reads it after a crash.
fn stored(record: &Record) -> Record {
    serde_json::from_str(&serde_json::to_string(record).unwrap()).unwrap()
}

fn on_a_node(work: impl Fn(&mut Netif, &Device) + Send + Sync) {
    let Some(lan) = Lan::<1>::new() else { return };
    lan.machines[0].run(work);
}

#[test]
fn undoing_restores_everything_even_after_a_crash() {
    on_a_node(|netif, eth0| {
        let before = state(netif);
        let record = prepared(netif, eth0);
        assert_eq!(state(netif), before, "preparing changes nothing");
        netif.hold(&record).unwrap();
        netif.hold(&record).unwrap();
        let held = state(netif);
        let lo = netif.device("lo").unwrap();
        assert!(vips().iter().all(|vip| lo.has(*vip)));
        assert_eq!(sysctl::in_force(Knob::ArpIgnore, "eth0").unwrap(), 1);
        assert_eq!(sysctl::in_force(Knob::ArpAnnounce, "eth0").unwrap(), 2);

        // After a restart the stored record still has the first state.
        let mut record = stored(&record);
        for vip in vips() {
            netif.prepare_hold(&mut record, eth0, vip, &[]).unwrap();
        }
        netif.hold(&record).unwrap();
        assert_eq!(state(netif), held);
        netif.undo(&mut record).unwrap();
        assert!(record.is_empty());
        assert_eq!(state(netif), before);
    });
}

#[test]
fn undoing_what_was_only_prepared_changes_nothing() {
    on_a_node(|netif, eth0| {
        let before = state(netif);
        let mut record = stored(&prepared(netif, eth0));
        netif.undo(&mut record).unwrap();
        assert_eq!(state(netif), before);
    });
}

#[test]
fn one_address_goes_and_the_other_stays() {
    on_a_node(|netif, eth0| {
        let before = state(netif);
        let mut record = prepared(netif, eth0);
        netif.hold(&record).unwrap();
        let [v4, v6] = vips();
        netif.undo_vip(&mut record, v6).unwrap();
        let lo = netif.device("lo").unwrap();
        assert!(lo.has(v4) && !lo.has(v6));
        assert_eq!(record.vips().collect::<Vec<_>>(), [v4]);
        assert_eq!(sysctl::in_force(Knob::ArpIgnore, "eth0").unwrap(), 1);
        netif.undo(&mut record).unwrap();
        assert_eq!(state(netif), before);
    });
}

#[test]
fn what_the_operator_set_stays_as_it_is() {
    on_a_node(|netif, eth0| {
        let lo = netif.device("lo").unwrap();
        let [v4, _] = vips();
        add_address(netif, &lo, v4, 32);
        sysctl::write(Knob::ArpIgnore, "eth0", 2).unwrap();
        let before = state(netif);
        let mut record = prepared(netif, eth0);
        netif.hold(&record).unwrap();
        assert_eq!(sysctl::read(Knob::ArpIgnore, "eth0").unwrap(), Some(2));
        netif.undo(&mut record).unwrap();
        assert_eq!(state(netif), before);
        assert!(netif.device("lo").unwrap().has(v4));
    });
}

#[test]
fn what_somebody_changed_meanwhile_is_left_alone() {
    on_a_node(|netif, eth0| {
        let mut record = prepared(netif, eth0);
        netif.hold(&record).unwrap();
        sysctl::write(Knob::ArpIgnore, "all", 2).unwrap();
        netif.hold(&record).unwrap();
        netif.undo(&mut record).unwrap();
        assert_eq!(sysctl::read(Knob::ArpIgnore, "all").unwrap(), Some(2));
        assert_eq!(sysctl::read(Knob::ArpIgnore, "eth0").unwrap(), Some(0));
    });
}

#[test]
fn the_reverse_path_filter_is_loosened_only_where_replies_leave_elsewhere() {
    on_a_node(|netif, eth0| {
        let client = ip("198.51.100.7");
        let hold = |netif: &mut Netif, clients: &[IpAddr]| {
            let mut record = Record::default();
            netif.prepare_hold(&mut record, eth0, vips()[0], clients).unwrap();
            netif.hold(&record).unwrap();
            let value = sysctl::read(Knob::RpFilter, "eth0").unwrap();
            netif.undo(&mut record).unwrap();
            value
        };
        sysctl::write(Knob::RpFilter, "all", 0).unwrap();
        sysctl::write(Knob::RpFilter, "eth0", 1).unwrap();
        add_route(netif, (ip("198.51.0.0"), 16), RouteType::Unicast, Some(ip("10.7.0.200")));
        assert_eq!(hold(netif, &[client]), Some(1), "replies leave by eth0");
        let wan = new_second(netif, "wan");
        add_address(netif, &wan, ip("10.8.0.1"), 24);
        add_route(netif, (ip("198.51.100.0"), 24), RouteType::Unicast, Some(ip("10.8.0.2")));
        assert_eq!(hold(netif, &[client]), Some(2), "replies leave by wan");
        assert_eq!(hold(netif, &[]), Some(1), "nothing leads to the Internet");
        add_route(netif, (ip("0.0.0.0"), 0), RouteType::Unicast, Some(ip("10.8.0.2")));
        assert_eq!(hold(netif, &[]), Some(2), "wan does");
        assert_eq!(sysctl::read(Knob::RpFilter, "eth0").unwrap(), Some(1));
    });
}

#[test]
fn a_node_that_is_also_the_dispatcher_answers_while_it_is_active() {
    let Some(lan) = Lan::<2>::new() else { return };
    let [both, client] = &lan.machines;
    let owner = |vip| client.run(|_, eth0| probe(eth0, vip, SHORT).unwrap());
    let mut record = both.run(|netif, eth0| {
        let record = prepared(netif, eth0);
        netif.hold(&record).unwrap();
        record
    });
    for vip in vips() {
        assert_eq!(owner(vip), None);
        both.run(|netif, eth0| assert!(netif.claim(eth0, vip).unwrap()));
        wait_until("it answers", || owner(vip) == Some(both.mac));
        both.run(|netif, eth0| assert!(netif.release(eth0, vip).unwrap()));
        assert_eq!(owner(vip), None);
        both.run(|netif, eth0| {
            let lo = netif.device("lo").unwrap();
            assert!(lo.has(vip));
            let route = netif.route(vip, None).unwrap().unwrap();
            assert_eq!(route.device, lo.index, "it still takes packets for {vip}");
            assert!(!netif.device_at(eth0.index).unwrap().has(vip));
        });
    }
    both.run(|netif, _| netif.undo(&mut record).unwrap());
}
