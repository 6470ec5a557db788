//! The writer thread: receives batches, formats and writes them, and returns the buffers. Only this thread
//! waits for the disk.
//!
//! Invariants: each record of a batch is counted as one `LogLines` or one `LogDropped`; a line that was
//! written only in part is terminated before the next one starts.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use super::encode::decode;
use super::format::Formatter;
use super::{AccessLogError, Format, LogTarget};
use crate::counters::{CoreCounters, Counter};
use crate::limits::{LOG_SHUTDOWN_WAIT, LOG_WARNING_INTERVAL};

/// A message of the queue.
#[derive(Debug)]
pub(super) enum WriterMessage {
    Batch(Batch),
    /// Check the flags in [`Control`].
    Wake,
}

/// One worker's records.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) records: Vec<u8>,
    pub(super) lines: u64,
    /// The channel to which the buffer is returned; never full.
    pub(super) home: SyncSender<Vec<u8>>,
}

/// Commands to the writer. They are flags rather than messages: a full queue can't delay or lose them, and
/// setting one never blocks.
#[derive(Debug, Default)]
pub(super) struct Control {
    reopen: AtomicBool,
    stop: AtomicBool,
}

impl Control {
    pub(super) fn reopen(&self) {
        self.reopen.store(true, Ordering::Release);
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }
}

/// The target of the lines.
#[derive(Debug)]
pub(super) struct Output {
    file: File,
    /// `None`: standard output, which can't be reopened.
    path: Option<PathBuf>,
}

impl Output {
    /// Opens the target; `None` if the log is off.
    pub(super) fn open(target: LogTarget) -> Result<Option<Self>, AccessLogError> {
        match target {
            LogTarget::Off => Ok(None),
            LogTarget::Stdout => {
                let stdout = std::io::stdout().as_fd().try_clone_to_owned();
                let file = File::from(stdout.map_err(AccessLogError::Stdout)?);
                Ok(Some(Self { file, path: None }))
            }
            LogTarget::Path(path) => match append_to(&path) {
                Ok(file) => Ok(Some(Self { file, path: Some(path) })),
                Err(cause) => Err(AccessLogError::Open { path, cause }),
            },
        }
    }

    fn name(&self) -> String {
        self.path.as_ref().map_or_else(|| "standard output".into(), |p| p.display().to_string())
    }
}

fn append_to(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// The running thread.
#[derive(Debug)]
pub(super) struct WriterThread {
    thread: JoinHandle<()>,
    /// Disconnected when the thread ends.
    ended: Receiver<()>,
    name: String,
}

impl WriterThread {
    pub(super) fn spawn(
        output: Output,
        format: Format,
        counters: Arc<CoreCounters>,
        messages: Receiver<WriterMessage>,
        control: Arc<Control>,
    ) -> std::io::Result<Self> {
        let (end, ended) = sync_channel(0);
        let name = output.name();
        let mut writer = Writer::new(output, format, counters);
        let thread = std::thread::Builder::new().name("access-log".into()).spawn(move || {
            let _end = end;
            writer.run(&messages, &control);
        })?;
        Ok(Self { thread, ended, name })
    }

    /// Waits for the thread's end, with a timeout.
    pub(super) fn join(self) {
        if self.ended.recv_timeout(LOG_SHUTDOWN_WAIT) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!(log = self.name, "the access log is blocked; its last lines are lost");
            return;
        }
        // A panic has already been reported on stderr, and has no other effect at shutdown.
        let _ = self.thread.join();
    }
}

struct Writer {
    output: Output,
    formatter: Formatter,
    counters: Arc<CoreCounters>,
    /// Lines of the current batch.
    text: Vec<u8>,
    /// Whether the last write ended within a line.
    inside_line: bool,
    last_warning: Option<Instant>,
    lost_since_warning: u64,
}

impl Writer {
    fn new(output: Output, format: Format, counters: Arc<CoreCounters>) -> Self {
        Self {
            output,
            formatter: Formatter::new(format),
            counters,
            text: Vec::new(),
            inside_line: false,
            last_warning: None,
            lost_since_warning: 0,
        }
    }

    fn run(&mut self, messages: &Receiver<WriterMessage>, control: &Control) {
        while let Ok(message) = messages.recv() {
            self.handle(message);
            if control.reopen.swap(false, Ordering::Acquire) {
                self.reopen();
            }
            if control.stop.load(Ordering::Acquire) {
                messages.try_iter().for_each(|message| self.handle(message));
                return;
            }
        }
    }

    fn handle(&mut self, message: WriterMessage) {
        let WriterMessage::Batch(mut batch) = message else { return };
        self.write_batch(&batch);
        batch.records.clear();
        // If the worker has ended, the buffer is not needed.
        let _ = batch.home.try_send(batch.records);
    }

    fn write_batch(&mut self, batch: &Batch) {
        self.text.clear();
        if self.inside_line {
            self.text.push(b'\n');
        }
        let start = self.text.len();
        let mut records = batch.records.as_slice();
        while let Some(record) = decode(&mut records) {
            self.formatter.line(&record, &mut self.text);
        }
        let (sent, result) = write_all(&self.output.file, &self.text);
        if let Some(last) = sent.checked_sub(1) {
            self.inside_line = self.text[last] != b'\n';
        }
        let done = self.text.get(start..sent).unwrap_or_default();
        let written = done.iter().filter(|&&b| b == b'\n').count() as u64;
        self.counters.add(Counter::LogLines, written);
        if let Err(error) = result {
            self.lost(batch.lines - written, &error);
        }
    }

    fn lost(&mut self, lines: u64, error: &std::io::Error) {
        self.counters.add(Counter::LogDropped, lines);
        self.counters.inc(Counter::LogWriteErrors);
        self.lost_since_warning += lines;
        if self.last_warning.is_some_and(|last| last.elapsed() < LOG_WARNING_INTERVAL) {
            return;
        }
        let lines = std::mem::take(&mut self.lost_since_warning);
        tracing::warn!(log = self.output.name(), %error, lines, "cannot write the access log");
        self.last_warning = Some(Instant::now());
    }

    fn reopen(&mut self) {
        let Some(path) = &self.output.path else { return };
        match append_to(path) {
            Ok(file) => {
                self.output.file = file;
                self.inside_line = false;
            }
            Err(error) => {
                self.counters.inc(Counter::LogWriteErrors);
                let log = self.output.name();
                tracing::warn!(log, %error, "cannot reopen the access log; the old file stays");
            }
        }
    }
}

/// Writes as much as possible; returns the number of bytes written, and why it stopped. (The standard
/// `write_all` doesn't return the number.)
fn write_all(mut file: &File, text: &[u8]) -> (usize, std::io::Result<()>) {
    let mut sent = 0;
    while sent < text.len() {
        match file.write(&text[sent..]) {
            Ok(0) => return (sent, Err(ErrorKind::WriteZero.into())),
            Ok(n) => sent += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (sent, Err(error)),
        }
    }
    (sent, Ok(()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use std::io::Read;
    use std::net::{IpAddr, Ipv4Addr};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::super::encode::encode;
    use super::super::{CacheResult, LogRecord};
    use super::*;

    const TARGET: &[u8] = &[b'x'; 1000];

    fn batch(lines: u64) -> Batch {
        let record = LogRecord {
            unix_ms: 0,
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            method: b"GET",
            target: TARGET,
            version10: false,
            host: b"",
            status: 200,
            bytes_sent: 0,
            referer: b"",
            user_agent: b"",
            node: None,
            accepted_by: None,
            cache: CacheResult::None,
            total_us: 0,
            queue_us: 0,
            connect_us: 0,
            first_byte_us: 0,
        };
        let mut records = Vec::new();
        (0..lines).for_each(|_| encode(&record, &mut records));
        Batch { records, lines, home: sync_channel(1).0 }
    }

    /// A full socket simulates a disk that becomes full in the middle of a line.
    #[test]
    fn a_torn_line_is_ended_before_the_next_and_all_lines_are_counted() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let output = Output { file: File::from(OwnedFd::from(ours)), path: None };
        let counters = Arc::new(CoreCounters::default());
        let mut writer = Writer::new(output, Format::Combined, Arc::clone(&counters));
        let mut received = Vec::new();
        for _ in 0..5 {
            writer.write_batch(&batch(5_000));
            let _ = theirs.read_to_end(&mut received);
        }
        writer.write_batch(&batch(1));
        let _ = theirs.read_to_end(&mut received);

        let text = String::from_utf8(received).unwrap();
        assert!(text.ends_with("\"-\" \"-\"\n"));
        let whole = text.lines().filter(|line| line.ends_with("\"-\" \"-\"")).count() as u64;
        let torn = text.lines().count() as u64 - whole;
        assert!(text.lines().all(|line| line.starts_with("127.0.0.1 - - ")));
        assert!(torn > 0, "the socket took everything");
        assert_eq!(counters.get(Counter::LogLines), whole);
        assert_eq!(whole + counters.get(Counter::LogDropped), 25_001);
    }
}
