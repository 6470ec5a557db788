//! Messages to the operator, on standard error.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal, Write};
use std::panic::{self, PanicHookInfo};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use skep_config::Level;
use skep_telemetry::Registry;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::EitherWriter;

/// Maximum number of messages that wait for standard error; later ones are dropped, and counted.
const MESSAGES_MAX: usize = 10_000;

/// Maximum wait for standard error at the end of this process, each time that it has something to write.
const END_WAIT_MAX: Duration = Duration::from_secs(2);

/// Maximum wait of a message for standard error before there is a queue.
const UNQUEUED_WAIT_MAX: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

static QUEUE: OnceLock<NonBlocking> = OnceLock::new();

/// Starts logging messages of `level` and above. `SKEP_LOG`, in the syntax of `tracing`'s filters, overrides
/// the level.
pub(crate) fn start(level: Level) {
    let filter =
        EnvFilter::try_from_env("SKEP_LOG").unwrap_or_else(|_| EnvFilter::new(level.word()));
    // A second start (tests) keeps the first.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Writer)
        .with_target(false)
        .with_ansi(io::stderr().is_terminal())
        .try_init();
}

/// From now on a separate thread writes messages, and no other thread waits for standard error: a pipe that
/// nobody reads delays no heartbeat and no reply. Dropping the result writes the queued messages, within
/// [`END_WAIT_MAX`].
pub(crate) fn queue() -> MessageQueue {
    let builder = NonBlockingBuilder::default().buffered_lines_limit(MESSAGES_MAX);
    let (writer, end) = builder.lossy(true).thread_name("skep-log").finish(io::stderr());
    let dropped = writer.error_counter();
    // A second start (tests) keeps the first.
    let _ = QUEUE.set(writer);
    panic::set_hook(Box::new(say_panic));
    MessageQueue { dropped, end: Some(end) }
}

/// Replaces the hook of the standard library, which blocks while nobody reads standard error: then a panicked
/// thread would never end, and the watchdog would see it only as stalled.
fn say_panic(panic: &PanicHookInfo<'_>) {
    let thread = thread::current();
    let name = thread.name().unwrap_or("without a name");
    // Empty unless requested by `RUST_BACKTRACE`.
    let trace = match Backtrace::capture() {
        trace if trace.status() == BacktraceStatus::Captured => format!("\n{trace}"),
        _ => String::new(),
    };
    last_words(format!("skep: thread {name}: {panic}{trace}"));
}

/// Writes why this process fails. A pipe that nobody reads does not keep the process alive.
pub(crate) fn last_words(words: String) {
    // In one call with its line feed, since other processes write to the same terminal or journal. Not with
    // `eprintln`, which panics if standard error is closed.
    let words = words + "\n";
    let write = |words: &str| drop(io::stderr().write_all(words.as_bytes()));
    let same = words.clone();
    if !end_within(move || write(&words)) {
        write(&same);
    }
}

/// Runs `job` on a separate thread, and waits at most [`END_WAIT_MAX`], since the process is to end. Returns
/// false if no thread can be started.
fn end_within(job: impl FnOnce() + Send + 'static) -> bool {
    let (done, is_done) = mpsc::sync_channel(1);
    let run = move || {
        job();
        let _ = done.send(());
    };
    let thread = thread::Builder::new().name("skep-end".into()).spawn(run);
    let _ = is_done.recv_timeout(END_WAIT_MAX);
    thread.is_ok()
}

/// See [`queue`].
pub(crate) struct MessageQueue {
    dropped: ErrorCounter,
    /// `None` only during drop.
    end: Option<WorkerGuard>,
}

impl MessageQueue {
    /// Returns a function for the number of messages that were not logged.
    pub(crate) fn counts_dropped(&self) -> impl Fn() -> u64 + Send + Sync + use<> {
        let dropped = self.dropped.clone();
        move || dropped.dropped_lines() as u64
    }

    pub(crate) fn register(&self, registry: &Registry) {
        let dropped = self.counts_dropped();
        let help = "Messages that were not logged because standard error was not read fast enough.";
        let read = Box::new(move || dropped() as f64);
        registry.register("skep_messages_dropped_total", &[], help, read);
    }
}

impl Drop for MessageQueue {
    fn drop(&mut self) {
        // It may write to standard output, which may be another pipe that nobody reads.
        let end = self.end.take();
        end_within(move || drop(end));
    }
}

/// Standard error, through the queue once it exists.
struct Writer;

/// Standard error while no other thread may exist: what it does not accept is dropped.
struct Unqueued;

impl<'a> MakeWriter<'a> for Writer {
    type Writer = EitherWriter<NonBlocking, Unqueued>;

    fn make_writer(&'a self) -> Self::Writer {
        match QUEUE.get() {
            Some(queue) => EitherWriter::A(queue.clone()),
            None => EitherWriter::B(Unqueued),
        }
    }
}

impl Write for Unqueued {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let stderr = io::stderr();
        let mut waited = [PollFd::new(&stderr, PollFlags::OUT)];
        // A pipe that accepts anything accepts 4 KiB.
        match poll(&mut waited, Some(&UNQUEUED_WAIT_MAX)) {
            Ok(0) => Ok(line.len()),
            _ => stderr.lock().write(line),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::io::{PipeReader, PipeWriter};
    use std::process::{Command, Stdio};

    use super::*;

    /// Set in the process that panics.
    const PANICS: &str = "SKEP_TEST_PANICS";

    /// A pipe that is full and is not read.
    fn full_pipe() -> (PipeReader, PipeWriter) {
        let (reader, mut writer) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        while writer.write(&[b'.'; 4096]).is_ok() {}
        while writer.write(b".").is_ok() {}
        rustix::io::ioctl_fionbio(&writer, false).unwrap();
        (reader, writer)
    }

    #[test]
    fn a_panic_waits_for_nobody_who_reads_standard_error() {
        let name = "logging::tests::a_panic_waits_for_nobody_who_reads_standard_error";
        if std::env::var_os(PANICS).is_some() {
            let queue = queue();
            let thread = thread::spawn(|| panic!("a test's"));
            assert!(thread.join().is_err());
            drop(queue);
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM)
                .unwrap();
        }
        let (_reader, writer) = full_pipe();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(PANICS, "1")
            .stdout(Stdio::null())
            .stderr(writer)
            .spawn()
            .unwrap();
        let (done, is_done) = mpsc::sync_channel(1);
        let pid = rustix::process::Pid::from_child(&child);
        thread::spawn(move || done.send(child.wait().unwrap()));
        let ended = is_done.recv_timeout(Duration::from_secs(30));
        if ended.is_err() {
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(ended.map(|status| status.signal()), Ok(Some(15)), "it went on after the panic");
    }
}
