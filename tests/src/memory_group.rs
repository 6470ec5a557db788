//! The memory use of a process as the kernel accounts for it, including memory that its own statistics omit,
//! such as pages of closed files in socket queues.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Pid;

use crate::wait::{PATIENCE, poll_until};

/// Number of the next group of this test program.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// A separate memory cgroup for one process. Must be dropped after the process has ended.
#[derive(Debug)]
pub struct MemoryGroup {
    folder: PathBuf,
    usage: &'static str,
}

impl MemoryGroup {
    /// Makes an empty group; `None`, with a message, if this machine or user cannot have one.
    pub fn new() -> Option<Self> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("skep-test-{}-{number}", std::process::id());
        let kinds = [
            ("/sys/fs/cgroup/memory", "memory.usage_in_bytes"),
            ("/sys/fs/cgroup", "memory.current"),
        ];
        for (above, usage) in kinds {
            let group = Self { folder: Path::new(above).join(&name), usage };
            if Path::new(above).join("cgroup.procs").exists()
                && fs::create_dir(&group.folder).is_ok()
                && group.folder.join(usage).exists()
            {
                return Some(group);
            }
        }
        eprintln!("skipped: a memory cgroup is not to be had (it needs root, and the controller)");
        None
    }

    /// Adds the process `pid`; memory that it allocates from now on is counted.
    #[track_caller]
    pub fn add(&self, pid: Pid) {
        let number = pid.as_raw_nonzero().to_string();
        fs::write(self.folder.join("cgroup.procs"), number).expect("a group of ours");
    }

    /// Returns the memory use of its process in bytes.
    #[track_caller]
    pub fn bytes(&self) -> u64 {
        let text = fs::read_to_string(self.folder.join(self.usage)).expect("a group of ours");
        text.trim().parse().expect("a number of bytes")
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        if !self.folder.is_dir() {
            return;
        }
        let remove = || fs::remove_dir(&self.folder).is_ok();
        if std::thread::panicking() {
            remove();
        } else {
            poll_until(PATIENCE, "the memory cgroup is empty", remove);
        }
    }
}
