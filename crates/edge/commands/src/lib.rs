//! Runs programs of the operator: without a shell, with a clean environment, for a limited time, with bounded output.
//!
//! **Invariant:** when the end of a run is reported, its process group has ended or was sent SIGKILL. If the group cannot be
//! killed, by lack of permission or because the kernel does not end it, the report says so, and [`run`] returns only once it
//! has ended.

#![forbid(unsafe_code)]

mod limits;

use std::io::{self, PipeReader, Read, pipe};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

pub use limits::OUTPUT_BYTES_MAX;
use limits::{KILLED_MS_MAX, LOOK_MS, ORPHANS_MS_MAX, PIPE_BYTES, UNKILLABLE_LOOK_MS};

/// Where programs that a program starts by name are looked for.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A program to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorCommand {
    /// The path of the program, and its arguments; not empty.
    pub arguments: Vec<String>,
    /// Beside `PATH` and `LANG`, which it may replace.
    pub environment: Vec<(String, String)>,
    /// The user and group as which it runs, without supplementary groups; `None`: those of this process.
    pub user: Option<(u32, u32)>,
    /// Time that it may take.
    pub timeout: Duration,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandReport {
    pub end: RunEnd,
    /// What it wrote to its standard output and error, up to [`OUTPUT_BYTES_MAX`] bytes.
    pub output: String,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// It exited with 0.
    Done,
    /// It exited with this code.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
    /// It was killed after its timeout.
    TimedOut,
    /// The same, but part of its group cannot be killed: permission is missing, or the kernel does not end it.
    Unkillable,
    /// It could not be started.
    NotStarted(String),
}

/// Runs `command` to its end. `started` is called with its process group, and `ended` with its result: when it ends, or when
/// it could not be killed after its timeout. Returns when none of its processes is left, however long that takes.
pub fn run(
    command: &OperatorCommand,
    started: impl FnOnce(Pid),
    ended: impl FnOnce(CommandReport),
) {
    let (mut child, mut output) = match start(command) {
        Ok(begun) => begun,
        Err(error) => {
            let end = RunEnd::NotStarted(error.to_string());
            return ended(CommandReport { end, output: String::new() });
        }
    };
    let group = Pid::from_child(&child);
    started(group);
    let end = wait(&mut child, command.timeout, || output.read());
    // What has left the group may hold it open: what is there by now counts.
    output.read();
    let runs_on = end == RunEnd::Unkillable;
    // Its end closes the pipe, so that what runs on is not held up by it.
    let text = output.into_text();
    ended(CommandReport { end, output: text });
    if runs_on {
        wait_for_unkillable(&mut child);
    }
}

/// Ends all processes of a group that [`run`] has started, as far as this process may. A group that has ended is no error.
pub fn kill_group(group: Pid) {
    let _ = kill_process_group(group, Signal::KILL);
}

fn start(command: &OperatorCommand) -> io::Result<(Child, Output)> {
    let (program, arguments) =
        command.arguments.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let (reader, writer) = pipe()?;
    rustix::io::ioctl_fionbio(&reader, true)?;
    let mut process = Command::new(program);
    process.args(arguments).env_clear().env("PATH", SEARCH_PATH).env("LANG", "C");
    process.envs(command.environment.iter().map(|(name, value)| (name, value)));
    process.current_dir("/").process_group(0);
    process.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    if let Some((uid, gid)) = command.user {
        process.uid(uid).gid(gid);
    }
    // With `process` go the writing ends of this process.
    Ok((process.spawn()?, Output { reader, kept: Vec::new() }))
}

/// What a program writes, of which the first bytes are kept.
struct Output {
    /// Does not block.
    reader: PipeReader,
    kept: Vec<u8>,
}

impl Output {
    /// Reads what is there, at most as much as a pipe holds: a program that writes on is not held up, and holds nobody up.
    fn read(&mut self) {
        let mut buffer = [0; 4096];
        for _ in 0..PIPE_BYTES / buffer.len() {
            let Ok(count @ 1..) = self.reader.read(&mut buffer) else { return };
            let room = OUTPUT_BYTES_MAX - self.kept.len();
            self.kept.extend_from_slice(&buffer[..count.min(room)]);
        }
    }

    fn into_text(self) -> String {
        String::from_utf8_lossy(&self.kept).into_owned()
    }
}

/// Waits for the end of `child`, or kills it after `timeout`; calls `look` repeatedly.
fn wait(child: &mut Child, timeout: Duration, mut look: impl FnMut()) -> RunEnd {
    let group = Pid::from_child(child);
    let (began, mut killed) = (Instant::now(), None::<Instant>);
    loop {
        look();
        match child.try_wait() {
            Ok(Some(_)) if killed.is_some() => return end_of_group(group),
            Ok(Some(status)) => {
                // Also kills its background processes.
                kill_group(group);
                return RunEnd::of(status);
            }
            Ok(None) => {}
            Err(error) => return RunEnd::NotStarted(error.to_string()),
        }
        match killed {
            Some(at) if at.elapsed() >= Duration::from_millis(KILLED_MS_MAX) => {
                return RunEnd::Unkillable;
            }
            None if began.elapsed() >= timeout => {
                if kill_process_group(group, Signal::KILL) == Err(Errno::PERM) {
                    return RunEnd::Unkillable;
                }
                killed = Some(Instant::now());
            }
            _ => {}
        }
        thread::sleep(Duration::from_millis(LOOK_MS));
    }
}

/// Waits without a bound for a program that cannot be killed, and for what it has started.
fn wait_for_unkillable(child: &mut Child) {
    let group = Pid::from_child(child);
    // It may have been waited for: that is no error.
    let _ = child.wait();
    kill_group(group);
    while test_kill_process_group(group).is_err_and(|error| error == Errno::PERM) {
        thread::sleep(Duration::from_millis(UNKILLABLE_LOOK_MS));
    }
}

/// Kills what is left of a group whose time is over and whose leader has been waited for. The kernel tells that it may not be done
/// only where that is so of each process that is left (kill(2)): those that may be killed have to be gone.
fn end_of_group(group: Pid) -> RunEnd {
    let began = Instant::now();
    loop {
        match kill_process_group(group, Signal::KILL) {
            Err(Errno::PERM) => return RunEnd::Unkillable,
            Ok(()) if began.elapsed() < Duration::from_millis(ORPHANS_MS_MAX) => {}
            // There is nothing left, or nobody waits for what has ended.
            _ => return RunEnd::TimedOut,
        }
        thread::sleep(Duration::from_millis(LOOK_MS));
    }
}

impl RunEnd {
    fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(0), _) => Self::Done,
            (Some(code), _) => Self::Exited(code),
            (None, signal) => Self::Signalled(signal.unwrap_or_default()),
        }
    }
}

impl fmt::Display for RunEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("exited with 0"),
            Self::Exited(code) => write!(f, "exited with {code}"),
            Self::Signalled(signal) => write!(f, "was ended by signal {signal}"),
            Self::TimedOut => f.write_str("was killed after its timeout"),
            Self::Unkillable => {
                f.write_str("could not be killed after its timeout, and keeps running")
            }
            Self::NotStarted(why) => write!(f, "could not be started: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::io::Write;
    use std::sync::mpsc;

    use rustix::process::test_kill_process;
    use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

    use super::*;

    /// A user that owns nothing.
    const STRANGER: u32 = 65_534;

    fn shell(script: &str, user: Option<u32>, timeout: Duration) -> OperatorCommand {
        OperatorCommand {
            arguments: ["/bin/sh", "-c", script].map(String::from).to_vec(),
            environment: vec![("WORD".into(), "hello".into())],
            user: user.map(|uid| (uid, uid)),
            timeout,
        }
    }

    fn report_of(command: &OperatorCommand) -> CommandReport {
        let mut report = None;
        run(command, |_| (), |it| report = Some(it));
        report.unwrap()
    }

    fn ran(script: &str, timeout_ms: u64) -> CommandReport {
        report_of(&shell(script, None, Duration::from_millis(timeout_ms)))
    }

    /// Runs `job` in a thread that may kill processes of its own user alone, while this one goes on with `meanwhile`.
    fn without_kill(job: impl FnOnce() + Send, meanwhile: impl FnOnce()) {
        let held = capabilities(None).unwrap();
        if !rustix::process::geteuid().is_root() || !held.effective.contains(CapabilitySet::KILL) {
            // Not by `eprintln!`, which is kept to itself when a test passes.
            let _ = writeln!(io::stderr(), "SKIPPED: needs root, to run programs as others");
            return;
        }
        let effective = held.effective.difference(CapabilitySet::KILL);
        thread::scope(|scope| {
            scope.spawn(move || {
                set_capabilities(None, CapabilitySets { effective, ..held }).unwrap();
                job();
            });
            meanwhile();
        });
    }

    #[test]
    fn a_run_has_an_end_and_output() {
        let report = ran("echo $WORD; echo error >&2", 10_000);
        assert_eq!((report.end, &*report.output), (RunEnd::Done, "hello\nerror\n"));
        assert_eq!(ran("exit 3", 10_000).end, RunEnd::Exited(3));
        assert_eq!(ran("kill -9 $$", 10_000).end, RunEnd::Signalled(9));
        let command = OperatorCommand {
            arguments: vec!["/nosuch/program".into()],
            environment: Vec::new(),
            user: None,
            timeout: Duration::from_secs(10),
        };
        assert!(matches!(report_of(&command).end, RunEnd::NotStarted(_)));
    }

    #[test]
    fn its_environment_is_clean() {
        let report = ran("env | sort | cut -d= -f1 | tr '\\n' ' '", 10_000);
        assert_eq!(report.output, "LANG PATH PWD WORD ");
    }

    #[test]
    fn one_that_hangs_is_killed_with_what_it_has_started() {
        let began = Instant::now();
        let report = ran("sleep 100 & echo $!; sleep 100", 100);
        assert_eq!(report.end, RunEnd::TimedOut);
        let left = format!("/proc/{}/stat", report.output.trim());
        // A killed one ends when it has the processor, and may be there until somebody has waited for it.
        loop {
            let state = std::fs::read_to_string(&left).unwrap_or_default();
            if state.is_empty() || state.contains(") Z ") {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(50), "{state}");
            thread::yield_now();
        }
    }

    #[test]
    fn what_a_killed_one_has_started_as_another_user_is_unkillable() {
        let (ended, told) = mpsc::sync_channel(1);
        let script =
            "setpriv --reuid 65534 --clear-groups sh -c 'echo on; exec sleep 100' & exec sleep 100";
        let job = || {
            let (mut child, mut output) = start(&shell(script, None, Duration::ZERO)).unwrap();
            while output.kept.is_empty() {
                output.read();
                thread::yield_now();
            }
            // The first signal reaches one of them.
            let end = wait(&mut child, Duration::ZERO, || ());
            ended.send((Pid::from_child(&child), end)).unwrap();
        };
        without_kill(job, || {
            let (group, end) = told.recv().unwrap();
            kill_group(group);
            assert_eq!(end, RunEnd::Unkillable);
        });
    }

    #[test]
    fn one_that_cannot_be_killed_is_reported_at_once_and_waited_for() {
        let ((started, group), (ended, report)) = (mpsc::sync_channel(1), mpsc::sync_channel(1));
        let command = shell("sleep 100", Some(STRANGER), Duration::ZERO);
        let job = || {
            let mut own = None;
            let note = |it| {
                own = Some(it);
                started.send(it).unwrap();
            };
            run(&command, note, |it| ended.send(it).unwrap());
            // One that nobody has waited for is there still.
            assert_eq!(test_kill_process(own.unwrap()), Err(Errno::SRCH));
        };
        without_kill(job, || {
            let group = group.recv().unwrap();
            let report = report.recv().unwrap();
            let state = std::fs::read_to_string(format!("/proc/{group}/stat"));
            kill_group(group);
            assert_eq!(report.end, RunEnd::Unkillable);
            assert!(
                state.is_ok_and(|it| !it.contains(") Z ")),
                "it was reported when it had ended"
            );
        });
    }

    #[test]
    fn what_leaves_its_group_and_holds_its_output_holds_up_nothing() {
        let began = Instant::now();
        let report = ran("setsid sleep 5 & echo on", 10_000);
        assert_eq!((report.end, &*report.output), (RunEnd::Done, "on\n"));
        assert!(began.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn output_beyond_the_bound_is_read_and_dropped() {
        let report = ran("head -c 1000000 /dev/zero | tr '\\0' x", 10_000);
        assert_eq!((report.end, report.output.len()), (RunEnd::Done, OUTPUT_BYTES_MAX));
    }
}
