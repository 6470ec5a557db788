//! The self-check finds misconfigurations, which the tests actually create.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{Write, stderr};
use std::net::IpAddr;
use std::ptr;

use netlink_packet_route::link::{LinkAttribute, LinkXdp};
use netlink_packet_route::route::RouteType;

use super::bed::{
    Lan, Machine, Namespace, SHORT, add_address, add_route, add_route_in, add_rule, ip, new_second,
    set_link, vips,
};
use crate::check::ComplaintKind;
use crate::sysctl::{self, Knob};
use crate::{
    CheckInput, CheckedPeer, Complaint, Device, Dispatching, Netif, Record, check, set_tx_checksum,
};

/// A dispatcher that has the virtual addresses, and a node that holds them and has routes to clients, without
/// any fault. `None` without root.
fn sound() -> Option<Lan<3>> {
    let lan = Lan::new()?;
    let [dispatcher, node, _] = &lan.machines;
    dispatcher.run(|netif, eth0| {
        for vip in vips() {
            netif.claim(eth0, vip).unwrap();
        }
    });
    node.run(|netif, eth0| {
        let mut record = Record::default();
        for vip in vips() {
            netif.prepare_hold(&mut record, eth0, vip, &[]).unwrap();
        }
        netif.hold(&record).unwrap();
        for (everywhere, router) in [("0.0.0.0", "10.7.0.250"), ("::", "fd07::250")] {
            add_route(netif, (ip(everywhere), 0), RouteType::Unicast, Some(ip(router)));
        }
    });
    Some(lan)
}

fn peer(name: &str, machine: &Machine, address: IpAddr) -> CheckedPeer {
    CheckedPeer { name: name.to_owned(), address, mac: machine.mac, mtu: 1500 }
}

fn node_input(lan: &Lan<3>) -> CheckInput {
    let [dispatcher, _, _] = &lan.machines;
    CheckInput {
        device: "eth0".to_owned(),
        vips: vips().to_vec(),
        is_node: true,
        dispatching: Dispatching::No,
        active: Some(dispatcher.mac),
        peers: vec![peer("dispatcher-1", dispatcher, dispatcher.v4)],
        clients: vec![],
        // A machine that does not answer in time is a fault.
        wait: 5 * SHORT,
    }
}

fn dispatcher_input(lan: &Lan<3>) -> CheckInput {
    let [_, node, _] = &lan.machines;
    let peers = vec![peer("node-1", node, node.v4), peer("node-1", node, node.v6)];
    let (dispatching, active) = (Dispatching::Active, None);
    CheckInput { is_node: false, dispatching, active, peers, ..node_input(lan) }
}

/// The complaints of the dispatcher and of the node, without those about a veth whose other end cannot be
/// inspected.
fn complaints(lan: &Lan<3>) -> [Vec<Complaint>; 2] {
    let [dispatcher, node, _] = &lan.machines;
    [(dispatcher, dispatcher_input(lan)), (node, node_input(lan))].map(|(machine, input)| {
        let complaints =
            machine.namespace.run(|| check(&mut Netif::open().unwrap(), &input).unwrap());
        for complaint in &complaints {
            eprintln!("{complaint}");
        }
        complaints
    })
}

fn faults(lan: &Lan<3>) -> [Vec<ComplaintKind>; 2] {
    complaints(lan).map(|found| found.iter().map(|complaint| complaint.fault).collect())
}

/// Misconfigures the node, and returns the complaints of dispatcher and node.
fn with_mistake(
    mistake: impl FnOnce(&mut Netif, &Device) + Send,
) -> Option<[Vec<ComplaintKind>; 2]> {
    let lan = sound()?;
    lan.machines[1].run(mistake);
    Some(faults(&lan))
}

#[test]
fn nothing_is_wrong_where_nothing_is_wrong() {
    let Some(lan) = sound() else { return };
    assert_eq!(complaints(&lan), [vec![], vec![]]);
}

#[test]
fn a_missing_virtual_address_is_found() {
    let Some(found) = with_mistake(|netif, _| {
        let lo = netif.device("lo").unwrap();
        assert!(netif.release(&lo, vips()[1]).unwrap());
    }) else {
        return;
    };
    assert_eq!(found, [vec![], vec![ComplaintKind::VipMissing]]);
}

#[test]
fn a_node_that_answers_arp_is_found_by_itself_and_by_the_dispatcher() {
    let Some(lan) = sound() else { return };
    let [_, node, _] = &lan.machines;
    node.run(|_, _| {
        for place in ["all", "eth0"] {
            sysctl::write(Knob::ArpIgnore, place, 0).unwrap();
        }
    });
    let [dispatcher, node] = complaints(&lan);
    assert_eq!(node.iter().map(|c| c.fault).collect::<Vec<_>>(), [ComplaintKind::AnswersArp]);
    assert_eq!(dispatcher.len(), 1);
    assert_eq!(dispatcher[0].fault, ComplaintKind::WrongAnswerer);
    let sentence = dispatcher[0].to_string();
    let expected = "virtual address 10.7.0.80: expected no answer but from this machine, found \
         one from node-1 (02:00:00:00:07:02). If that machine is a node";
    assert!(sentence.starts_with(expected), "{sentence}");
}

#[test]
fn a_node_that_asks_with_the_virtual_address_is_found() {
    let Some(found) = with_mistake(|_, _| {
        for place in ["all", "eth0"] {
            sysctl::write(Knob::ArpAnnounce, place, 0).unwrap();
        }
    }) else {
        return;
    };
    assert_eq!(found, [vec![], vec![ComplaintKind::AsksWithVip]]);
}

#[test]
fn an_address_on_the_nodes_device_is_found_on_both_sides() {
    let Some(found) = with_mistake(|netif, eth0| {
        netif.claim(eth0, vips()[1]).unwrap();
    }) else {
        return;
    };
    assert_eq!(found[0], [ComplaintKind::WrongAnswerer]);
    assert_eq!(found[1], [ComplaintKind::VipMisplaced]);
}

#[test]
fn another_machine_with_the_address_is_found_by_all() {
    let Some(lan) = sound() else { return };
    lan.machines[2].run(|netif, eth0| netif.claim(eth0, vips()[0]).unwrap());
    assert_eq!(
        faults(&lan),
        [vec![ComplaintKind::WrongAnswerer], vec![ComplaintKind::WrongAnswerer]]
    );
}

#[test]
fn an_address_that_nobody_answers_for_is_found() {
    let Some(lan) = sound() else { return };
    lan.machines[0].run(|netif, eth0| netif.release(eth0, vips()[1]).unwrap());
    assert_eq!(faults(&lan), [vec![ComplaintKind::VipMissing], vec![ComplaintKind::NoAnswerer]]);
}

#[test]
fn a_strict_reverse_path_filter_is_found_where_replies_leave_elsewhere() {
    let Some(found) = with_mistake(|netif, _| {
        let wan = new_second(netif, "wan");
        add_address(netif, &wan, ip("10.8.0.1"), 24);
        add_route(netif, (ip("0.0.0.0"), 1), RouteType::Unicast, Some(ip("10.8.0.2")));
        add_route(netif, (ip("128.0.0.0"), 1), RouteType::Unicast, Some(ip("10.8.0.2")));
        sysctl::write(Knob::RpFilter, "all", 0).unwrap();
        sysctl::write(Knob::RpFilter, "eth0", 1).unwrap();
    }) else {
        return;
    };
    assert_eq!(found, [vec![], vec![ComplaintKind::StrictReversePath]]);
}

#[test]
fn a_node_without_a_route_to_clients_is_found() {
    let Some(found) = with_mistake(|netif, _| {
        for (network, bits) in [("198.0.0.0", 8), ("2001:500::", 24)] {
            add_route(netif, (ip(network), bits), RouteType::Unreachable, None);
        }
    }) else {
        return;
    };
    assert_eq!(found, [vec![], vec![ComplaintKind::NoRouteBack, ComplaintKind::NoRouteBack]]);
}

#[test]
fn a_route_for_the_virtual_addresses_alone_is_enough() {
    const TABLE: u8 = 100;
    let Some(found) = with_mistake(|netif, _| {
        for (vip, router) in vips().into_iter().zip(["10.7.0.250", "fd07::250"]) {
            let (network, bits) = match vip.is_ipv4() {
                true => (ip("198.0.0.0"), 8),
                false => (ip("2001:500::"), 24),
            };
            add_route(netif, (network, bits), RouteType::Unreachable, None);
            let gateway = Some(ip(router));
            add_route_in(netif, TABLE, (network, bits), RouteType::Unicast, gateway);
            add_rule(netif, vip, TABLE);
        }
    }) else {
        return;
    };
    assert_eq!(found, [vec![], vec![]]);
}

#[test]
fn a_device_that_is_down_is_found_and_its_machine_missed() {
    let Some(lan) = sound() else { return };
    let [_, node, _] = &lan.machines;
    node.run(|netif, eth0| set_link(netif, eth0.index, false, vec![]));
    let [dispatcher, node] = faults(&lan);
    assert_eq!(dispatcher, [ComplaintKind::PeerNotFound, ComplaintKind::PeerNotFound]);
    // The kernel has removed its routes with it.
    assert_eq!(
        node,
        [ComplaintKind::DeviceDown, ComplaintKind::NoRouteBack, ComplaintKind::NoRouteBack]
    );
}

#[test]
fn a_pulled_cable_is_found() {
    let Some(lan) = sound() else { return };
    let [_, node, _] = &lan.machines;
    lan.set_cable(node, false);
    let [dispatcher, node] = faults(&lan);
    assert_eq!(dispatcher, [ComplaintKind::PeerNotFound, ComplaintKind::PeerNotFound]);
    assert_eq!(node[0], ComplaintKind::NoCarrier);
}

#[test]
fn a_machine_that_is_not_where_it_says_is_found() {
    let Some(lan) = sound() else { return };
    let [dispatcher, node, other] = &lan.machines;
    // Two machines with one address are detected by the answer of the other one.
    other.run(|netif, eth0| add_address(netif, eth0, node.v4, 32));
    dispatcher.run(|netif, _| {
        let found = check(netif, &dispatcher_input(&lan)).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].fault, ComplaintKind::PeerDiffers);
        assert!(found[0].found.contains(&other.mac.to_string()), "{}", found[0]);
    });
}

#[test]
fn a_different_mtu_is_found() {
    let Some(lan) = sound() else { return };
    let mtu = LinkAttribute::Mtu(1400);
    lan.machines[0].run(|netif, eth0| set_link(netif, eth0.index, true, vec![mtu]));
    assert_eq!(faults(&lan)[0], [ComplaintKind::MtuDiffers, ComplaintKind::MtuDiffers]);
}

#[test]
fn checksums_left_to_a_veth_before_a_packet_program_are_found() {
    let Some(namespace) = Namespace::new() else { return };
    namespace.run(|| {
        let mut netif = Netif::open().unwrap();
        let device = new_second(&mut netif, "lan");
        let input = CheckInput {
            device: "lan".to_owned(),
            vips: vec![],
            is_node: false,
            dispatching: Dispatching::Active,
            active: None,
            peers: vec![],
            clients: vec![],
            wait: SHORT,
        };
        let faults = |netif: &mut Netif| {
            let found = check(netif, &input).unwrap();
            found.iter().map(|c| (c.fault, c.is_doubt, c.place.clone())).collect::<Vec<_>>()
        };
        assert_eq!(faults(&mut netif), []);
        if !attach_xdp(&mut netif, &device) {
            return;
        }
        assert_eq!(netif.device("lan").unwrap().xdp, crate::Xdp::Native);
        let place = "the other end of lan".to_owned();
        assert_eq!(faults(&mut netif), [(ComplaintKind::UnfinishedChecksums, false, place)]);
        let other = netif.device("lan-end").unwrap();
        set_tx_checksum(&other, false).unwrap();
        assert_eq!(faults(&mut netif), []);
    });
}

/// Attaches a packet program that passes everything, in the driver.
fn attach_xdp(netif: &mut Netif, device: &Device) -> bool {
    const DRIVER_MODE: u32 = 1 << 2;
    let Some(program) = load_xdp_pass() else {
        let _ = writeln!(stderr(), "SKIPPED: needs BPF, to attach a packet program");
        return false;
    };
    let xdp = vec![LinkXdp::Fd(program), LinkXdp::Flags(DRIVER_MODE)];
    set_link(netif, device.index, true, vec![LinkAttribute::Xdp(xdp)]);
    true
}

/// Loads `r0 = XDP_PASS; exit` by bpf(2); the descriptor stays open until the tests end.
#[expect(unsafe_code, reason = "bpf(2) takes pointers")]
fn load_xdp_pass() -> Option<i32> {
    const PROG_LOAD: i32 = 5;
    const PROG_TYPE_XDP: u32 = 6;
    let instructions: [u64; 2] = [0x0000_0002_0000_00b7, 0x95];
    let license = c"GPL";
    /// The beginning of `union bpf_attr` for this command.
    #[repr(C)]
    struct Load {
        kind: u32,
        instructions: u32,
        first: u64,
        license: u64,
        log: [u64; 2],
    }
    let load = Load {
        kind: PROG_TYPE_XDP,
        instructions: 2,
        first: ptr::from_ref(&instructions) as u64,
        license: license.as_ptr() as u64,
        log: [0; 2],
    };
    // SAFETY: `load` and what it points to outlive the call, which reads only its size.
    let program = unsafe { libc::syscall(libc::SYS_bpf, PROG_LOAD, &load, size_of::<Load>()) };
    i32::try_from(program).ok().filter(|program| *program >= 0)
}
