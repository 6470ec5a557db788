//! Denies system calls and files that a process never needs, even if an attacker's code runs in it.
//!
//! The filter is a denylist, so calls that the kernel, the C library or a runtime begin to use still work;
//! for calls that are allowed with any arguments the kernel decides by a bitmap, without running the filter
//! (Linux 5.11). Landlock's rules cover writing files and executing programs: reading a file has no
//! additional cost.
//!
//! Both are inherited by threads, and must be set up before other threads start.

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

/// Why a process could not be confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// The filter of system calls could not be installed.
    #[error("no filter of system calls: {0}")]
    Seccomp(#[from] seccompiler::Error),
    /// The filter could not be built.
    #[error("no filter of system calls: {0}")]
    Filter(#[from] seccompiler::BackendError),
    /// The rules for files failed.
    #[error("no rules for files: {0}")]
    Landlock(#[from] landlock::RulesetError),
    /// This kernel does not support Landlock.
    #[error("no rules for files: this kernel has no Landlock")]
    NoLandlock,
}

/// Whether BPF programs may be loaded: by netguard only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bpf {
    /// They may.
    Allowed,
    /// They may not.
    Denied,
}

/// Denies system calls that neither a server nor netguard needs: access to other processes, mounts,
/// namespaces, executing programs, kernel modules.
pub fn deny_calls(bpf: Bpf) -> Result<(), ConfineError> {
    let mut denied: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    denied.extend(always_denied(bpf).map(|call| (call, Vec::new())));
    denied.insert(libc::SYS_clone, vec![in_new_user_namespace()?]);
    denied.insert(libc::SYS_setsockopt, own_ip_headers()?);
    #[cfg(target_arch = "x86_64")]
    deny_x32(&mut denied, bpf);
    install(denied, libc::EPERM)?;
    // Its flags are in memory, which no filter can inspect; on `ENOSYS` the C library falls back to `clone`.
    install([(libc::SYS_clone3, Vec::new())].into(), libc::ENOSYS)
}

/// Allows writing files only below `writable`, as far as their modes permit, and denies executing programs.
/// Missing folders are skipped.
pub fn write_only_below(writable: &[&Path]) -> Result<(), ConfineError> {
    let abi = ABI::V5;
    // Access to devices is controlled by their modes.
    let handled = (AccessFs::from_write(abi) | AccessFs::Execute) & !AccessFs::IoctlDev;
    let rights: BitFlags<AccessFs> = AccessFs::from_write(abi) & handled;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(handled)?
        .create()?
        .no_new_privs(true);
    for folder in writable {
        // The folder of a bare file name is the current one.
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

/// A user namespace grants all capabilities in it, and thereby exposes a large part of the kernel
/// to attacks.
fn in_new_user_namespace() -> Result<SeccompRule, ConfineError> {
    let flag = u64::from(libc::CLONE_NEWUSER.unsigned_abs());
    let has_flag = SeccompCmpOp::MaskedEq(flag);
    let condition = SeccompCondition::new(0, SeccompCmpArgLen::Qword, has_flag, flag)?;
    Ok(SeccompRule::new(vec![condition])?)
}

/// Denies caller-supplied IP headers on a raw socket: with the socket that netguard passes on for handoffs,
/// packets of any protocol and from any address could be sent.
fn own_ip_headers() -> Result<Vec<SeccompRule>, ConfineError> {
    /// `IPV6_HDRINCL` of linux/in6.h.
    const IPV6_HDRINCL: i32 = 36;
    let options = [(libc::IPPROTO_IP, libc::IP_HDRINCL), (libc::IPPROTO_IPV6, IPV6_HDRINCL)];
    let is = |argument, value: i32| {
        let value = u64::from(value.unsigned_abs());
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
    };
    let rule = |(level, name)| Ok(SeccompRule::new(vec![is(1, level)?, is(2, name)?])?);
    options.into_iter().map(rule).collect()
}

/// Denies the same calls by their numbers in the x32 ABI, which some kernels accept from any process: common
/// calls with a bit set, and calls of its own (512 to 547).
#[cfg(target_arch = "x86_64")]
fn deny_x32(denied: &mut BTreeMap<i64, Vec<SeccompRule>>, bpf: Bpf) {
    const X32: i64 = 0x4000_0000;
    let common = always_denied(bpf).chain([libc::SYS_clone, libc::SYS_clone3]);
    denied.extend(common.chain(512..=547).map(|call| (call | X32, Vec::new())));
}

/// Denied to all processes, grouped by purpose.
const DENIED: &[i64] = &[
    // Access to other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Executing programs.
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
    // Files by handle instead of by name, which avoids the checks of the path.
    libc::SYS_open_by_handle_at,
    // The kernel itself, and its most attacked interfaces.
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
    // Settings of the machine.
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
