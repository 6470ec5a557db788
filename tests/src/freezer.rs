//! Freezes single threads of a process while all others run.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Pid;

use crate::wait::{PATIENCE, holds_within, skip};

/// A control group with a child group for frozen threads: cgroups(7), version 2. A process can end even with
/// frozen threads.
#[derive(Debug)]
pub struct Freezer {
    group: PathBuf,
}

impl Freezer {
    /// Makes an empty group; `None`, reported loudly, if no cgroup2 file system is mounted. To be dropped
    /// after its processes have ended.
    pub fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let Some(top) = mounted() else {
            skip("no cgroup2 file system is mounted");
            return None;
        };
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let group = top.join(format!("skep-test-{}-{number}", std::process::id()));
        let freezer = Self { group };
        fs::create_dir_all(freezer.frozen()).expect("root may");
        fs::write(freezer.frozen().join("cgroup.type"), "threaded").expect("it is a new group");
        fs::write(freezer.frozen().join("cgroup.freeze"), "1").expect("it is a new group");
        Some(freezer)
    }

    /// Freezes the thread of this name, until its process ends.
    #[track_caller]
    pub fn freeze(&self, process: Pid, thread: &str) {
        let process = process.as_raw_nonzero().to_string();
        let threads = fs::read_dir(format!("/proc/{process}/task")).expect("the process runs");
        let is_it = |task: &PathBuf| {
            fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == thread)
        };
        let found = threads.flatten().map(|task| task.path()).find(is_it);
        let found = found.unwrap_or_else(|| panic!("process {process} has no thread {thread}"));
        let number = found.file_name().and_then(|name| name.to_str()).expect("a number");
        fs::write(self.group.join("cgroup.procs"), process).expect("it runs");
        fs::write(self.frozen().join("cgroup.threads"), number).expect("it runs");
    }

    fn frozen(&self) -> PathBuf {
        self.group.join("frozen")
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let is_gone = |group: &Path| fs::remove_dir(group).is_ok() || !group.exists();
        let is_gone = holds_within(PATIENCE, || is_gone(&self.frozen()) && is_gone(&self.group));
        assert!(is_gone || std::thread::panicking(), "{} stays", self.group.display());
    }
}

/// Returns the mount point of the cgroup2 file system.
fn mounted() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let of = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let (place, kind) = (fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(place))
    };
    mounts.lines().find_map(of)
}
