//! System calls and files that a process never needs, out of its reach even if
//! a stranger's code should run in it.
//!
//! What is denied is a list, so whatever else the kernel, the C library or a
//! runtime come to use still works; and for calls that are let pass whatever
//! their arguments the kernel answers out of a bitmap, without running the
//! filter (Linux 5.11). Landlock's rules are about writing and starting
//! programs: reading a file costs nothing more.
//!
//! Both are inherited by threads, and meant to be called before there are any.

use std::collections::BTreeMap;
use std::path::Path;

use landlock::{
    ABI, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Why a process is less confined than it should be.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// The filter of system calls.
    #[error("no filter of system calls: {0}")]
    Seccomp(#[from] seccompiler::Error),
    /// The same, as it is made.
    #[error("no filter of system calls: {0}")]
    Filter(#[from] seccompiler::BackendError),
    /// Rules for files.
    #[error("no rules for files: {0}")]
    Landlock(#[from] landlock::RulesetError),
    /// This kernel has none.
    #[error("no rules for files: this kernel has no Landlock")]
    NoLandlock,
}

/// Whether programs of the kernel may be loaded: netguard's task, and nobody else's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bpf {
    /// They may.
    Allowed,
    /// They may not.
    Denied,
}

/// Denies the system calls that neither a server nor netguard needs: looking
/// into other processes, mounting, namespaces, other programs, kernel modules.
pub fn deny_calls(bpf: Bpf) -> Result<(), ConfineError> {
    let mut denied: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    denied.extend(always_denied(bpf).map(|call| (call, Vec::new())));
    denied.insert(libc::SYS_clone, vec![in_new_user_namespace()?]);
    #[cfg(target_arch = "x86_64")]
    deny_x32(&mut denied, bpf);
    install(denied, libc::EPERM)?;
    // Its flags are in memory, where no filter looks; without it the C library
    // takes `clone`.
    install([(libc::SYS_clone3, Vec::new())].into(), libc::ENOSYS)
}

/// Lets files be written below `writable` only, as far as their modes let them,
/// and no program be started. Folders that are not there are passed over.
pub fn write_only_below(writable: &[&Path]) -> Result<(), ConfineError> {
    let abi = ABI::V5;
    // Devices are ruled by their modes.
    let handled = (AccessFs::from_write(abi) | AccessFs::Execute) & !AccessFs::IoctlDev;
    let rights: BitFlags<AccessFs> = AccessFs::from_write(abi) & handled;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(handled)?
        .create()?
        .no_new_privs(true);
    for folder in writable {
        // What has no folder in its name is here.
        let here = Path::new(".");
        let folder = if folder.as_os_str().is_empty() { here } else { folder };
        if let Ok(folder) = PathFd::new(folder) {
            rules = rules.add_rule(PathBeneath::new(folder, rights))?;
        }
    }
    match rules.restrict_self()?.ruleset {
        RulesetStatus::NotEnforced => Err(ConfineError::NoLandlock),
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
    }
}

fn install(calls: BTreeMap<i64, Vec<SeccompRule>>, errno: i32) -> Result<(), ConfineError> {
    let refuse = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(
        calls,
        SeccompAction::Allow,
        refuse,
        std::env::consts::ARCH.try_into()?,
    )?;
    let program: BpfProgram = filter.try_into()?;
    Ok(seccompiler::apply_filter(&program)?)
}

fn always_denied(bpf: Bpf) -> impl Iterator<Item = i64> {
    DENIED.iter().copied().chain((bpf == Bpf::Denied).then_some(libc::SYS_bpf))
}

/// A user namespace gives all capabilities in it, and with them a large part of
/// the kernel to attack.
fn in_new_user_namespace() -> Result<SeccompRule, ConfineError> {
    let flag = u64::from(libc::CLONE_NEWUSER.unsigned_abs());
    let has_flag = SeccompCmpOp::MaskedEq(flag);
    let condition = SeccompCondition::new(0, SeccompCmpArgLen::Qword, has_flag, flag)?;
    Ok(SeccompRule::new(vec![condition])?)
}

/// Calls by their numbers of the x32 ABI, which some kernels take from any
/// process: those that are common to both with a bit set, and its own (512 to 547).
#[cfg(target_arch = "x86_64")]
fn deny_x32(denied: &mut BTreeMap<i64, Vec<SeccompRule>>, bpf: Bpf) {
    const X32: i64 = 0x4000_0000;
    let common = always_denied(bpf).chain([libc::SYS_clone, libc::SYS_clone3]);
    denied.extend(common.chain(512..=547).map(|call| (call | X32, Vec::new())));
}

/// Denied to all, by what they are for.
const DENIED: &[i64] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Other programs.
    libc::SYS_execve,
    libc::SYS_execveat,
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    // Files without their names, and so without the checks on the way.
    libc::SYS_open_by_handle_at,
    // The kernel itself, and what of it is attacked most.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_personality,
    // The machine.
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];
