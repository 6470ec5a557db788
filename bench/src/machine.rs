//! The machine: its description, and the few of its settings that a run changes and restores.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::limits::{CLIENT_CORE, FILES_MAX, SERVER_CORE, SESSION_NICENESS};
use crate::results::MachineDescription;
use crate::version;

const CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// The congestion control of new connections; the former one is restored on drop.
///
/// BBR paces by timers and probes, which over loopback makes the CPU time of the same server differ by a
/// factor of two from run to run; cubic, the kernel's default, does not.
pub(crate) struct Congestion {
    now: String,
    before: Option<String>,
}

impl Congestion {
    /// Sets `name` for the whole machine; `keep` changes nothing. Without the privilege to set it, reports
    /// that and continues with the present one.
    pub(crate) fn set(name: &str) -> Result<Self> {
        let before = fs::read_to_string(CONGESTION).context(CONGESTION)?.trim().to_owned();
        if name == "keep" || name == before {
            return Ok(Self { now: before, before: None });
        }
        match fs::write(CONGESTION, name) {
            Ok(()) => Ok(Self { now: name.to_owned(), before: Some(before) }),
            Err(error) => {
                eprintln!("skep-bench: congestion control stays {before}: {error}");
                Ok(Self { now: before, before: None })
            }
        }
    }
}

impl Drop for Congestion {
    fn drop(&mut self) {
        if let Some(before) = &self.before
            && let Err(error) = fs::write(CONGESTION, before)
        {
            eprintln!("skep-bench: set {CONGESTION} back to {before} by hand: {error}");
        }
    }
}

/// Pins this process, and everything that it starts, to the client's core. Servers are then moved to their
/// own core one by one.
pub(crate) fn claim_the_client_core() -> Result<()> {
    let mut core = CpuSet::new();
    core.set(CLIENT_CORE);
    sched_setaffinity(None, &core)
        .with_context(|| format!("cores {SERVER_CORE} and {CLIENT_CORE} are needed"))
}

/// Raises the weight of a process's session, if permitted.
pub(crate) fn prefer_session(pid: &str) {
    let _ = fs::write(format!("/proc/{pid}/autogroup"), SESSION_NICENESS.to_string());
}

/// Allows this process, and everything that it starts, to open `FILES_MAX` descriptors, or as many as
/// permitted.
pub(crate) fn raise_file_limit() {
    let wanted = Rlimit { current: Some(FILES_MAX), maximum: Some(FILES_MAX) };
    if setrlimit(Resource::Nofile, wanted).is_err() {
        let maximum = getrlimit(Resource::Nofile).maximum;
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// The number of descriptors that this process may open.
pub(crate) fn file_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(FILES_MAX)
}

/// The environment that a reader must know to compare these figures with others.
pub(crate) fn describe(congestion: &Congestion) -> Result<MachineDescription> {
    let cpus = fs::read_to_string("/proc/cpuinfo").context("/proc/cpuinfo")?;
    let value = |key: &str| {
        let line = cpus.lines().find(|line| line.starts_with(key));
        line.and_then(|line| line.split_once(": ")).map_or("", |(_, value)| value)
    };
    let date = Command::new("date").args(["-u", "+%Y-%m-%d"]).output().context("date")?;
    Ok(MachineDescription {
        date: String::from_utf8_lossy(&date.stdout).trim().to_owned(),
        processor: value("model name").to_owned(),
        mhz: value("cpu MHz").split('.').next().unwrap_or_default().to_owned(),
        cores: cpus.lines().filter(|line| line.starts_with("processor")).count(),
        is_virtual: value("flags").split(' ').any(|flag| flag == "hypervisor"),
        kernel: first_line("/proc/sys/kernel/osrelease"),
        congestion: congestion.now.clone(),
        wrk: version::of("wrk", &["-v"]).unwrap_or_default(),
    })
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(Path::new(path)).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}
