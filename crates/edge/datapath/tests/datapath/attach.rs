//! Programs at their device: all modes, restarts, foreign programs, and removal.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{ACK, RST, SIZES, SYN, Segment, frame, in_bed, ip, wait_until};
use rustix::process::{Signal, getpid, kill_process};
use skep_datapath::{
    Attached, DatapathError, DispatchProgram, How, NodeProgram, PinPath, Sizes, attach_pass,
};
use skep_wire::steer::{Count, NODES_MAX, Verdict};

const WAYS: [(How, Attached); 3] = [
    (How::XdpNative, Attached::XdpNative),
    (How::XdpGeneric, Attached::XdpGeneric),
    (How::Tc, Attached::Tc),
];

#[test]
fn every_way_steers() {
    in_bed(|bed| {
        let segment = Segment::new();
        for (how, attached) in WAYS {
            let mut dispatch = bed.open_configured();
            assert_eq!(dispatch.attach("skep0", how).unwrap(), attached);
            assert_eq!(segment.exchange(&frame(4000, 80, SYN)), 0, "{attached}");
            let is_xdp = attached != Attached::Tc;
            assert_eq!(bed.programs(), (is_xdp, usize::from(!is_xdp)), "{attached}");
            drop(dispatch);
            DispatchProgram::detach(&bed.place).unwrap();
        }
    });
}

#[test]
fn auto_takes_the_best_way_that_the_driver_knows() {
    in_bed(|bed| {
        let mut dispatch = bed.open_configured();
        assert_eq!(dispatch.attach("skep0", How::Auto).unwrap(), Attached::XdpNative);
        assert_eq!(dispatch.attach("lo", How::Auto).unwrap(), Attached::XdpGeneric);
        assert_eq!(bed.programs(), (false, 0), "it is on one device only");
        assert_eq!(dispatch.attach("lo", How::Auto).unwrap(), Attached::XdpGeneric);
        let error = dispatch.attach("lo", How::XdpNative).unwrap_err();
        assert!(matches!(error, DatapathError::Refused { .. }), "{error}");
        let error = error.to_string();
        assert!(error.starts_with("lo does not take a program by native XDP"), "{error}");
        assert!(ip("link show dev lo").contains("xdpgeneric"), "the one before is back");
        assert!(bed.place.pins.join("link-xdp-generic").exists());
        // A device that refuses does not affect the one in use.
        let segment = Segment::new();
        dispatch.attach("skep0", How::XdpGeneric).unwrap();
        dispatch.attach("lo", How::XdpNative).unwrap_err();
        assert_eq!(segment.exchange(&frame(4000, 80, SYN)), 0);
    });
}

#[test]
fn a_restart_keeps_link_and_flows_and_loses_no_packet() {
    in_bed(|bed| {
        let segment = Segment::new();
        for (how, attached) in WAYS {
            let mut dispatch = bed.open_configured();
            dispatch.attach("skep0", how).unwrap();
            assert_eq!(segment.exchange(&frame(4000, 80, SYN)), 0);
            // From here on, only a process that has the flow in its table sends it to node 0.
            dispatch.set_rows(&crate::common::service(0), &crate::common::rows(&[1])).unwrap();
            let stop = AtomicBool::new(false);
            thread::scope(|scope| {
                let client = scope.spawn(|| {
                    let mut count = 0;
                    while !stop.load(Ordering::Relaxed) || count == 0 {
                        assert_eq!(segment.exchange(&frame(4000, 80, ACK)), 0, "{attached}");
                        count += 1;
                    }
                    count
                });
                drop(dispatch);
                let mut dispatch = bed.open();
                assert_eq!(dispatch.replaced(), [""; 0]);
                assert_eq!(dispatch.attach("skep0", how).unwrap(), attached);
                let mut flows = Vec::new();
                dispatch.flows(|flow| flows.push((flow.client.port(), flow.node))).unwrap();
                assert_eq!(flows, [(4000, 0)]);
                stop.store(true, Ordering::Relaxed);
                let count: u64 = client.join().unwrap();
                println!("{attached}: {count} packets over a restart");
                let counters = dispatch.counters().unwrap();
                let steered = (Verdict::ForwardFlow, Count { packets: count, bytes: count * 54 });
                assert!(counters.verdicts.contains(&steered), "{counters:?}");
            });
            DispatchProgram::detach(&bed.place).unwrap();
        }
    });
}

#[test]
fn a_killed_process_leaves_packets_steered() {
    in_bed(|bed| {
        let segment = Segment::new();
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "attach::attach_and_die", "--ignored"])
            .env(PINS_OF_CHILD, &bed.place.pins)
            .status()
            .unwrap();
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()));
        assert_eq!(segment.exchange(&frame(4000, 80, SYN)), 0);
        let mut dispatch = bed.open();
        assert_eq!(dispatch.attach("skep0", How::Auto).unwrap(), Attached::XdpNative);
        assert_eq!(segment.exchange(&frame(4000, 80, ACK)), 0);
    });
}

const PINS_OF_CHILD: &str = "SKEP_TEST_PINS";

#[test]
#[ignore = "is the process that is killed"]
fn attach_and_die() {
    let Some(pins) = std::env::var_os(PINS_OF_CHILD) else { return };
    let place = PinPath { pins: PathBuf::from(pins) };
    let mut dispatch = DispatchProgram::open(&place, SIZES).unwrap();
    crate::common::configure(&mut dispatch);
    dispatch.attach("skep0", How::XdpNative).unwrap();
    kill_process(getpid(), Signal::KILL).unwrap();
}

#[test]
fn from_one_way_to_another_no_packet_reaches_the_kernel() {
    in_bed(|bed| {
        bed.own_vip();
        let segment = Segment::new();
        // Without a program the kernel refuses the packet.
        segment.send(&frame(4000, 80, ACK));
        let refusal = segment.receive(Duration::from_secs(20)).expect("an RST");
        assert_eq!(refusal[47] & RST, RST);
        let mut dispatch = bed.open_configured();
        dispatch.attach("skep0", How::XdpNative).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let client = scope.spawn(|| {
                let mut steered = 0;
                while !stop.load(Ordering::Relaxed) {
                    segment.send(&frame(4000, 80, ACK));
                    // The driver may lose some frames when a program is attached or detached.
                    while let Some(frame) = segment.receive(Duration::from_millis(20)) {
                        assert_eq!(frame[47] & RST, 0, "the kernel had a packet");
                        steered += 1;
                        segment.send(&crate::common::frame(4000, 80, ACK));
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                }
                steered
            });
            for from in WAYS {
                for to in WAYS {
                    assert_eq!(dispatch.attach("skep0", from.0).unwrap(), from.1);
                    assert_eq!(dispatch.attach("skep0", to.0).unwrap(), to.1);
                    let is_xdp = to.1 != Attached::Tc;
                    assert_eq!(bed.programs(), (is_xdp, usize::from(!is_xdp)), "{}", to.1);
                }
            }
            stop.store(true, Ordering::Relaxed);
            assert!(client.join().unwrap() > 0);
        });
    });
}

#[test]
fn a_program_of_somebody_else_stays() {
    in_bed(|bed| {
        let segment = Segment::new();
        let other = attach_pass("skep0").unwrap();
        let mut dispatch = bed.open_configured();
        for how in [How::XdpNative, How::XdpGeneric] {
            let error = dispatch.attach("skep0", how).unwrap_err();
            assert!(matches!(error, DatapathError::Busy { .. }), "{error}");
            let error = error.to_string();
            assert!(error.starts_with("skep0 has an XDP program already, `pass`"), "{error}");
        }
        assert_eq!(bed.programs(), (true, 0));
        assert_eq!(dispatch.attach("skep0", How::Auto).unwrap(), Attached::Tc);
        assert_eq!(bed.programs(), (true, 1));
        assert_eq!(segment.exchange(&frame(4000, 80, SYN)), 0);
        drop(other);
        // The kernel detaches a program some time after its last descriptor was closed.
        wait_until("the other's program is gone", || bed.programs() == (false, 1));
        assert_eq!(dispatch.attach("skep0", How::Auto).unwrap(), Attached::XdpNative);
        assert_eq!(bed.programs(), (true, 0));
    });
}

#[test]
fn detach_leaves_nothing_behind() {
    in_bed(|bed| {
        DispatchProgram::detach(&bed.place).unwrap();
        for (how, _) in WAYS {
            let mut dispatch = bed.open_configured();
            dispatch.attach("skep0", how).unwrap();
            // Even while the process still has everything open.
            DispatchProgram::detach(&bed.place).unwrap();
            assert_eq!(bed.programs(), (false, 0), "{how:?}");
            assert!(!Path::new("/sys/fs/bpf/skep").exists());
            DispatchProgram::detach(&bed.place).unwrap();
        }
    });
}

#[test]
fn a_device_that_comes_back_is_taken_again() {
    in_bed(|bed| {
        let mut dispatch = bed.open_configured();
        dispatch.attach("skep0", How::XdpNative).unwrap();
        ip("link delete skep0");
        let error = dispatch.attach("skep0", How::Auto).unwrap_err().to_string();
        assert_eq!(error, "there is no network device skep0 here; there are lo");
        bed.make_devices();
        let segment = Segment::new();
        assert_eq!(dispatch.attach("skep0", How::XdpNative).unwrap(), Attached::XdpNative);
        crate::common::configure(&mut dispatch);
        assert_eq!(segment.exchange(&frame(4000, 80, SYN)), 0);
    });
}

#[test]
fn maps_of_another_size_are_replaced_and_flows_move() {
    in_bed(|bed| {
        let segment = Segment::new();
        let mut dispatch = bed.open_configured();
        dispatch.attach("skep0", How::XdpNative).unwrap();
        for port in 4000..4100 {
            segment.exchange(&frame(port, 80, SYN));
        }
        drop(dispatch);
        let larger = Sizes { flows_max: 8192, ..SIZES };
        let mut dispatch = DispatchProgram::open(&bed.place, larger).unwrap();
        assert_eq!(dispatch.replaced(), ["flows"]);
        dispatch.attach("skep0", How::Auto).unwrap();
        let mut count = 0;
        dispatch.flows(|_| count += 1).unwrap();
        assert_eq!(count, 100);
        dispatch.set_rows(&crate::common::service(0), &crate::common::rows(&[1])).unwrap();
        assert_eq!(segment.exchange(&frame(4099, 80, ACK)), 0);
        assert_eq!(segment.exchange(&frame(4100, 80, ACK)), 1);
    });
}

#[test]
fn pins_and_sizes_that_cannot_be_are_told() {
    in_bed(|bed| {
        let place = PinPath { pins: PathBuf::from("/tmp/skep-no-bpffs") };
        let error = DispatchProgram::open(&place, SIZES).err().unwrap().to_string();
        assert!(error.starts_with("/tmp/skep-no-bpffs is not in a bpffs"), "{error}");
        assert!(DispatchProgram::detach(&PinPath { pins: "/tmp".into() }).is_err());
        let sizes = Sizes { services_max: 65, ..SIZES };
        let error = DispatchProgram::open(&bed.place, sizes).err().unwrap().to_string();
        assert_eq!(error, "number of services 65 is out of range: expected 1 to 64");
    });
}

#[test]
fn the_node_side_stands_behind_the_dispatcher() {
    in_bed(|bed| {
        let node_place = PinPath { pins: PathBuf::from("/sys/fs/bpf/skep/test/node") };
        let mut node = NodeProgram::open(&node_place, SIZES).unwrap();
        node.set_settings(&crate::common::SETTINGS).unwrap();
        node.set_nodes(&[crate::common::node(0)]).unwrap();
        node.set_rows(&crate::common::service(0), &crate::common::rows(&[0])).unwrap();
        node.set_services(&[crate::common::service(0)]).unwrap();
        node.attach("skep0").unwrap();
        let mut dispatch = bed.open_configured();
        dispatch.attach("skep0", How::Tc).unwrap();
        let ingress = aya::programs::TcAttachType::Ingress;
        let names = || -> Vec<String> {
            let (_, programs) =
                aya::programs::SchedClassifier::query_tcx("skep0", ingress).unwrap();
            programs.iter().map(|program| program.name_as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names(), ["dispatch_tc", "node"]);
        drop(node);
        let mut node = NodeProgram::open(&node_place, SIZES).unwrap();
        node.attach("skep0").unwrap();
        assert_eq!(names(), ["dispatch_tc", "node"]);
        DispatchProgram::detach(&bed.place).unwrap();
        assert_eq!(names(), ["node"]);
        assert_eq!(node.counters().unwrap().nodes.len(), NODES_MAX);
        NodeProgram::detach(&node_place).unwrap();
        assert_eq!(bed.programs(), (false, 0));
        assert!(!Path::new("/sys/fs/bpf/skep").exists());
    });
}
