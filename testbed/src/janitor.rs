//! The process that cleans up when a bed ends, by `Drop` or by SIGKILL.
//!
//! Both cases take the same path: the janitor waits for EOF on its stdin, whose other
//! end only the owner holds. It is a shell script, so that the program that
//! owns the bed does not have to re-execute itself.

use std::io::{self, PipeReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::error::{TestbedError, Tried};
use crate::registry::Slot;
use crate::tool;

const SCRIPT: &str = include_str!("janitor.sh");

/// Cleans up when it is dropped.
pub(crate) struct Janitor(Child);

/// Begins `ps`'s line of it.
const NAME: &str = "skep-lab janitor";

impl Janitor {
    /// Starts one that keeps the slot's lock until all is clean; returns the
    /// leash by which holders know when that is.
    pub(crate) fn start(slot: &Slot) -> Result<(Self, PipeReader), TestbedError> {
        let (leash, end) = io::pipe().tried(|| "cannot make a pipe".to_owned())?;
        let child = Command::new("sh")
            .args(["-c", SCRIPT, NAME])
            .arg(&slot.path)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(slot.share()?)
            .stderr(end)
            // Ctrl-C is for the owner.
            .process_group(0)
            .spawn()
            .map_err(|error| tool::failed_to_start("sh", error))?;
        Ok((Self(child), leash))
    }

    /// Processes in the network namespace of this number are to be killed, all
    /// but the one that holds it.
    pub(crate) fn knows_net(&mut self, inode: u64, holder: u32) -> Result<(), TestbedError> {
        self.tell(&format!("net {inode} {holder}\n"))
    }

    /// This network namespace is about to go, and its number with it.
    pub(crate) fn forgets_net(&mut self, inode: u64) -> Result<(), TestbedError> {
        self.tell(&format!("gone {inode}\n"))
    }

    /// This control group and those in it are to be removed.
    pub(crate) fn knows_cgroup(&mut self, folder: &Path) -> Result<(), TestbedError> {
        self.tell(&format!("cgroup {}\n", folder.display()))
    }

    /// This device of the host is to be removed.
    pub(crate) fn knows_link(&mut self, device: &str) -> Result<(), TestbedError> {
        self.tell(&format!("link {device}\n"))
    }

    fn tell(&mut self, line: &str) -> Result<(), TestbedError> {
        let stdin = self.0.stdin.as_mut();
        let told = stdin.map_or(Ok(()), |stdin| stdin.write_all(line.as_bytes()));
        told.tried(|| "the bed's janitor is gone".to_owned())
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
