//! Processes of the binary under test.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{
    Gid, Pid, Resource, Rlimit, Signal, Uid, kill_process, kill_process_group, prlimit,
};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};
use skep_testclient::RawClient;

use crate::node_folder::NodeFolder;
use crate::wait::{PATIENCE, poll_until};

/// Maximum output kept of one process, in bytes; the rest is read and discarded.
const OUTPUT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A running process. Killed with all its children when dropped.
#[derive(Debug)]
pub struct Skep {
    child: Child,
    arguments: String,
    stdout: Output,
    stderr: Output,
    address: Option<SocketAddr>,
    exit: Option<ExitStatus>,
    /// Time that it gets to stop its children before it is killed.
    parting: Duration,
    pub(crate) folder: Option<NodeFolder>,
}

/// The result of a process that has ended.
#[derive(Debug)]
pub struct Finished {
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// All of its standard output.
    pub stdout: String,
    /// All of its standard error.
    pub stderr: String,
}

/// Runs `skep ARGUMENTS` until it ends.
///
/// # Panics
/// If it does not end within [`PATIENCE`].
#[track_caller]
pub fn run_to_end(arguments: &[&str]) -> Finished {
    Skep::start(arguments).finish()
}

impl Skep {
    /// Runs `skep serve DIR --listen 127.0.0.1:0 ARGUMENTS`, and waits for its ready line. A `--listen` in
    /// the arguments overrides the first one.
    #[track_caller]
    pub fn serve(dir: &Path, arguments: &[&str]) -> Self {
        let dir = text(dir);
        let mut all = vec!["serve", dir];
        if !arguments.contains(&"--listen") {
            all.extend(["--listen", "127.0.0.1:0"]);
        }
        all.extend(arguments);
        Self::serve_command(Command::new(binary()).args(all))
    }

    /// Runs `command`, which is or becomes a `skep serve`, and waits for its ready line.
    #[track_caller]
    pub fn serve_command(command: &mut Command) -> Self {
        let mut skep = Self::start_command(command);
        skep.wait_ready("skep: serving ");
        skep
    }

    /// Runs `skep up DIR --listen 127.0.0.1:0 ARGUMENTS`, and waits for its ready line.
    #[track_caller]
    pub fn up(dir: &Path, arguments: &[&str]) -> Self {
        let mut all = vec!["up", text(dir), "--listen", "127.0.0.1:0"];
        all.extend(arguments);
        let mut skep = Self::start(&all);
        skep.parting = PATIENCE;
        skep.wait_ready("skep: cluster ready ");
        skep
    }

    /// Runs `skep run --config CONFIG ARGUMENTS`, and waits for its ready line. [`Self::address`] will return
    /// `address`.
    #[track_caller]
    pub fn run(config: &Path, arguments: &[&str], address: SocketAddr) -> Self {
        let mut command = Command::new(binary());
        command.args(["run", "--config", text(config)]).args(arguments);
        Self::run_command(&mut command, address)
    }

    /// Runs `command`, which is or wraps a `skep run`, and waits for its ready line.
    #[track_caller]
    pub fn run_command(command: &mut Command, address: SocketAddr) -> Self {
        let mut skep = Self::start_command(command);
        skep.address = Some(address);
        poll_until(PATIENCE, &format!("ready line of skep {}", skep.arguments), || {
            let stdout = skep.stdout_text();
            let is_ready = stdout.starts_with("skep: ready on http://") && stdout.ends_with('\n');
            if !is_ready {
                skep.assert_running();
            }
            is_ready
        });
        skep
    }

    /// Starts `skep ARGUMENTS` without waiting for anything.
    #[track_caller]
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_command(Command::new(binary()).args(arguments))
    }

    /// Starts `command`, whose program may be a wrapper of [`Self::binary`].
    #[track_caller]
    pub fn start_command(command: &mut Command) -> Self {
        let arguments: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
        let arguments = arguments.join(" ");
        // A separate process group, so that a kill includes the children.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let program = command.get_program().to_owned();
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("cannot run {program:?}: {error}"));
        let stdout = Output::of(child.stdout.take().expect("piped above"));
        let stderr = Output::of(child.stderr.take().expect("piped above"));
        Self {
            child,
            arguments,
            stdout,
            stderr,
            address: None,
            exit: None,
            parting: Duration::ZERO,
            folder: None,
        }
    }

    /// Returns the path of the binary under test.
    pub fn binary() -> PathBuf {
        binary()
    }

    /// Returns its listening address, from the ready line.
    #[track_caller]
    pub fn address(&self) -> SocketAddr {
        self.address.expect("started with a ready line")
    }

    /// Opens a new connection to it.
    #[track_caller]
    pub fn connect(&self) -> RawClient {
        RawClient::connect(self.address())
    }

    /// Sends a signal to it.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it runs and is ours");
    }

    /// Stops it by SIGSTOP. Returns once none of its threads runs: after the signal, each thread continues
    /// until it is interrupted.
    #[track_caller]
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.pid());
        poll_until(PATIENCE, "all its threads stand still", || {
            let mut tasks = std::fs::read_dir(&tasks).expect("it runs").flatten();
            tasks.all(|task| {
                let stat = std::fs::read_to_string(task.path().join("stat"));
                stat.is_ok_and(|stat| stat.contains(") T "))
            })
        });
    }

    /// Ends [`Skep::pause`].
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Waits until it ends.
    #[track_caller]
    pub fn wait_exit(&mut self, deadline: Duration) -> ExitStatus {
        let what = format!("end of skep {}", self.arguments);
        poll_until(deadline, &what, || self.has_exited());
        self.exit.expect("polled above")
    }

    /// Waits until it ends, and returns all its output.
    #[track_caller]
    pub fn finish(self) -> Finished {
        self.finish_within(PATIENCE)
    }

    /// Like [`Skep::finish`], with another deadline.
    #[track_caller]
    pub fn finish_within(mut self, deadline: Duration) -> Finished {
        let code = self.wait_exit(deadline).code();
        self.kill_group();
        Finished { code, stdout: self.stdout.whole(), stderr: self.stderr.whole() }
    }

    /// Whether it has ended.
    pub fn has_exited(&mut self) -> bool {
        if self.exit.is_none() {
            self.exit = self.child.try_wait().expect("it is our child");
        }
        self.exit.is_some()
    }

    /// Returns its standard output so far.
    pub fn stdout_text(&self) -> String {
        self.stdout.text()
    }

    /// Returns its standard error so far.
    pub fn stderr_text(&self) -> String {
        self.stderr.text()
    }

    /// Returns its resident memory plus memory files, which are not included in it, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let files = self.descriptors().into_iter().filter(|(_, what)| is_memory_file(what));
        // The file may have been closed meanwhile.
        let blocks = files.filter_map(|(path, _)| Some(fs::metadata(path).ok()?.blocks()));
        self.rss_bytes() + blocks.sum::<u64>() * 512
    }

    /// Returns its resident memory in bytes.
    pub fn rss_bytes(&self) -> u64 {
        let status = self.proc_file("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        let kib = line.trim().strip_suffix(" kB").expect("a number of kB");
        kib.parse::<u64>().expect("a number of kB") * 1024
    }

    /// Returns the number of its open descriptors.
    pub fn open_fds(&self) -> usize {
        fs::read_dir(self.proc_path("fd")).expect("it runs and is ours").count()
    }

    /// Returns the targets of its open descriptors except for memory files, as listed in `/proc`, sorted.
    pub fn open_but_memory(&self) -> Vec<String> {
        let all = self.descriptors().into_iter().map(|(_, what)| what);
        let mut others: Vec<_> = all.filter(|what| !is_memory_file(what)).collect();
        others.sort();
        others
    }

    /// Returns its open descriptors, each as a path in `/proc` with its target.
    fn descriptors(&self) -> Vec<(PathBuf, String)> {
        let files = fs::read_dir(self.proc_path("fd")).expect("it runs and is ours");
        let one = |entry: fs::DirEntry| {
            let what = fs::read_link(entry.path()).ok()?;
            Some((entry.path(), what.to_string_lossy().into_owned()))
        };
        files.flatten().filter_map(one).collect()
    }

    /// Returns the number of open connections to [`Self::address`]. Connections not accepted yet, and those
    /// that it has closed, are not counted, whatever the client did.
    pub fn connections(&self) -> usize {
        self.connections_to(self.address())
    }

    /// Like [`Self::connections`] for another address at which it listens.
    pub fn connections_to(&self, address: SocketAddr) -> usize {
        let port = format!(":{:04X}", address.port());
        let table = self.proc_file("net/tcp") + &self.proc_file("net/tcp6");
        table.lines().filter(|line| is_held_connection(line, &port)).count()
    }

    /// Returns the processor time of all its threads since its start.
    pub fn cpu_time(&self) -> Duration {
        let threads = fs::read_dir(self.proc_path("task")).expect("it runs");
        let of_thread = |thread: fs::DirEntry| {
            let stat = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            let ns = stat.split(' ').next().and_then(|ns| ns.parse().ok());
            Duration::from_nanos(ns.unwrap_or(0))
        };
        threads.flatten().map(of_thread).sum()
    }

    /// Limits the number of its open descriptors from now on; open ones stay open.
    pub fn limit_fds(&self, max: u64) {
        let (pid, all) = (self.pid(), crate::privileges::threads(self.pid()));
        let number = |ids: &[u64]| u32::try_from(ids[0]).expect("a number of the kernel");
        let (user, group) = (number(&all[0].users), number(&all[0].groups));
        let limit = move || {
            // Its own user may set the limit; root needs a capability that it may lack.
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            set_thread_res_gid(group, group, group).expect("root, or it is ours");
            set_thread_res_uid(user, user, user).expect("root, or it is ours");
            let limit = Rlimit { current: Some(max), maximum: Some(max) };
            prlimit(Some(pid), Resource::Nofile, limit).expect("lowering a limit of ours");
        };
        thread::spawn(limit).join().expect("the limit is set");
    }

    /// Returns its process ID.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Asserts that it has not ended.
    #[track_caller]
    pub fn assert_running(&mut self) {
        if self.has_exited() {
            self.kill_group();
            let status = self.exit.map(|status| status.to_string()).unwrap_or_default();
            let (arguments, stderr) = (&self.arguments, self.stderr.whole());
            panic!("skep {arguments} ended ({status}), stderr:\n{stderr}");
        }
    }

    #[track_caller]
    fn wait_ready(&mut self, prefix: &str) {
        let what = format!("line `{prefix}...` from skep {}", self.arguments);
        poll_until(PATIENCE, &what, || {
            if let Some(address) = ready_address(&self.stdout.text(), prefix) {
                self.address = Some(address);
                return true;
            }
            self.assert_running();
            false
        });
    }

    /// Kills the rest of its process group: surviving children would keep its output open.
    fn kill_group(&self) {
        let _ = kill_process_group(self.pid(), Signal::KILL);
    }

    fn proc_path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.child.id()))
    }

    fn proc_file(&self, name: &str) -> String {
        fs::read_to_string(self.proc_path(name)).expect("it runs and is ours")
    }
}

impl Drop for Skep {
    fn drop(&mut self) {
        if !self.has_exited() && !self.parting.is_zero() {
            let _ = kill_process(self.pid(), Signal::TERM);
            let start = std::time::Instant::now();
            while !self.has_exited() && start.elapsed() < self.parting {
                thread::yield_now();
            }
        }
        self.kill_group();
        if self.exit.is_none() {
            let _ = self.child.wait();
        }
        if thread::panicking() {
            let _ = writeln!(
                std::io::stderr(),
                "--- stderr of skep {}\n{}---",
                self.arguments,
                self.stderr.text()
            );
        }
    }
}

/// The output of a process, read continuously so that the process never blocks.
#[derive(Debug)]
struct Output {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Output {
    fn of(mut pipe: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&bytes);
        let reader = thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(n @ 1..) = pipe.read(&mut piece) {
                let mut kept = lock(&kept);
                let room = OUTPUT_BYTES_MAX.saturating_sub(kept.len()).min(n);
                kept.extend_from_slice(&piece[..room]);
            }
        });
        Self { bytes, reader: Some(reader) }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&lock(&self.bytes)).into_owned()
    }

    /// Returns all of the output of a process that has ended.
    fn whole(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader doesn't panic");
        }
        self.text()
    }
}

fn lock(bytes: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_memory_file(what: &str) -> bool {
    what.starts_with("/memfd:")
}

/// Whether a line of /proc/net/tcp is a connection of the local `port` (":1F90") that a process has open.
/// Columns: `sl local remote state queues timer retransmits uid timeout inode`.
fn is_held_connection(line: &str, port: &str) -> bool {
    const LISTEN: &str = "0A";
    // Fast path: nearly all lines belong to others, thousands on a machine that has just run tests.
    if !line.contains(port) {
        return false;
    }
    let columns: Vec<_> = line.split_ascii_whitespace().collect();
    let [_, local, _, state, _, _, _, _, _, inode, ..] = columns[..] else { return false };
    local.ends_with(port) && state != LISTEN && inode != "0"
}

/// Returns the address at the end of the complete line that starts with `prefix`.
fn ready_address(stdout: &str, prefix: &str) -> Option<SocketAddr> {
    let whole = &stdout[..=stdout.rfind('\n')?];
    let line = whole.lines().find(|line| line.starts_with(prefix))?;
    let address = line.rsplit_once(" on http://").and_then(|(_, address)| address.parse().ok());
    Some(address.unwrap_or_else(|| panic!("no address in the ready line: {line:?}")))
}

#[track_caller]
fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("SKEP_BIN") {
        return path.into();
    }
    // target/debug/deps/TEST-HASH, or target/debug/PROGRAM -> target/debug/skep
    let own = std::env::current_exe().expect("a running program has a path");
    let mut candidates = own.ancestors().skip(1).take(2).map(|folder| folder.join("skep"));
    candidates.find(|path| path.is_file()).unwrap_or_else(|| {
        panic!("no skep beside {}: run `cargo build -p skep` first, or set SKEP_BIN", own.display())
    })
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_counts_only_when_whole() {
        let prefix = "skep: serving ";
        assert_eq!(ready_address("skep: serving /a on http://127.0.0.1:8", prefix), None);
        let text = "note\nskep: serving /a on http://127.0.0.1:80\n";
        assert_eq!(ready_address(text, prefix), Some("127.0.0.1:80".parse().unwrap()));
        let v6 = "skep: serving /a on http://[::1]:80\n";
        assert_eq!(ready_address(v6, prefix), Some("[::1]:80".parse().unwrap()));
    }

    #[test]
    fn held_connections_are_counted_by_port_state_and_owner() {
        let line = |local, state, inode| {
            format!("0: 0100007F:{local} 0100007F:C350 {state} 0:0 00:0 0 0 0 {inode} 1 0 20 4")
        };
        assert!(is_held_connection(&line("1F90", "01", "123"), ":1F90"));
        assert!(!is_held_connection(&line("1F91", "01", "123"), ":1F90"));
        assert!(!is_held_connection(&line("1F90", "0A", "123"), ":1F90"));
        assert!(!is_held_connection(&line("1F90", "05", "0"), ":1F90"));
        assert!(!is_held_connection("  sl  local_address rem_address   st", ":1F90"));
    }

    #[test]
    fn a_process_that_ends_is_heard_out() {
        let mut sh = Command::new("sh");
        let finished =
            Skep::start_command(sh.args(["-c", "echo out; echo err >&2; exit 3"])).finish();
        assert_eq!(finished.code, Some(3));
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("out\n", "err\n"));
    }

    #[test]
    fn dropping_kills_the_process_and_its_children() {
        let mut sh = Command::new("sh");
        let skep = Skep::start_command(sh.args(["-c", "sleep 1000 & echo $!; wait"]));
        poll_until(PATIENCE, "number of the child", || skep.stdout_text().ends_with('\n'));
        let child = skep.stdout_text().trim().to_owned();
        let state = || fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        // The child is still a shell until it has executed the program.
        poll_until(PATIENCE, "the child sleeps", || state().contains("sleep"));
        drop(skep);
        poll_until(PATIENCE, "child is gone", || state().is_empty() || state().contains(") Z "));
    }
}
