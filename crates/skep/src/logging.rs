//! Messages to the operator, on standard error.

use std::io::{self, IsTerminal, Stderr};
use std::sync::OnceLock;

use skep_config::Level;
use skep_telemetry::Registry;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::EitherWriter;

/// Messages that wait for whoever reads them; later ones are dropped, and counted.
const MESSAGES_MAX: usize = 10_000;

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
/// still wait, for a second at most.
pub(crate) fn queue() -> MessageQueue {
    let builder = NonBlockingBuilder::default().buffered_lines_limit(MESSAGES_MAX);
    let (writer, end) = builder.lossy(true).thread_name("skep-log").finish(io::stderr());
    let dropped = writer.error_counter();
    // A second start (tests) keeps the first.
    let _ = QUEUE.set(writer);
    MessageQueue { dropped, _end: end }
}

/// See [`queue`].
pub(crate) struct MessageQueue {
    dropped: ErrorCounter,
    _end: WorkerGuard,
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

/// Standard error, through the queue once there is one.
struct Writer;

impl<'a> MakeWriter<'a> for Writer {
    type Writer = EitherWriter<NonBlocking, Stderr>;

    fn make_writer(&'a self) -> Self::Writer {
        match QUEUE.get() {
            Some(queue) => EitherWriter::A(queue.clone()),
            None => EitherWriter::B(io::stderr()),
        }
    }
}
