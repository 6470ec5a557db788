//! Messages to the operator, on standard error.

use std::io::{self, IsTerminal, Write};
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

/// Messages that wait for whoever reads them; later ones are dropped, and counted.
const MESSAGES_MAX: usize = 10_000;

/// How long the end of this process waits for standard error, each time that it has something for it.
const END_WAIT_MAX: Duration = Duration::from_secs(2);

/// How long a message waits for standard error before there is a queue.
const UNQUEUED_WAIT_MAX: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

static QUEUE: OnceLock<NonBlocking> = OnceLock::new();

/// Starts to print messages of `level` and above. `SKEP_LOG`, in the syntax of
/// `tracing`'s filters, overrides it.
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

/// From now on a thread of its own writes messages, and no other waits for standard error: a pipe
/// that nobody reads stops no heartbeat and no reply. Dropping the result writes those that
/// still wait, for [`END_WAIT_MAX`] at most.
pub(crate) fn queue() -> MessageQueue {
    let builder = NonBlockingBuilder::default().buffered_lines_limit(MESSAGES_MAX);
    let (writer, end) = builder.lossy(true).thread_name("skep-log").finish(io::stderr());
    let dropped = writer.error_counter();
    // A second start (tests) keeps the first.
    let _ = QUEUE.set(writer);
    MessageQueue { dropped, end: Some(end) }
}

/// Writes why this process fails. A pipe that nobody reads does not keep it from ending.
pub(crate) fn last_words(words: String) {
    // Not `eprintln`, which panics where standard error is closed.
    let write = |words: &str| drop(writeln!(io::stderr(), "{words}"));
    let same = words.clone();
    if !end_within(move || write(&words)) {
        write(&same);
    }
}

/// Does `job` on a thread of its own, and waits for [`END_WAIT_MAX`] at most: the process is to end.
/// False if no thread can be started.
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
    /// Some until the drop.
    end: Option<WorkerGuard>,
}

impl MessageQueue {
    pub(crate) fn register(&self, registry: &Registry) {
        let dropped = self.dropped.clone();
        let help =
            "Messages that were not logged, as nobody took earlier ones from standard error.";
        let read = Box::new(move || dropped.dropped_lines() as f64);
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

/// Standard error, through the queue once there is one.
struct Writer;

/// Standard error while no other thread may exist: what it does not take is dropped.
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
        // A pipe that takes anything takes 4 KiB.
        match poll(&mut waited, Some(&UNQUEUED_WAIT_MAX)) {
            Ok(0) => Ok(line.len()),
            _ => stderr.lock().write(line),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
