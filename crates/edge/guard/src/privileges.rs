//! Drops the privileges of a process.
//!
//! Users, capabilities and filters are per thread: call these functions before other threads start.
//! [`serve_as`] refuses to run otherwise.

use std::io;

use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use crate::user::User;

/// Capabilities that netguard keeps: programs and maps, devices and addresses, repair mode of sockets, raw
/// frames. The kernel requires PERFMON beside BPF to load some programs; SYS_ADMIN is dropped as soon as
/// bpffs is mounted.
pub const NETGUARD: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::PERFMON);

/// Capability that it keeps in addition on a node that hands off connections: those that move to this node
/// have the service's address, whose port may be below 1024.
pub const HANDOFFS: CapabilitySet = CapabilitySet::NET_BIND_SERVICE;

/// Why privileges could not be dropped.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// A bug in Skep: threads that are already running keep their privileges.
    #[error("{threads} threads run already, and would keep their privileges")]
    Threads {
        /// Number of threads.
        threads: usize,
    },
    /// The kernel refused the change of user.
    #[error("cannot become the user {user} (number {uid}): {error}")]
    Become { user: String, uid: u32, error: io::Error },
    /// The kernel refused the change of capabilities.
    #[error("cannot give up capabilities: {0}")]
    Capabilities(#[from] io::Error),
}

/// Changes this process to `user`, irrevocably, without any capability and with exactly its groups;
/// a process that is not root keeps its user. Must precede all other threads.
pub fn serve_as(user: &User) -> Result<(), PrivilegeError> {
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads > 1 {
        return Err(PrivilegeError::Threads { threads });
    }
    // First the bounding set, which takes privileges to reduce.
    bound(CapabilitySet::empty())?;
    if rustix::process::geteuid().is_root() {
        let (name, uid) = (user.name.clone(), user.uid);
        become_user(user).map_err(|error| PrivilegeError::Become {
            user: name,
            uid,
            error: error.into(),
        })?;
    }
    Ok(keep_only(CapabilitySet::empty())?)
}

fn become_user(user: &User) -> rustix::io::Result<()> {
    let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    set_thread_groups(&groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)
}

/// Drops every capability of this thread but `kept`, irrevocably, including those that it could regain by
/// executing a program.
pub fn keep_only(kept: CapabilitySet) -> io::Result<()> {
    bound(kept)?;
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

/// Drops the capabilities beyond `kept` that programs executed by this thread could have.
fn bound(kept: CapabilitySet) -> io::Result<()> {
    clear_ambient_capability_set()?;
    for capability in CapabilitySet::all().difference(kept).iter() {
        // A capability that is not in the set, or that this kernel does not know, needs no removal.
        if capability_is_in_bounding_set(capability).unwrap_or(false) {
            match remove_capability_from_bounding_set(capability) {
                // A process without this right has no such privilege to drop.
                Err(rustix::io::Errno::PERM) | Ok(()) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Whether this thread has all of `wanted`.
pub fn has(wanted: CapabilitySet) -> bool {
    rustix::thread::capabilities(None).is_ok_and(|held| held.effective.contains(wanted))
}
