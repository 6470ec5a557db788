//! Namespaces of machines: created by a holder, entered by processes and threads.
//!
//! A machine's namespaces have no name. They exist as long as the **holder**, a
//! shell that waits for EOF on its stdin, or any process inside. Only the bed's
//! janitor holds the other end of that stdin, the **leash**: when
//! it has cleaned up, or ends for any other reason, the holders end.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, PipeReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use crate::error::{TestbedError, Tried};
use crate::limits::TCP_TABLE_BUCKETS;
use crate::sync::lock;
use crate::tool;

/// Sysfs of the new network, then a filesystem of its own for BPF pins. Then the limits that the kernel derives from the
/// size of the TCP table: those of a table of 262,144 buckets.
const HOLD: &str = "mount -t sysfs lab /sys && mount -t bpf lab /sys/fs/bpf \
                    && cd /proc/sys/net/ipv4 && echo 131072 > tcp_max_tw_buckets \
                    && echo 2048 > tcp_max_syn_backlog && cd / && echo ready \
                    && while read -r _; do :; done";

/// Where a network states the size of the TCP tables of those made from it (ip-sysctl.rst).
const CHILD_TABLE: &str = "/proc/sys/net/ipv4/tcp_child_ehash_entries";

/// A process that keeps namespaces; they go when it is dropped and nothing
/// else is in them.
pub(crate) struct Holder {
    child: Shell,
    entrance: Arc<Entrance>,
}

/// A holder whose namespaces may not be there yet.
pub(crate) struct Starting {
    name: String,
    child: Shell,
}

/// Ends when dropped.
struct Shell(Child);

/// The way into a machine: good as long as it is kept, even after the
/// machine's death.
pub(crate) struct Entrance {
    net: File,
    mounts: File,
    /// Where a process writes to come under the machine's CPU quota.
    cgroup: Mutex<Option<Arc<File>>>,
}

/// Starts a holder on a leash; `name` is what `ps` shows.
pub(crate) fn start(name: &str, leash: &PipeReader) -> Result<Starting, TestbedError> {
    let leash = leash.try_clone().tried(|| format!("cannot start {name}"))?;
    let mut command = Command::new("unshare");
    create_in_parent(&mut command);
    let child = command
        .args(["--net", "--mount", "--propagation", "slave", "sh", "-c", HOLD, name])
        .stdin(leash)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C is for the owner, who cleans up in order.
        .process_group(0)
        .spawn()
        .map_err(|error| tool::failed_to_start("unshare", error))?;
    Ok(Starting { name: name.to_owned(), child: Shell(child) })
}

/// Gives networks that this command creates TCP tables of their own. Otherwise they share the host's, and each reader of
/// `/proc/net/tcp`, and the removal of each network, walks all of its buckets.
#[expect(unsafe_code, reason = "a child must change namespaces between fork and exec")]
fn create_in_parent(command: &mut Command) {
    static PARENT: OnceLock<Option<File>> = OnceLock::new();
    // Before Linux 6.1 there is no such setting; without privileges `unshare` says so.
    let Some(parent) = PARENT.get_or_init(|| parent_network().ok()) else { return };
    let enter = || {
        // SAFETY: an open descriptor of a namespace, which is never closed.
        check(unsafe { libc::setns(parent.as_raw_fd(), libc::CLONE_NEWNET) })
    };
    // SAFETY: between fork and exec the closure makes a system call alone.
    unsafe { command.pre_exec(enter) };
}

/// A network without devices, from which networks with TCP tables of their own are made.
#[expect(unsafe_code, reason = "rustix declares this call unsafe, too")]
fn parent_network() -> io::Result<File> {
    let make = || {
        // SAFETY: changes the network of this thread alone; no file descriptor changes hands.
        check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
        fs::write(CHILD_TABLE, TCP_TABLE_BUCKETS.to_string())?;
        File::open("/proc/thread-self/ns/net")
    };
    thread::scope(|scope| scope.spawn(make).join().unwrap_or_else(|panic| resume_unwind(panic)))
}

impl Starting {
    /// Waits until the namespaces are there.
    pub(crate) fn finish(mut self) -> Result<Holder, TestbedError> {
        let (mut line, name) = (String::new(), self.name);
        if let Some(stdout) = self.child.0.stdout.take() {
            let _ = BufReader::new(stdout).read_line(&mut line);
        }
        if line != "ready\n" {
            // It has ended, so this comes to an end too.
            let mut said = String::new();
            let stderr = self.child.0.stderr.take();
            let _ = stderr.map(|mut stderr| stderr.read_to_string(&mut said));
            let (program, place) = ("unshare".to_owned(), format!("for {name}"));
            return Err(TestbedError::Program { program, place, said: said.trim().to_owned() });
        }
        let entrance = Entrance::of(self.child.0.id());
        let entrance = entrance.tried(|| format!("cannot open the namespaces of {name}"))?;
        Ok(Holder { child: self.child, entrance: Arc::new(entrance) })
    }
}

impl Holder {
    pub(crate) fn pid(&self) -> u32 {
        self.child.0.id()
    }

    pub(crate) fn entrance(&self) -> &Arc<Entrance> {
        &self.entrance
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Neither fails for a child that was not waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Entrance {
    /// The way into the namespaces of a process.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let open = |kind| File::open(format!("/proc/{pid}/ns/{kind}"));
        Ok(Self { net: open("net")?, mounts: open("mnt")?, cgroup: Mutex::default() })
    }

    /// The kernel's number of the network namespace.
    pub(crate) fn inode(&self) -> io::Result<u64> {
        Ok(self.net.metadata()?.ino())
    }

    /// Processes of later commands come into this control group.
    pub(crate) fn set_cgroup(&self, door: File) {
        *lock(&self.cgroup) = Some(Arc::new(door));
    }

    /// A command that will run inside, under the machine's CPU quota.
    #[expect(unsafe_code, reason = "a child must change namespaces between fork and exec")]
    pub(crate) fn command(self: &Arc<Self>, program: &OsStr) -> Command {
        let mut command = Command::new(program);
        let entrance = Arc::clone(self);
        let cgroup = lock(&entrance.cgroup).clone();
        let enter = move || {
            if let Some(procs) = &cgroup {
                rustix::io::write(procs, b"0\n")?;
            }
            entrance.enter()
        };
        // SAFETY: between fork and exec the closure makes system calls alone:
        // no allocation, no lock, nothing of another thread's.
        unsafe { command.pre_exec(enter) };
        command
    }

    /// Runs `work` on a new thread inside and waits for it.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let inside = || self.enter().map(|()| work());
        thread::scope(|scope| match scope.spawn(inside).join() {
            Ok(done) => done,
            Err(panic) => resume_unwind(panic),
        })
    }

    /// Moves the calling thread inside; it stays in the same folder if the
    /// machine has it, else at the root.
    #[expect(unsafe_code, reason = "the system calls have no safe form without allocation")]
    pub(crate) fn enter(&self) -> io::Result<()> {
        let mut folder = [0; libc::PATH_MAX as usize];
        // SAFETY: CLONE_FS gives this thread a current folder of its own, as
        // CLONE_NEWNS below demands; no file descriptor changes hands.
        check(unsafe { libc::unshare(libc::CLONE_FS) })?;
        // SAFETY: writes at most `len` bytes with a zero at their end, or fails.
        let found = unsafe { libc::getcwd(folder.as_mut_ptr(), folder.len()) };
        for (namespace, kind) in
            [(&self.net, libc::CLONE_NEWNET), (&self.mounts, libc::CLONE_NEWNS)]
        {
            // SAFETY: an open descriptor of a namespace, borrowed for the call.
            check(unsafe { libc::setns(namespace.as_raw_fd(), kind) })?;
        }
        if !found.is_null() {
            // SAFETY: `folder` holds a string with a zero at its end.
            let _ = unsafe { libc::chdir(folder.as_ptr()) };
        }
        Ok(())
    }
}

/// Processes in the holder's network, but for itself, by a look at each
/// process; threads of others that are inside do not count.
pub(crate) fn processes(holder: &Holder) -> io::Result<Vec<u32>> {
    let inode = holder.entrance.inode()?;
    let entries = fs::read_dir("/proc")?;
    let pid = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let is_inside = |pid: &u32| {
        let namespace = PathBuf::from(format!("/proc/{pid}/ns/net"));
        fs::metadata(namespace).is_ok_and(|it| it.ino() == inode)
    };
    let others = entries.filter_map(pid).filter(|&pid| pid != holder.pid());
    Ok(others.filter(is_inside).collect())
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
