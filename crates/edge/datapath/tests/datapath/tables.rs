//! What was written applies to packets atomically, and can be read

//! back. Packets are test runs of the program.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use crate::common::{
    ACK, CLIENT, OWN_MAC, PEER_MAC, SIZES, SYN, frame, in_bed, node, node_mac, rows, service,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use skep_datapath::{Build, DispatchProgram, How, Sizes};
use skep_wire::guard::{ProgramSettings, Steerer};
use skep_wire::steer::{
    DatapathNode, DatapathService, Flow, ForwardingState, Measure, NODES_MAX, Network, OwnerChange,
    Row, Verdict, WeightedLoad,
};

/// Runs the program on a frame; returns the node to which the frame is then addressed, if any.
fn steer(dispatch: &DispatchProgram, frame: &[u8]) -> Option<u16> {
    let mut nodes = [Build::Xdp, Build::Tc].map(|build| {
        let run = dispatch.test_run(build, frame, 1).unwrap();
        let node = u16::from(run.frame[5]);
        (run.frame[..6] == node_mac(node)).then_some(node)
    });
    // For both builds, but the second run may meet the flow that the first has stored.
    nodes.sort();
    assert_eq!(nodes[0], nodes[1]);
    nodes[0]
}

/// The counted verdict on a frame.
fn verdict(dispatch: &DispatchProgram, frame: &[u8]) -> Verdict {
    let before = dispatch.counters().unwrap().verdicts;
    dispatch.test_run(Build::Xdp, frame, 1).unwrap();
    let after = dispatch.counters().unwrap().verdicts;
    let counted: Vec<_> = before.iter().zip(&after).filter(|(old, new)| old != new).collect();
    assert_eq!(counted.len(), 1, "one verdict");
    assert_eq!(counted[0].1.1.packets, counted[0].0.1.packets + 1);
    assert_eq!(counted[0].1.1.bytes, counted[0].0.1.bytes + frame.len() as u64);
    counted[0].1.0
}

#[test]
fn new_flows_meet_new_rows_and_old_flows_their_node() {
    in_bed(|bed| {
        let mut dispatch = bed.open_configured();
        assert_eq!(steer(&dispatch, &frame(4000, 80, SYN)), Some(0));
        for table in [[1], [0], [1]] {
            dispatch.set_rows(&service(0), &rows(&table)).unwrap();
            assert_eq!(steer(&dispatch, &frame(5000, 80, ACK)), Some(table[0]), "{table:?}");
            assert_eq!(steer(&dispatch, &frame(4000, 80, ACK)), Some(0), "{table:?}");
        }
        drop(dispatch);
        // The next process continues with the half in use.
        let mut dispatch = bed.open();
        assert_eq!(steer(&dispatch, &frame(5000, 80, ACK)), Some(1));
        dispatch.set_rows(&service(0), &rows(&[0])).unwrap();
        assert_eq!(steer(&dispatch, &frame(5000, 80, ACK)), Some(0));
    });
}

/// As after a restart with a config of more or fewer addresses.
#[test]
fn rows_for_more_services_or_fewer_are_those_that_there_were() {
    in_bed(|bed| {
        let mut dispatch = bed.open_configured();
        dispatch.set_services(&[service(0), service(1)]).unwrap();
        dispatch.set_rows(&service(0), &rows(&[1])).unwrap();
        dispatch.set_rows(&service(1), &rows(&[0])).unwrap();
        dispatch.set_rows(&service(1), &rows(&[1])).unwrap();
        for services_max in [4, 64, 2, 1] {
            drop(dispatch);
            let sizes = Sizes { services_max, ..SIZES };
            dispatch = DispatchProgram::open(&bed.place, sizes).unwrap();
            assert_eq!(dispatch.replaced(), ["rows"]);
            let port = 5000 + services_max as u16;
            assert_eq!(steer(&dispatch, &frame(port, 80, SYN)), Some(1), "{services_max}");
            let of_second = (services_max > 1).then_some(1);
            assert_eq!(steer(&dispatch, &frame(port, 81, SYN)), of_second, "{services_max}");
        }
        dispatch.set_services(&[service(0)]).unwrap();
        dispatch.set_rows(&service(0), &rows(&[0])).unwrap();
        assert_eq!(steer(&dispatch, &frame(6000, 80, SYN)), Some(0));
    });
}

#[test]
fn rows_at_the_end_move_where_a_smaller_map_has_none() {
    in_bed(|bed| {
        let sizes = |services_max| Sizes { services_max, ..SIZES };
        let mut dispatch = DispatchProgram::open(&bed.place, sizes(4)).unwrap();
        crate::common::configure(&mut dispatch);
        let services = [0, 1, 2, 3].map(service);
        services[1..].iter().for_each(|it| dispatch.set_rows(it, &rows(&[1])).unwrap());
        dispatch.set_services(&services).unwrap();
        assert_eq!(steer(&dispatch, &frame(4000, 83, SYN)), Some(1));
        dispatch.keep_services(&[service(0).address, service(3).address]).unwrap();
        drop(dispatch);
        let dispatch = DispatchProgram::open(&bed.place, sizes(2)).unwrap();
        assert_eq!(steer(&dispatch, &frame(5000, 80, SYN)), Some(0));
        assert_eq!(steer(&dispatch, &frame(5000, 83, SYN)), Some(1));
        assert_eq!(verdict(&dispatch, &frame(5000, 81, SYN)), Verdict::PassNoService);
    });
}

/// As after a dispatcher that has lost all tables assigned new ids.
#[test]
fn a_service_with_another_id_keeps_its_rows_and_forgets_its_flows() {
    in_bed(|bed| {
        let mut dispatch = bed.open_configured();
        dispatch.set_rows(&service(1), &rows(&[1])).unwrap();
        let with_ids = |ids: [u16; 2]| {
            [0, 1].map(|at: u16| DatapathService { id: ids[usize::from(at)], ..service(at) })
        };
        let flows = |dispatch: &DispatchProgram| {
            let mut flows = Vec::new();
            dispatch.flows(|flow| flows.push((flow.service, flow.node))).unwrap();
            flows.sort_unstable();
            flows
        };
        dispatch.set_services(&with_ids([0, 1])).unwrap();
        // Swapped ids, and ids beyond the number of places in `rows`.
        for ids in [[1, 0], [62, 63], [62, 5]] {
            assert_eq!(steer(&dispatch, &frame(4000, 80, SYN)), Some(0), "{ids:?}");
            assert_eq!(steer(&dispatch, &frame(4000, 81, SYN)), Some(1), "{ids:?}");
            dispatch.set_services(&with_ids(ids)).unwrap();
            let kept = if ids == [62, 5] { vec![(62, 0)] } else { vec![] };
            assert_eq!(flows(&dispatch), kept, "{ids:?}");
            assert_eq!(steer(&dispatch, &frame(4000, 80, ACK)), Some(0), "{ids:?}");
            assert_eq!(steer(&dispatch, &frame(4000, 81, ACK)), Some(1), "{ids:?}");
        }
        drop(dispatch);
        // The next process finds the rows at their places.
        let mut dispatch = bed.open();
        dispatch.set_rows(&with_ids([62, 5])[1], &rows(&[0])).unwrap();
        assert_eq!(steer(&dispatch, &frame(5000, 80, ACK)), Some(0));
        assert_eq!(steer(&dispatch, &frame(5000, 81, ACK)), Some(0));
    });
}

#[test]
fn a_table_is_exchanged_at_once() {
    in_bed(|bed| {
        let mut dispatch = bed.open_configured();
        // The second tables of two services are adjacent.
        dispatch.set_rows(&service(1), &rows(&[1])).unwrap();
        dispatch.set_services(&[service(0), service(1)]).unwrap();
        dispatch.attach("skep0", How::XdpNative).unwrap();
        let segment = crate::common::Segment::new();
        let (stop, seen) = (AtomicBool::new(false), [0, 1].map(|_| AtomicBool::new(false)));
        let has_seen_all = || seen.iter().all(|it| it.load(Ordering::Relaxed));
        thread::scope(|scope| {
            let client = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for port in 4000..4010 {
                        let node = segment.exchange(&frame(port, 80, ACK));
                        seen[usize::from(node)].store(true, Ordering::Relaxed);
                        assert_eq!(segment.exchange(&frame(port, 81, ACK)), 1);
                    }
                }
            });
            // Until packets have met both tables.
            for (number, table) in [[0], [1]].into_iter().cycle().enumerate() {
                if number >= 20 && (has_seen_all() || client.is_finished()) {
                    break;
                }
                dispatch.set_rows(&service(0), &rows(&table)).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
            client.join().unwrap();
        });
        assert!(has_seen_all());
        let counters = dispatch.counters().unwrap();
        assert!(counters.verdicts.contains(&(Verdict::PassNoNode, Default::default())));
    });
}

#[test]
fn every_row_is_written_and_none_besides() {
    in_bed(|bed| {
        let mut dispatch = bed.open_configured();
        let mixed: Vec<Row> =
            rows(&[0]).into_iter().zip(rows(&[1])).flat_map(|(a, b)| [a, b]).take(65_537).collect();
        let began = Instant::now();
        dispatch.set_rows(&service(0), &mixed).unwrap();
        println!("a table of 65,537 rows took {:?}", began.elapsed());
        let count = |node| {
            (1..2001).filter(|port| steer(&dispatch, &frame(*port, 80, ACK)) == Some(node)).count()
        };
        let (zero, one) = (count(0), count(1));
        assert_eq!(zero + one, 2000);
        assert!(zero.abs_diff(one) < 300, "{zero} and {one}");
        let error = dispatch.set_rows(&service(0), &mixed[1..]).unwrap_err().to_string();
        assert_eq!(error, "number of rows of a table 65536 is out of range: expected 65537");
        dispatch.set_rows(&service(1), &mixed).unwrap();
        let error = dispatch.set_rows(&service(2), &mixed).unwrap_err().to_string();
        assert_eq!(error, "number of services 3 is out of range: expected 0 to 2");
        let beyond = DatapathService { id: 64, ..service(1) };
        let error = dispatch.set_rows(&beyond, &mixed).unwrap_err().to_string();
        assert_eq!(error, "id of a service 64 is out of range: expected 0 to 63");
    });
}

#[test]
fn a_service_takes_nothing_over_from_the_one_before_it() {
    in_bed(|bed| {
        let mut dispatch = bed.open_configured();
        dispatch.set_rows(&service(1), &rows(&[1])).unwrap();
        dispatch.set_services(&[service(0), service(1)]).unwrap();
        assert_eq!(steer(&dispatch, &frame(4000, 80, SYN)), Some(0));
        assert_eq!(steer(&dispatch, &frame(4000, 81, SYN)), Some(1));
        dispatch.set_services(&[service(1)]).unwrap();
        assert_eq!(verdict(&dispatch, &frame(4000, 80, ACK)), Verdict::PassNoService);
        assert_eq!(steer(&dispatch, &frame(4000, 81, ACK)), Some(1));
        let mut flows = Vec::new();
        dispatch.flows(|flow| flows.push(flow.service)).unwrap();
        assert_eq!(flows, [1], "flows of what is gone are forgotten");
        dispatch.set_services(&[service(0), service(1)]).unwrap();
        assert_eq!(verdict(&dispatch, &frame(4000, 80, SYN)), Verdict::PassNoNode);
        dispatch.set_rows(&service(0), &rows(&[1])).unwrap();
        assert_eq!(steer(&dispatch, &frame(4000, 80, SYN)), Some(1));
        dispatch.set_services(&[]).unwrap();
        assert_eq!(verdict(&dispatch, &frame(4000, 80, SYN)), Verdict::PassNotVip);
        let wrong = DatapathService { choices: 5, ..service(0) };
        let error = dispatch.set_services(&[wrong]).unwrap_err().to_string();
        assert_eq!(error, "number of choices of a service 5 is out of range: expected 1 to 4");
    });
}

#[test]
fn turns_begin_anew_with_each_table_and_loads_keep_what_was_assigned() {
    in_bed(|bed| {
        let mut dispatch = bed.open_configured();
        let turns = DatapathService { choices: 2, measure: Measure::Turns, ..service(0) };
        dispatch.set_services(&[turns]).unwrap();
        let mut ports = 1..;
        let mut flows_of = |dispatch: &DispatchProgram, count: usize| {
            let mut nodes = [0; 2];
            for port in ports.by_ref().take(count) {
                nodes[usize::from(steer(dispatch, &frame(port, 80, SYN)).unwrap())] += 1;
            }
            nodes
        };
        dispatch.set_rows(&service(0), &rows(&[0])).unwrap();
        assert_eq!(flows_of(&dispatch, 10), [10, 0]);
        dispatch.set_rows(&service(0), &rows(&[0, 1])).unwrap();
        assert_eq!(flows_of(&dispatch, 10), [5, 5], "what was before the table is past");
        let loads = [(0, 3), (1, 1)].map(|(node, weight)| WeightedLoad { node, weight, load: 0 });
        dispatch.set_loads(&[0], &loads).unwrap();
        dispatch.set_rows(&service(0), &rows(&[0, 1])).unwrap();
        assert_eq!(flows_of(&dispatch, 12), [9, 3]);
        let load = DatapathService { measure: Measure::Load, ..turns };
        dispatch.set_services(&[load]).unwrap();
        let loads = [(0, 100), (1, 90)].map(|(node, load)| WeightedLoad { node, weight: 1, load });
        dispatch.set_loads(&[0], &loads).unwrap();
        // Ten until the loads are equal, then alternately.
        assert_eq!(flows_of(&dispatch, 30), [10, 20]);
        for (node, weight) in [(NODES_MAX as u16, 1), (0, 0)] {
            assert!(dispatch.set_loads(&[0], &[WeightedLoad { node, weight, load: 0 }]).is_err());
        }
    });
}

#[test]
fn nodes_that_are_not_named_are_down() {
    in_bed(|bed| {
        let mut dispatch = bed.open_configured();
        dispatch.set_rows(&service(0), &rows(&[0, 1])).unwrap();
        assert_eq!(steer(&dispatch, &frame(4000, 80, SYN)), Some(0));
        dispatch.set_nodes(&[node(1)]).unwrap();
        assert_eq!(steer(&dispatch, &frame(4000, 80, ACK)), Some(1));
        dispatch
            .set_nodes(&[DatapathNode { state: ForwardingState::Draining, ..node(0) }, node(1)])
            .unwrap();
        assert_eq!(steer(&dispatch, &frame(4000, 80, ACK)), Some(0));
        assert_eq!(steer(&dispatch, &frame(4001, 80, SYN)), Some(1));
        dispatch.set_nodes(&[DatapathNode { is_local: true, ..node(0) }]).unwrap();
        assert_eq!(verdict(&dispatch, &frame(4000, 80, ACK)), Verdict::PassLocal);
        let error = dispatch
            .set_nodes(&[DatapathNode { index: NODES_MAX as u16, ..node(0) }])
            .unwrap_err()
            .to_string();
        assert_eq!(error, "place of a node 1024 is out of range: expected 0 to 1023");
    });
}

#[test]
fn known_flows_are_checked_anew_when_steerers_or_networks_change() {
    in_bed(|bed| {
        let mut dispatch = bed.open_configured();
        let packet = frame(4000, 80, ACK);
        let network =
            |text: &str, prefix_bits| Network { address: text.parse().unwrap(), prefix_bits };
        assert_eq!(verdict(&dispatch, &frame(4000, 80, SYN)), Verdict::ForwardNew);
        for steerer in [Steerer::Dispatcher, Steerer::Node] {
            dispatch.set_steerers(&[(PEER_MAC, steerer)]).unwrap();
            assert_eq!(verdict(&dispatch, &packet), Verdict::PassSteered, "{steerer:?}");
        }
        dispatch.set_steerers(&[(OWN_MAC, Steerer::Node)]).unwrap();
        assert_eq!(verdict(&dispatch, &packet), Verdict::ForwardFlow);
        let mut own = packet.clone();
        own[6..12].copy_from_slice(&OWN_MAC);
        assert_eq!(verdict(&dispatch, &own), Verdict::DropLoop, "whatever the list says");

        let all = network("10.9.0.0", 16);
        let one = network("10.9.0.2", 32);
        for (allow, deny, expected) in [
            (vec![], vec![one], Verdict::DropDenied),
            (vec![one], vec![all], Verdict::ForwardFlow),
            (vec![all], vec![one], Verdict::DropDenied),
            (vec![one], vec![one], Verdict::DropDenied),
            (vec![network("192.0.2.0", 24)], vec![], Verdict::DropDenied),
            (vec![network("0.0.0.0", 0)], vec![], Verdict::ForwardFlow),
            (vec![network("::", 0)], vec![], Verdict::ForwardFlow),
            (vec![network("2001:db8::", 32)], vec![], Verdict::DropDenied),
            (vec![], vec![], Verdict::ForwardFlow),
        ] {
            dispatch.set_networks(&allow, &deny).unwrap();
            assert_eq!(verdict(&dispatch, &packet), expected, "{allow:?} {deny:?}");
        }
        let many: Vec<_> = (0..32_768_u32)
            .map(|n| Network { address: (n << 13).to_be_bytes().into(), prefix_bits: 19 })
            .collect();
        dispatch.set_networks(&[], &many).unwrap();
        let others: Vec<_> = many.iter().map(|n| Network { prefix_bits: 20, ..*n }).collect();
        dispatch.set_networks(&others, &[]).unwrap();
        assert_eq!(verdict(&dispatch, &packet), Verdict::ForwardFlow);
        let error = dispatch.set_networks(&many, &[all]).unwrap_err().to_string();
        assert_eq!(error, "number of networks 32769 is out of range: expected 0 to 32768");
        let error = dispatch.set_networks(&[network("10.0.0.0", 33)], &[]).unwrap_err().to_string();
        assert_eq!(error, "prefix of a network 33 is out of range: expected 0 to 32");
    });
}

#[test]
fn settings_keep_what_other_calls_have_set() {
    in_bed(|bed| {
        let mut dispatch = bed.open_configured();
        let client = Network { address: CLIENT.into(), prefix_bits: 32 };
        dispatch.set_networks(&[], &[client]).unwrap();
        let settings =
            ProgramSettings { new_flows_max: 1, stream: true, ..crate::common::SETTINGS };
        dispatch.set_settings(&settings).unwrap();
        assert_eq!(verdict(&dispatch, &frame(4000, 80, SYN)), Verdict::DropDenied);
        dispatch.set_networks(&[], &[]).unwrap();
        // A window of one second may end in between, once.
        let verdicts = [4000, 4001, 4002].map(|port| verdict(&dispatch, &frame(port, 80, SYN)));
        assert!(verdicts.contains(&Verdict::ForwardGuarded), "{verdicts:?}");
        assert!(!dispatch.next_flow_events(10).unwrap().is_empty());
    });
}

#[test]
fn new_flows_are_told_in_their_order() {
    in_bed(|bed| {
        let mut dispatch = bed.open_configured();
        steer(&dispatch, &frame(3999, 80, SYN));
        assert!(dispatch.next_flow_events(1).unwrap().is_empty(), "nobody asked");
        dispatch
            .set_settings(&ProgramSettings { stream: true, ..crate::common::SETTINGS })
            .unwrap();
        for port in 4000..4100 {
            steer(&dispatch, &frame(port, 80, SYN));
            steer(&dispatch, &frame(port, 80, ACK));
        }
        let first = dispatch.next_flow_events(60).unwrap();
        assert_eq!(first.len(), 60);
        let rest = dispatch.next_flow_events(60).unwrap();
        assert!(dispatch.next_flow_events(1).unwrap().is_empty(), "all are taken");
        let expected: Vec<_> = (4000..4100).map(|port| flow(CLIENT, port, 0)).collect();
        assert_eq!([first, rest].concat(), expected);
        // Events that nobody has read are available to the next process.
        steer(&dispatch, &frame(5000, 80, SYN));
        drop(dispatch);
        assert_eq!(bed.open().next_flow_events(60).unwrap(), [flow(CLIENT, 5000, 0)]);
    });
}

fn flow(client: impl Into<std::net::IpAddr>, port: u16, node: u16) -> Flow {
    Flow { client: SocketAddr::new(client.into(), port), service: 0, node }
}

#[test]
fn flows_of_another_dispatcher_are_followed() {
    in_bed(|bed| {
        let dispatch = bed.open_configured();
        let v6: std::net::Ipv6Addr = "2001:db8::7".parse().unwrap();
        let flows: Vec<_> =
            (1..1500).flat_map(|port| [flow(CLIENT, port, 1), flow(v6, port, 1)]).collect();
        dispatch.insert_flows(&flows).unwrap();
        assert_eq!(verdict(&dispatch, &frame(700, 80, ACK)), Verdict::ForwardFlow);
        assert_eq!(steer(&dispatch, &frame(1499, 80, ACK)), Some(1));
        assert_eq!(steer(&dispatch, &frame(1500, 80, ACK)), Some(0));
        let mut seen = HashSet::new();
        dispatch.flows(|flow| assert!(seen.insert(flow), "{flow:?} twice")).unwrap();
        assert_eq!(seen, flows.into_iter().collect());
    });
}

#[test]
fn owners_of_flows_change_if_they_are_who_is_said() {
    in_bed(|bed| {
        let dispatch = bed.open_configured();
        let change = |port, from, to| {
            let change = OwnerChange { flow: flow(CLIENT, port, to), from };
            !dispatch.change_owners(&[change]).unwrap().is_empty()
        };
        dispatch.insert_flows(&[flow(CLIENT, 700, 1), flow(CLIENT, 701, 1)]).unwrap();
        assert!(change(700, Some(1), 0));
        assert_eq!(steer(&dispatch, &frame(700, 80, ACK)), Some(0));
        // The client has opened another connection from that port, which the first node did not accept.
        assert!(!change(700, Some(1), 1));
        assert_eq!(steer(&dispatch, &frame(700, 80, ACK)), Some(0));
        assert_eq!(steer(&dispatch, &frame(701, 80, ACK)), Some(1), "others stay");
        // A later move is accepted whoever the known owner is.
        assert!(change(700, None, 1));
        assert_eq!(steer(&dispatch, &frame(700, 80, ACK)), Some(1));
        // A flow that was evicted meanwhile is inserted.
        assert!(change(702, Some(0), 1));
        assert_eq!(steer(&dispatch, &frame(702, 80, ACK)), Some(1));
        assert_eq!(dispatch.change_owners(&[]).unwrap(), []);
    });
}

/// A late copy of a connection's SYN arrives when the connection has moved and the first node drains.
#[test]
fn the_syn_of_a_flow_that_has_moved_finds_its_node() {
    in_bed(|bed| {
        let mut dispatch = bed.open_configured();
        assert_eq!(steer(&dispatch, &frame(700, 80, SYN)), Some(0));
        let change = OwnerChange { flow: flow(CLIENT, 700, 1), from: Some(0) };
        assert_eq!(dispatch.change_owners(&[change]).unwrap(), [change.flow]);
        dispatch
            .set_nodes(&[node(0), DatapathNode { state: ForwardingState::Draining, ..node(1) }])
            .unwrap();
        for flags in [SYN, ACK] {
            assert_eq!(verdict(&dispatch, &frame(700, 80, flags)), Verdict::ForwardFlow);
            assert_eq!(steer(&dispatch, &frame(700, 80, flags)), Some(1));
        }
    });
}

#[test]
fn more_flows_than_a_batch_has_are_listed() {
    in_bed(|bed| {
        let sizes = skep_datapath::Sizes { flows_max: 65_536, ..crate::common::SIZES };
        let dispatch = DispatchProgram::open(&bed.place, sizes).unwrap();
        let flows: Vec<_> = (1..30_001).map(|port| flow(CLIENT, port, port % 7)).collect();
        let began = Instant::now();
        dispatch.insert_flows(&flows).unwrap();
        let inserted = began.elapsed();
        let mut seen = HashSet::new();
        dispatch.flows(|flow| assert!(seen.insert(flow))).unwrap();
        println!("30,000 flows in {inserted:?}, and out in {:?}", began.elapsed() - inserted);
        assert_eq!(seen, flows.into_iter().collect());
    });
}

#[test]
fn counters_are_of_all_processors() {
    in_bed(|bed| {
        let dispatch = bed.open_configured();
        let allowed = sched_getaffinity(None).unwrap();
        let processors: Vec<_> =
            (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).collect();
        for processor in &processors {
            let mut set = CpuSet::new();
            set.set(*processor);
            sched_setaffinity(None, &set).unwrap();
            for _ in 0..10 {
                dispatch.test_run(Build::Xdp, &frame(4000, 80, ACK), 1).unwrap();
            }
        }
        let count = skep_wire::steer::Count {
            packets: 10 * processors.len() as u64,
            bytes: 540 * processors.len() as u64,
        };
        let counters = dispatch.counters().unwrap();
        assert!(counters.verdicts.contains(&(Verdict::ForwardRow, count)), "{counters:?}");
        assert_eq!((counters.services[0], counters.nodes[0]), (count, count));
        assert_eq!(counters.verdicts.len(), Verdict::ALL.len());
        println!("on {} processors", processors.len());
    });
}

#[test]
fn a_frame_that_is_too_short_for_a_run_is_told() {
    in_bed(|bed| {
        let dispatch = bed.open_configured();
        let error = dispatch.test_run(Build::Tc, &[0; 13], 1).unwrap_err().to_string();
        assert!(error.starts_with("cannot run the packet program dispatch_tc over a frame of 13"));
        let run = dispatch.test_run(Build::Xdp, &frame(4000, 80, SYN), 1).unwrap();
        assert_eq!(run.frame.len(), 54);
        assert_eq!(run.returned, 3, "XDP_TX");
    });
}
