//! Tests of announcements, probes and claims on the segment.

#![allow(clippy::unwrap_used, reason = "tests")]

use rustix::event::{PollFd, PollFlags, poll};

use super::bed::{LONG, Lan, Machine, SHORT, ip, neighbour, set_neighbour, vips, wait_until};
use crate::frame::{self, TYPE_ARP, TYPE_IPV6};
use crate::packet::PacketSocket;
use crate::{Claim, ClaimWatch, MacAddr, Record, announce, probe, survey};

const STALE: MacAddr = MacAddr([2, 0, 0, 0, 9, 9]);

#[test]
fn each_announcement_by_itself_turns_a_neighbour_to_us() {
    let Some(lan) = Lan::<2>::new() else { return };
    let [us, client] = &lan.machines;
    for vip in vips() {
        for frame in frame::announcements(vip, us.mac) {
            client.run(|netif, eth0| set_neighbour(netif, eth0, vip, STALE));
            us.run(|_, eth0| {
                let ether_type = if vip.is_ipv4() { TYPE_ARP } else { TYPE_IPV6 };
                PacketSocket::open(eth0, ether_type, &[]).unwrap().send(&frame).unwrap();
            });
            client.run(|netif, _| {
                let is_turned = || neighbour(netif, vip) == Some(us.mac);
                wait_until(&format!("{frame:02x?} is believed"), is_turned);
            });
        }
    }
}

#[test]
fn announcing_turns_a_neighbour_from_the_old_dispatcher_to_the_new() {
    let Some(lan) = Lan::<3>::new() else { return };
    let [old, new, client] = &lan.machines;
    for vip in vips() {
        for dispatcher in [old, new, old] {
            client.run(|netif, eth0| match neighbour(netif, vip) {
                Some(_) => {}
                None => set_neighbour(netif, eth0, vip, STALE),
            });
            dispatcher.run(|_, eth0| announce(eth0, vip, 3).unwrap());
            client.run(|netif, _| {
                wait_until("neighbour", || neighbour(netif, vip) == Some(dispatcher.mac));
            });
        }
    }
}

#[test]
fn a_probe_finds_the_owner_or_nobody() {
    let Some(lan) = Lan::<2>::new() else { return };
    let [a, b] = &lan.machines;
    a.run(|_, eth0| {
        for owned in [b.v4, b.v6] {
            assert_eq!(probe(eth0, owned, LONG).unwrap(), Some(b.mac));
        }
        for free in vips() {
            assert_eq!(probe(eth0, free, SHORT).unwrap(), None);
        }
        for own in [a.v4, a.v6] {
            assert_eq!(probe(eth0, own, SHORT).unwrap(), None, "we do not answer ourselves");
        }
    });
}

/// Probes for the virtual addresses and for a machine that always answers: if its answer is late, the probe
/// is repeated.
fn answerers(client: &Machine, other: &Machine) -> Vec<Claim> {
    let owned = [other.v4, other.v6].map(|address| Claim { address, mac: other.mac });
    let asked = [vips(), [other.v4, other.v6]].concat();
    let mut claims = Vec::new();
    wait_until("answers for sure", || {
        claims = client.run(|_, eth0| survey(eth0, &asked, SHORT).unwrap());
        owned.iter().all(|claim| claims.contains(claim))
    });
    claims.retain(|claim| vips().contains(&claim.address));
    claims.sort_by_key(|claim| claim.address);
    claims
}

#[test]
fn a_node_that_holds_an_address_is_silent_and_the_dispatcher_answers() {
    let Some(lan) = Lan::<3>::new() else { return };
    let [dispatcher, node, client] = &lan.machines;
    let [v4, v6] = vips();
    // With the address on `lo` alone, a node answers for IPv4, which holding must prevent.
    node.run(|netif, _| {
        let lo = netif.device("lo").unwrap();
        assert!(netif.claim(&lo, v4).unwrap() && netif.claim(&lo, v6).unwrap());
    });
    assert_eq!(answerers(client, node), [Claim { address: v4, mac: node.mac }]);
    node.run(|netif, eth0| {
        let lo = netif.device("lo").unwrap();
        assert!(netif.release(&lo, v4).unwrap() && netif.release(&lo, v6).unwrap());
        let mut record = Record::default();
        for vip in vips() {
            netif.prepare_hold(&mut record, eth0, vip, &[]).unwrap();
        }
        netif.hold(&record).unwrap();
    });
    assert_eq!(answerers(client, node), []);
    dispatcher.run(|netif, eth0| {
        for vip in vips() {
            netif.claim(eth0, vip).unwrap();
        }
    });
    let from_dispatcher = vips().map(|address| Claim { address, mac: dispatcher.mac });
    // The kernel joins the multicast group for IPv6 solicitations a little later.
    wait_until("the answers", || {
        let answered = answerers(client, node);
        assert!(answered.iter().all(|claim| from_dispatcher.contains(claim)), "{answered:?}");
        answered == from_dispatcher
    });
}

#[test]
fn a_foreign_claim_is_heard_and_our_own_is_not() {
    let Some(lan) = Lan::<2>::new() else { return };
    let [us, foreign] = &lan.machines;
    for vip in vips() {
        us.run(|_, eth0| {
            let mut watch = ClaimWatch::open(eth0, vec![vip]).unwrap();
            watch.announce(vip, 2).unwrap();
            foreign.run(|_, eth0| {
                // As from a switch that returns our own frames.
                let ether_type = if vip.is_ipv4() { TYPE_ARP } else { TYPE_IPV6 };
                let socket = PacketSocket::open(eth0, ether_type, &[]).unwrap();
                for frame in frame::announcements(vip, us.mac) {
                    socket.send(&frame).unwrap();
                }
                announce(eth0, ip("10.7.0.99"), 1).unwrap();
                announce(eth0, ip("fd07::99"), 1).unwrap();
                announce(eth0, vip, 2).unwrap();
            });
            let mut heard = Vec::new();
            while heard.is_empty() {
                poll(&mut [PollFd::new(&watch, PollFlags::IN)], None).unwrap();
                heard = watch.claims().unwrap();
            }
            assert_eq!(heard, [Claim { address: vip, mac: foreign.mac }]);
        });
    }
}

#[test]
fn answers_come_to_who_asks_by_the_watch() {
    let Some(lan) = Lan::<2>::new() else { return };
    let [us, foreign] = &lan.machines;
    us.run(|_, eth0| {
        let mut watch = ClaimWatch::open(eth0, vec![]).unwrap();
        for address in [foreign.v4, foreign.v6] {
            watch.set_vips(vec![address]);
            watch.ask(address).unwrap();
            let expected = [Claim { address, mac: foreign.mac }];
            wait_until("the answer", || watch.claims().unwrap() == expected);
        }
    });
}

#[test]
fn a_watch_survives_its_device_going_down_and_up() {
    let Some(lan) = Lan::<2>::new() else { return };
    let [us, foreign] = &lan.machines;
    us.run(|netif, eth0| {
        let mut watch = ClaimWatch::open(eth0, vec![foreign.v4]).unwrap();
        super::bed::set_link(netif, eth0.index, false, vec![]);
        assert_eq!(watch.claims().unwrap(), []);
        assert!(watch.ask(foreign.v4).is_err(), "nothing can be asked meanwhile");
        super::bed::set_link(netif, eth0.index, true, vec![]);
        let expected = [Claim { address: foreign.v4, mac: foreign.mac }];
        wait_until("the answer", || {
            watch.ask(foreign.v4).unwrap();
            watch.claims().unwrap() == expected
        });
    });
}

#[test]
fn claims_on_another_vlan_are_not_ours() {
    let Some(lan) = Lan::<2>::new() else { return };
    let [us, foreign] = &lan.machines;
    for (vip, ether_type) in vips().into_iter().zip([TYPE_ARP, TYPE_IPV6]) {
        us.run(|_, eth0| {
            let mut watch = ClaimWatch::open(eth0, vec![vip]).unwrap();
            foreign.run(|_, eth0| {
                let socket = PacketSocket::open(eth0, ether_type, &[]).unwrap();
                let tag =
                    |frame: Vec<u8>| [&frame[..12], &[0x81, 0, 0, 200], &frame[12..]].concat();
                for frame in frame::announcements(vip, STALE) {
                    socket.send(&tag(frame)).unwrap();
                }
                announce(eth0, vip, 1).unwrap();
            });
            let mut heard = Vec::new();
            wait_until("the claim on our own", || {
                heard.extend(watch.claims().unwrap());
                !heard.is_empty()
            });
            assert_eq!(heard, [Claim { address: vip, mac: foreign.mac }]);
        });
    }
}
