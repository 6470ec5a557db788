//! Virtual addresses are added and removed, and nothing else changes.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::net::{IpAddr, UdpSocket};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use rustix::thread::set_thread_uid;

use super::bed::{Lan, Machine, SHORT, add_address, ip, neighbour, vips, wait_until};
use crate::{Error, Netif, announce, probe};

#[test]
fn claiming_and_releasing_twice_is_as_once() {
    let Some(lan) = Lan::<2>::new() else { return };
    let [a, b] = &lan.machines;
    a.run(|netif, eth0| {
        let before = netif.devices().unwrap();
        for vip in vips() {
            assert!(netif.claim(eth0, vip).unwrap());
            assert!(!netif.claim(eth0, vip).unwrap());
            assert!(netif.device("eth0").unwrap().has(vip));
            assert_eq!(netif.device_of(vip).unwrap().index, eth0.index);
        }
        // The machine's own connections do not use them as source addresses.
        for (neighbour, own) in [(b.v4, a.v4), (b.v6, a.v6)] {
            assert_eq!(netif.route(neighbour, None).unwrap().unwrap().source, Some(own));
        }
        for vip in vips() {
            assert!(netif.release(eth0, vip).unwrap());
            assert!(!netif.release(eth0, vip).unwrap());
        }
        assert_eq!(netif.devices().unwrap(), before);
    });
}

#[test]
fn an_address_that_cannot_be_had_does_not_stop_the_others() {
    let Some(lan) = Lan::<1>::new() else { return };
    lan.machines[0].run(|netif, eth0| {
        let before = netif.devices().unwrap();
        let [v4, v6] = vips();
        let wanted = [v4, ip("224.0.0.1"), v6];
        let (held, failure) = netif.claim_all(eth0, &wanted).unwrap();
        assert_eq!(held, [v4, v6]);
        assert!(failure.unwrap().to_string().contains("224.0.0.1"));
        assert!(netif.release_all(eth0, &wanted).is_err());
        assert_eq!(netif.devices().unwrap(), before);
    });
}

#[test]
fn packets_from_a_virtual_address_do_not_announce_it() {
    let Some(lan) = Lan::<3>::new() else { return };
    let [active, other, client] = &lan.machines;
    let [vip, _] = vips();
    let claim = |machine: &Machine| {
        machine.run(|netif, eth0| {
            netif.ask_as_itself(eth0).unwrap();
            netif.claim(eth0, vip).unwrap();
        });
    };
    let send = |machine: &Machine, from: IpAddr, to: IpAddr| {
        machine.run(|_, _| UdpSocket::bind((from, 0)).unwrap().send_to(b"?", (to, 9)).unwrap());
    };
    let knows = |machine: &Machine, ip: IpAddr| machine.run(|netif, _| neighbour(netif, ip));
    // Makes the client accept every ARP packet as an update.
    client.run(|_, _| fs::write("/proc/sys/net/ipv4/neigh/eth0/locktime", "0").unwrap());
    claim(active);
    send(client, client.v4, vip);
    wait_until("the client knows the active one", || knows(client, vip) == Some(active.mac));
    claim(other);
    send(other, vip, client.v4);
    wait_until("the other knows the client", || knows(other, client.v4) == Some(client.mac));
    assert_eq!(knows(client, vip), Some(active.mac));
}

#[test]
fn an_address_of_the_operators_is_left_as_it_is() {
    let Some(lan) = Lan::<1>::new() else { return };
    lan.machines[0].run(|netif, eth0| {
        for (vip, prefix_bits) in vips().into_iter().zip([24, 64]) {
            add_address(netif, eth0, vip, prefix_bits);
        }
        let before = netif.devices().unwrap();
        for vip in vips() {
            assert!(!netif.claim(eth0, vip).unwrap());
            assert!(!netif.release(eth0, vip).unwrap());
        }
        assert_eq!(netif.devices().unwrap(), before);
    });
}

/// Flags and scope of an address, which only the kernel uses.
fn traits(netif: &mut Netif, vip: IpAddr) -> (AddressFlags, AddressScope) {
    let question = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let messages = netif.netlink.list("list addresses", &question).unwrap();
    let found = messages.iter().find_map(|message| {
        let RouteNetlinkMessage::NewAddress(message) = message else { return None };
        message.attributes.contains(&AddressAttribute::Address(vip)).then_some(())?;
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Flags(flags) => Some((*flags, message.header.scope)),
            _ => None,
        })
    });
    found.unwrap()
}

#[test]
fn an_address_is_in_force_at_once_and_no_source_of_our_own() {
    let Some(lan) = Lan::<1>::new() else { return };
    lan.machines[0].run(|netif, eth0| {
        std::fs::write("/proc/sys/net/ipv6/conf/eth0/accept_dad", "1").unwrap();
        let lo = netif.device("lo").unwrap();
        let [v4, v6] = vips();
        netif.claim(eth0, v6).unwrap();
        let (flags, _) = traits(netif, v6);
        assert!(!flags.contains(AddressFlags::Tentative), "{flags:?}");
        assert!(flags.contains(AddressFlags::Deprecated), "{flags:?}");
        netif.claim(&lo, v4).unwrap();
        assert_eq!(traits(netif, v4).1, AddressScope::Host);
    });
}

#[test]
fn a_claimed_address_is_answered_for() {
    let Some(lan) = Lan::<2>::new() else { return };
    let [a, b] = &lan.machines;
    for vip in vips() {
        a.run(|netif, eth0| netif.claim(eth0, vip).unwrap());
        // The kernel joins the multicast group for IPv6 solicitations a little later.
        let owner = || b.run(|_, eth0| probe(eth0, vip, SHORT).unwrap());
        wait_until("the answer", || owner() == Some(a.mac));
    }
}

#[test]
fn what_is_no_virtual_address_is_refused() {
    let Some(lan) = Lan::<1>::new() else { return };
    lan.machines[0].run(|netif, eth0| {
        let error = netif.claim(eth0, ip("224.0.0.1")).unwrap_err();
        assert!(matches!(error, Error::NotAVip { .. }), "{error}");
    });
}

#[test]
fn where_ipv6_is_off_the_error_says_so() {
    let Some(lan) = Lan::<1>::new() else { return };
    lan.machines[0].run(|netif, eth0| {
        std::fs::write("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "1").unwrap();
        let error = netif.claim(eth0, vips()[1]).unwrap_err().to_string();
        let expected = "cannot put fd07::80 on eth0: IPv6 is switched off there. Switch it on: \
             sysctl -w net.ipv6.conf.eth0.disable_ipv6=0";
        assert_eq!(error, expected);
    });
}

#[test]
fn without_capabilities_the_error_names_the_one_that_is_missing() {
    let Some(lan) = Lan::<1>::new() else { return };
    lan.machines[0].run(|netif, eth0| {
        // Applies to this thread only, which ends here.
        set_thread_uid(rustix::process::Uid::from_raw(65_534)).unwrap();
        let vip = vips()[0];
        let error = netif.claim(eth0, vip).unwrap_err().to_string();
        let expected = "cannot put 10.7.0.80 on eth0: needs CAP_NET_ADMIN, which this process";
        assert!(error.starts_with(expected), "{error}");
        let error = announce(eth0, vip, 1).unwrap_err().to_string();
        assert!(error.contains("needs CAP_NET_RAW"), "{error}");
        let mut record = crate::Record::default();
        netif.prepare_hold(&mut record, eth0, vip, &[]).unwrap();
        let error = netif.hold(&record).unwrap_err().to_string();
        assert!(error.contains("net.ipv4.conf.all.arp_ignore = 1: needs CAP_NET_ADMIN"), "{error}");
    });
}
