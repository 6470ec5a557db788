//! Packets that a relay loses, doubles and delays.

use std::collections::BTreeMap;
use std::io::{Write, stderr};
use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use crate::common::{Traces, poll_until, reaches, root_or_skip};
use skep_testbed::{Bed, Machine, RelayCounts, RelayFaults, TestbedError, Topology};

const NONE: RelayFaults = RelayFaults {
    seed: 7,
    lost_percent: 0.0,
    doubled_percent: 0.0,
    late_percent: 0.0,
    late_us_min: 1_000,
    late_us_max: 10_000,
};

const SOME: RelayFaults =
    RelayFaults { lost_percent: 5.0, doubled_percent: 5.0, late_percent: 10.0, ..NONE };

const COUNT: u32 = 2_000;

/// A client behind a router, and a node. All know their neighbours: while a kernel looks for one, few packets wait.
fn bed() -> Bed {
    let topology = Topology { router: true, dispatchers: 0, nodes: 1, ..Topology::default() };
    let bed = Bed::new(&topology).unwrap();
    let (client, node) = (&bed.clients()[0], &bed.nodes()[0]);
    for (from, to) in [(client, node), (node, client)] {
        assert!(reaches(from, to, to.ipv4().into()) && reaches(from, to, to.ipv6().into()));
    }
    bed
}

fn root_and_tun_or_skip() -> bool {
    let is_there = Path::new("/dev/net/tun").exists();
    if !is_there {
        let _ = writeln!(stderr(), "SKIPPED: a relay needs /dev/net/tun");
    }
    is_there && root_or_skip()
}

/// Numbered datagrams from one machine to another, in the order in which they come; all that the relay, which
/// has just begun, lets through.
fn arrivals(bed: &Bed, from: &Machine, to: (&Machine, IpAddr)) -> Vec<u32> {
    const AT_ONCE: usize = 50;
    let receiver = to.0.run(|| UdpSocket::bind((to.1, 0)).unwrap()).unwrap();
    receiver.set_nonblocking(true).unwrap();
    let any: IpAddr = if to.1.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let sender = from.run(|| UdpSocket::bind((any, 0)).unwrap()).unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    let (mut arrived, mut buffer) = (Vec::new(), [0; 4]);
    let numbers: Vec<u32> = (0..COUNT).collect();
    for some in numbers.chunks(AT_ONCE) {
        some.iter().for_each(|it| assert_eq!(sender.send(&it.to_be_bytes()).unwrap(), 4));
        let sent = u64::from(some[some.len() - 1]) + 1;
        // No more at a time than queues hold.
        poll_until("they have come to the relay", || bed.relay_counts().unwrap().relayed >= sent);
        while receiver.recv(&mut buffer).is_ok() {
            arrived.push(u32::from_be_bytes(buffer));
        }
    }
    let RelayCounts { relayed, lost, doubled, .. } = bed.relay_counts().unwrap();
    poll_until("all have come that are to come", || {
        while receiver.recv(&mut buffer).is_ok() {
            arrived.push(u32::from_be_bytes(buffer));
        }
        arrived.len() as u64 >= relayed - lost + doubled
    });
    arrived
}

/// How often each has come.
fn times(arrived: &[u32]) -> BTreeMap<u32, usize> {
    let mut times: BTreeMap<u32, usize> = (0..COUNT).map(|number| (number, 0)).collect();
    for number in arrived {
        *times.entry(*number).or_default() += 1;
    }
    times
}

#[test]
fn all_packets_pass_a_relay_without_faults_in_order_and_either_way() {
    if !root_and_tun_or_skip() {
        return;
    }
    let bed = bed();
    let (client, node) = (&bed.clients()[0], &bed.nodes()[0]);
    let expected: Vec<u32> = (0..COUNT).collect();
    for (from, to, address) in [
        (client, node, IpAddr::from(node.ipv4())),
        (node, client, client.ipv4().into()),
        (client, node, node.ipv6().into()),
        (node, client, client.ipv6().into()),
    ] {
        bed.set_relay(Some(NONE)).unwrap();
        assert_eq!(arrivals(&bed, from, (to, address)), expected);
        let counts = RelayCounts { relayed: u64::from(COUNT), ..RelayCounts::default() };
        assert_eq!(bed.relay_counts().unwrap(), counts);
    }
}

#[test]
fn packets_are_lost_doubled_and_overtaken_the_same_ones_each_time() {
    if !root_and_tun_or_skip() {
        return;
    }
    let bed = bed();
    let (client, node) = (&bed.clients()[0], &bed.nodes()[0]);
    let run = || {
        bed.set_relay(Some(SOME)).unwrap();
        let arrived = arrivals(&bed, client, (node, node.ipv4().into()));
        (times(&arrived), bed.relay_counts().unwrap(), arrived)
    };
    let (times, counts, arrived) = run();
    let having = |count| times.values().filter(|it| **it == count).count() as u64;
    assert_eq!((counts.relayed, counts.unread), (u64::from(COUNT), 0));
    assert_eq!((having(0), having(2)), (counts.lost, counts.doubled));
    // 100, 100 and 200 are expected, with deviations of 10, 10 and 13: five of these either way.
    assert!((50..150).contains(&counts.lost) && (50..150).contains(&counts.doubled), "{counts:?}");
    assert!((130..270).contains(&counts.late), "{counts:?}");
    let overtaken = arrived.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!(overtaken > 0, "of {} late ones none was overtaken", counts.late);
    let (again, counts_again, _) = run();
    assert_eq!((again, counts_again), (times, counts));
}

#[test]
fn a_relay_ends_and_packets_pass_by_themselves() {
    if !root_and_tun_or_skip() {
        return;
    }
    let bed = bed();
    let (client, node) = (&bed.clients()[0], &bed.nodes()[0]);
    bed.set_relay(Some(RelayFaults { lost_percent: 100.0, ..NONE })).unwrap();
    assert!(!reaches(client, node, node.ipv4().into()));
    bed.set_relay(None).unwrap();
    assert!(reaches(client, node, node.ipv4().into()));
    assert!(reaches(node, client, client.ipv6().into()));
    assert_eq!(bed.relay_counts().unwrap(), RelayCounts::default());
    bed.set_relay(Some(SOME)).unwrap();
    let traces = Traces::of(&bed);
    drop(bed);
    traces.assert_none();
}

#[test]
fn a_relay_needs_a_router_and_shares_that_can_be() {
    if !root_and_tun_or_skip() {
        return;
    }
    let bed = bed();
    let faults = RelayFaults { lost_percent: 60.0, late_percent: 60.0, ..NONE };
    assert!(matches!(bed.set_relay(Some(faults)), Err(TestbedError::Unusable(_))));
    let topology = Topology { dispatchers: 0, nodes: 1, ..Topology::default() };
    let bed = Bed::new(&topology).unwrap();
    let error = bed.set_relay(Some(NONE)).unwrap_err().to_string();
    assert!(error.contains("router"), "{error}");
}
