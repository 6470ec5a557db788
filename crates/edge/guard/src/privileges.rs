//! What a process may do, made less.
//!
//! Capabilities belong to threads: call these before others are started.

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// What netguard keeps: programs and maps, devices and addresses, raw frames.
/// PERFMON is what the kernel asks for beside BPF to load some programs,
/// SYS_ADMIN goes as soon as bpffs is mounted.
pub const NETGUARD: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::PERFMON);

/// Gives up every capability of this thread but `kept`, for good: also what it
/// could regain by starting a program.
pub fn keep_only(kept: CapabilitySet) -> io::Result<()> {
    clear_ambient_capability_set()?;
    for capability in CapabilitySet::all().difference(kept).iter() {
        // Not in the set, or not known to this kernel: nothing to give up.
        if capability_is_in_bounding_set(capability).unwrap_or(false) {
            match remove_capability_from_bounding_set(capability) {
                // Who may not do this has nothing to lose by it.
                Err(rustix::io::Errno::PERM) | Ok(()) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    let held = rustix::thread::capabilities(None)?;
    let left = CapabilitySets {
        effective: held.permitted.intersection(kept),
        permitted: held.permitted.intersection(kept),
        inheritable: CapabilitySet::empty(),
    };
    if held != left {
        set_capabilities(None, left)?;
    }
    set_no_new_privs(true)?;
    Ok(())
}

/// Gives up every capability of this thread.
pub fn keep_nothing() -> io::Result<()> {
    keep_only(CapabilitySet::empty())
}

/// Whether this thread has all of `wanted`.
pub fn has(wanted: CapabilitySet) -> bool {
    rustix::thread::capabilities(None).is_ok_and(|held| held.effective.contains(wanted))
}
