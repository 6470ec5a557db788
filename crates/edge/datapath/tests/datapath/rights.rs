//! With the capabilities that netguard keeps everything works; with fewer, one clear line

//! states what is missing.

use crate::common::{SIZES, SYN, Segment, frame, in_bed};
use rustix::mount::{UnmountFlags, unmount};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use skep_datapath::{
    Attached, DatapathError, DispatchProgram, How, NodeProgram, PinPath, attach_pass,
};

const NETGUARD: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::PERFMON);

/// Keeps only these capabilities, for the rest of the thread's life.
fn keep_only(kept: CapabilitySet) {
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: kept };
    set_capabilities(None, sets).unwrap();
}

#[test]
fn what_netguard_keeps_is_enough() {
    in_bed(|bed| {
        let segment = Segment::new();
        skep_datapath::prepare().unwrap();
        keep_only(NETGUARD);
        for (how, attached) in [
            (How::Auto, Attached::XdpNative),
            (How::XdpGeneric, Attached::XdpGeneric),
            (How::Tc, Attached::Tc),
        ] {
            let mut dispatch = bed.open_configured();
            assert_eq!(dispatch.attach("skep0", how).unwrap(), attached);
            assert_eq!(segment.exchange(&frame(4000, 80, SYN)), 0);
            dispatch.counters().unwrap();
            dispatch.flows(|_| ()).unwrap();
        }
        let place = PinPath { pins: "/sys/fs/bpf/skep/test/node".into() };
        NodeProgram::open(&place, SIZES).unwrap().attach("skep0").unwrap();
        NodeProgram::detach(&place).unwrap();
        DispatchProgram::detach(&bed.place).unwrap();
        // It may not ask for the other program's owner, but it does see that there is one.
        let _other = attach_pass("skep0").unwrap();
        let mut dispatch = bed.open_configured();
        let error = dispatch.attach("skep0", How::XdpNative).unwrap_err().to_string();
        assert!(error.starts_with("skep0 has an XDP program already, program "), "{error}");
    });
}

#[test]
fn what_is_missing_is_said() {
    in_bed(|bed| {
        unmount("/sys/fs/bpf", UnmountFlags::DETACH).unwrap();
        keep_only(NETGUARD);
        let error = DispatchProgram::open(&bed.place, SIZES).err().unwrap();
        assert!(matches!(error, DatapathError::NoBpffs { .. }), "{error}");
        let error = error.to_string();
        assert!(error.contains("run `mount -t bpf bpf /sys/fs/bpf` as root"), "{error}");
        keep_only(NETGUARD.difference(CapabilitySet::NET_ADMIN));
        refused(skep_datapath::prepare());
        keep_only(CapabilitySet::empty());
        refused(skep_datapath::prepare());
    });
}

fn refused(result: Result<(), DatapathError>) {
    let error = result.unwrap_err();
    assert!(matches!(error, DatapathError::NoPermission { .. }), "{error}");
    let error = error.to_string();
    assert!(error.starts_with("skep needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON to "), "{error}");
}
