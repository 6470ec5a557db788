//! Errors, as sentences for the operator.

use std::io;
use std::path::PathBuf;

use aya::EbpfError;
use aya::maps::MapError;
use aya::programs::ProgramError;
use rustix::io::Errno;
use skep_wire::handoff::SocketId;
use thiserror::Error;

use crate::limits::VERIFIER_BYTES_MAX;
use crate::modes::Attached;

/// Why packets cannot be steered.
#[derive(Debug, Error)]
pub enum DatapathError {
    /// The process lacks capabilities.
    #[error(
        "skep needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON to {doing}, and the kernel refuses: \
         run it as root, or `skep netguard` with these capabilities"
    )]
    NoPermission {
        /// What was refused.
        doing: &'static str,
    },
    /// The kernel was built without a required feature, or is too old.
    #[error(
        "the kernel cannot {doing} ({error}): direct dispatch needs Linux 6.6 or newer with \
         CONFIG_BPF_SYSCALL; use another dispatch mode on this machine"
    )]
    NoBpf {
        /// The missing feature.
        doing: &'static str,
        /// The kernel's answer.
        error: io::Error,
    },
    /// The kernel does not provide the layout of its structures (BTF).
    #[error(
        "cannot read {} ({error}): nodes in direct dispatch need a kernel with BTF \
         (CONFIG_DEBUG_INFO_BTF) and /sys mounted; use another dispatch mode on this machine",
        path.display()
    )]
    NoKernelTypes {
        /// The expected path.
        path: std::path::PathBuf,
        /// What is wrong with it.
        error: aya::BtfError,
    },
    /// There is no file system for pins of maps and links.
    #[error(
        "there is no bpffs at {path}, and mounting it failed ({error}): \
         run `mount -t bpf bpf {path}` as root, once after each start of the machine"
    )]
    NoBpffs {
        /// The path that was searched.
        path: PathBuf,
        /// Why the mount failed.
        error: io::Error,
    },
    /// A folder for pins is on another file system.
    #[error("{path} is not in a bpffs: maps and links can be pinned below /sys/fs/bpf only")]
    NotBpffs {
        /// The folder asked for.
        path: PathBuf,
    },
    /// A pin could not be made, read or removed.
    #[error("cannot {doing} {path}: {error}")]
    Pin { doing: &'static str, path: PathBuf, error: io::Error },
    /// There is no such network device.
    #[error("there is no network device {device} here; there are {}", list(.devices))]
    NoSuchDevice {
        /// The name asked for.
        device: String,
        /// The existing devices.
        devices: Vec<String>,
    },
    /// The device has a foreign XDP program, which stays.
    #[error(
        "{device} has an XDP program already, {owner}, which skep does not replace: \
         remove it with `ip link set {device} xdp off`, or set direct.attach = \"tc\""
    )]
    Busy {
        device: String,
        /// Name and number of its program.
        owner: String,
    },
    /// The device does not accept a program in this way.
    #[error("{device} does not take a program by {mode} ({error}): {}", advice(*.mode))]
    Refused {
        device: String,
        /// The way tried.
        mode: Attached,
        /// The kernel's answer.
        error: io::Error,
    },
    /// The network devices could not be read.
    #[error("cannot read the network devices from the kernel: {0}")]
    Devices(io::Error),
    /// The kernel's verifier rejects a packet program.
    #[error("the kernel does not take the packet program {program}: {reason}")]
    Load {
        program: &'static str,
        /// The verifier's message.
        reason: String,
    },
    /// A map could not be read or written.
    #[error("cannot use the map {map} of the packet programs: {reason}")]
    Map { map: &'static str, reason: String },
    /// A number is outside the range of the tables.
    #[error("{what} {found} is out of range: expected {expected}")]
    OutOfRange {
        /// What is numbered.
        what: &'static str,
        /// The number given.
        found: u64,
        /// The valid range.
        expected: String,
    },
    /// There is no room to block one more connection.
    #[error(
        "{limit} connections are blocked or redirected on this machine already: no more can be"
    )]
    TooManyMoves { limit: usize },
    /// The connection is not blocked, so its packets may have reached the kernel meanwhile.
    #[error(
        "the connection of {client} to {server} is not blocked, or no longer: it must not be \
         redirected",
        client = .0.client,
        server = .0.server
    )]
    NotBlocked(SocketId),
    /// A program could not be run on a frame.
    #[error("cannot run the packet program {program} over a frame of {bytes} bytes: {reason}")]
    TestRun {
        program: &'static str,
        /// Length of the frame.
        bytes: usize,
        reason: String,
    },
}

impl DatapathError {
    /// The kernel's error for an indispensable call.
    pub(crate) fn refusal(doing: &'static str, error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(Errno::PERM | Errno::ACCESS) => Self::NoPermission { doing },
            _ => Self::NoBpf { doing, error },
        }
    }

    pub(crate) fn load(program: &'static str, error: EbpfError) -> Self {
        match error {
            EbpfError::ProgramError(error) => Self::verify(program, error),
            other => Self::Load { program, reason: chain(&other) },
        }
    }

    pub(crate) fn verify(program: &'static str, error: ProgramError) -> Self {
        match error {
            ProgramError::LoadError { io_error, verifier_log } => {
                match Errno::from_io_error(&io_error) {
                    Some(Errno::PERM) => Self::NoPermission { doing: "load packet programs" },
                    _ => {
                        let log = end_of(&verifier_log.to_string());
                        Self::Load { program, reason: format!("{io_error}: {log}") }
                    }
                }
            }
            other => Self::Load { program, reason: chain(&other) },
        }
    }

    pub(crate) fn map(map: &'static str) -> impl Fn(MapError) -> Self {
        move |error| Self::Map { map, reason: chain(&error) }
    }

    /// As [`Self::map`], for system calls made without the library.
    pub(crate) fn map_io(map: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::Map { map, reason: chain(&error) }
    }
}

fn list(devices: &[String]) -> String {
    if devices.is_empty() { "none".to_owned() } else { devices.join(", ") }
}

fn advice(mode: Attached) -> &'static str {
    match mode {
        Attached::XdpNative => {
            "its driver has no native XDP, or not with this MTU or number of queues; \
             set direct.attach to \"auto\" or \"xdp-generic\""
        }
        Attached::XdpGeneric => "set direct.attach to \"auto\" or \"tc\"",
        Attached::Tc => "programs at tc need Linux 6.6 or newer (tcx)",
    }
}

/// An error with its causes: libraries report a cause in `source` only.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn end_of(log: &str) -> String {
    let log = log.trim();
    let from = log.ceil_char_boundary(log.len().saturating_sub(VERIFIER_BYTES_MAX));
    log[from..].to_owned()
}
