//! The access log: workers hand over records in a compact form; one thread formats and writes them.
//!
//! Invariants: a worker never waits for the log, and never allocates for it once warm; buffers are bounded in
//! size and number; a line that can't be written is counted as dropped, so `written + dropped` equals the
//! number of pushed records. A client can't forge a line: everything that isn't printable is escaped.

mod encode;
mod format;
mod writer;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use serde::{Deserialize, Serialize};

use crate::counters::{CoreCounters, Counter};
use crate::limits::{LOG_BATCH_BYTES, LOG_BUFFERS_PER_WORKER_MAX, LOG_QUEUE_BUFFERS_MAX};
use encode::{RECORD_BYTES_MAX, encode};
use writer::{Batch, Control, Output, WriterMessage, WriterThread};

/// The destination of the lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// No log; pushing a record costs one branch.
    Off,
    /// Standard output.
    Stdout,
    /// This file, appended to.
    Path(PathBuf),
}

/// The format of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The combined log format of Apache and nginx, without additions, so that GoAccess and similar tools
    /// parse it without configuration.
    Combined,
    /// One JSON object per line, with node, cache result and times.
    Json,
}

/// What the cache did for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheResult {
    /// The cache was not consulted.
    #[default]
    None,
    /// Answered from memory.
    Hit,
    /// A miss that is not stored.
    Miss,
    /// A miss that is stored.
    Fill,
    /// A hit, revalidated at its source.
    Revalidated,
    /// Too large to store; streamed without being cached.
    Stream,
    /// A miss here, but a hit in another node's memory.
    Peer,
}

/// One finished request. Empty fields were not sent. Long ones are truncated at the bounds in `limits.rs`.
#[derive(Clone, Copy, Debug)]
pub struct LogRecord<'a> {
    /// End of the request, milliseconds since 1970-01-01 UTC.
    pub unix_ms: u64,
    pub client: IpAddr,
    /// Method as sent.
    pub method: &'a [u8],
    /// Request target as sent.
    pub target: &'a [u8],
    /// Whether the version is HTTP/1.0 instead of HTTP/1.1.
    pub version10: bool,
    /// Host field as sent.
    pub host: &'a [u8],
    /// Status of the reply.
    pub status: u16,
    /// Bytes of the reply's body that were written.
    pub bytes_sent: u64,
    pub referer: &'a [u8],
    pub user_agent: &'a [u8],
    /// The node that answered; `None`: this process.
    pub node: Option<&'a str>,
    /// The node that accepted the connection, if it has moved since; `None`: this process.
    pub accepted_by: Option<&'a str>,
    pub cache: CacheResult,
    /// From the first byte of the request to the last byte of the reply, in microseconds.
    pub total_us: u64,
    /// Time spent waiting for a node, in microseconds.
    pub queue_us: u64,
    /// Time spent connecting to the node, in microseconds.
    pub connect_us: u64,
    /// From sending the request to the node until its first byte was received, in microseconds.
    pub first_byte_us: u64,
}

/// Why the log could not be started.
#[derive(Debug, thiserror::Error)]
pub enum AccessLogError {
    /// The file could not be opened for appending.
    #[error("cannot open access log {}: {cause}", path.display())]
    Open {
        path: PathBuf,
        /// The kernel's error.
        #[source]
        cause: std::io::Error,
    },
    /// Standard output could not be duplicated.
    #[error("cannot write the access log to standard output: {0}")]
    Stdout(#[source] std::io::Error),
    /// The writer thread could not be started.
    #[error("cannot start the access log's thread: {0}")]
    Thread(#[source] std::io::Error),
}

/// The running log; owns the writer's thread. Dropping it has the same effect as [`AccessLog::shutdown`].
#[derive(Debug)]
pub struct AccessLog {
    handle: LogHandle,
    thread: Option<WriterThread>,
}

/// The shared state of workers and reload; cheap to clone.
#[derive(Clone, Debug)]
pub struct LogHandle {
    link: Option<WriterHandle>,
}

#[derive(Clone, Debug)]
struct WriterHandle {
    queue: SyncSender<WriterMessage>,
    control: Arc<Control>,
}

impl AccessLog {
    /// Opens `target` and starts the writer, which owns `counters` from now on.
    ///
    /// # Errors
    /// [`AccessLogError`] if the target can't be opened or the thread can't be started.
    pub fn start(
        target: LogTarget,
        format: Format,
        counters: Arc<CoreCounters>,
    ) -> Result<Self, AccessLogError> {
        let Some(output) = Output::open(target)? else {
            return Ok(Self { handle: LogHandle { link: None }, thread: None });
        };
        let (queue, messages) = sync_channel(LOG_QUEUE_BUFFERS_MAX);
        let control = Arc::new(Control::default());
        let thread = WriterThread::spawn(output, format, counters, messages, Arc::clone(&control))
            .map_err(AccessLogError::Thread)?;
        let handle = LogHandle { link: Some(WriterHandle { queue, control }) };
        Ok(Self { handle, thread: Some(thread) })
    }

    /// A handle for workers and for the reload.
    pub fn handle(&self) -> LogHandle {
        self.handle.clone()
    }

    /// Writes all records that workers have handed over, then ends the writer thread. Waits at most
    /// `LOG_SHUTDOWN_WAIT`. Workers should have ended before: records pushed later are dropped and counted.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if let Some(link) = &self.handle.link {
            link.control.stop();
            link.wake();
        }
        thread.join();
    }
}

impl LogHandle {
    /// A log for one worker thread, which counts its dropped lines in `counters`.
    pub fn worker(&self, counters: Arc<CoreCounters>) -> WorkerLog {
        let (give_back, returned) = sync_channel(LOG_BUFFERS_PER_WORKER_MAX);
        WorkerLog {
            link: self.link.clone(),
            counters,
            current: Vec::new(),
            lines: 0,
            made: 0,
            give_back,
            returned,
        }
    }

    /// Reopens the file by its path, for log rotation (SIGHUP). Returns at once. If the file can't
    /// be opened, the old one stays in use.
    pub fn reopen(&self) {
        if let Some(link) = &self.link {
            link.control.reopen();
            link.wake();
        }
    }
}

impl WriterHandle {
    /// Makes the writer check its flags. If the queue is full, it does so anyway before the next batch.
    fn wake(&self) {
        let _ = self.queue.try_send(WriterMessage::Wake);
    }
}

/// One worker's side of the log.
#[derive(Debug)]
pub struct WorkerLog {
    link: Option<WriterHandle>,
    counters: Arc<CoreCounters>,
    /// Encoded records that were not handed over yet.
    current: Vec<u8>,
    /// Number of records in `current`.
    lines: u64,
    /// Number of buffers allocated so far without `current`, handed over or not.
    made: usize,
    give_back: SyncSender<Vec<u8>>,
    returned: Receiver<Vec<u8>>,
}

impl WorkerLog {
    /// Whether the log is enabled.
    pub fn is_on(&self) -> bool {
        self.link.is_some()
    }

    /// Keeps `record` for the log, or counts it as dropped if the writer is too far behind. Never blocks.
    pub fn push(&mut self, record: &LogRecord<'_>) {
        if self.link.is_none() {
            return;
        }
        if self.current.len() >= LOG_BATCH_BYTES && !self.hand_over() {
            self.counters.inc(Counter::LogDropped);
            return;
        }
        // Allocates once per buffer: `encode` never exceeds this.
        self.current.reserve(LOG_BATCH_BYTES + RECORD_BYTES_MAX - self.current.len());
        encode(record, &mut self.current);
        self.lines += 1;
        if self.current.len() >= LOG_BATCH_BYTES {
            self.hand_over();
        }
    }

    /// Hands over the buffered records. The worker calls it every 200 ms or so, the maximum delay
    /// of a line.
    pub fn tick(&mut self) {
        self.hand_over();
    }

    /// Sends `current` to the writer; returns false if that isn't possible now.
    fn hand_over(&mut self) -> bool {
        if self.current.is_empty() {
            return true;
        }
        let Some(fresh) = self.fresh_buffer() else { return false };
        self.send(fresh)
    }

    /// Sends `current` and continues with `fresh`.
    fn send(&mut self, fresh: Vec<u8>) -> bool {
        let Some(link) = &self.link else { return false };
        let records = std::mem::replace(&mut self.current, fresh);
        let batch = Batch { records, lines: self.lines, home: self.give_back.clone() };
        match link.queue.try_send(WriterMessage::Batch(batch)) {
            Ok(()) => {
                self.lines = 0;
                true
            }
            Err(TrySendError::Full(message)) => {
                let fresh = std::mem::take(&mut self.current);
                if let WriterMessage::Batch(batch) = message {
                    self.current = batch.records;
                }
                self.keep(fresh);
                false
            }
            // The writer has ended, so the process is about to end, too.
            Err(TrySendError::Disconnected(_)) => {
                self.counters.add(Counter::LogDropped, self.lines);
                self.lines = 0;
                true
            }
        }
    }

    /// Returns an empty buffer: a returned one, or a new one while few are allocated.
    fn fresh_buffer(&mut self) -> Option<Vec<u8>> {
        if let Ok(buffer) = self.returned.try_recv() {
            return Some(buffer);
        }
        let may_make = self.made < LOG_BUFFERS_PER_WORKER_MAX;
        may_make.then(|| {
            self.made += 1;
            Vec::new()
        })
    }

    /// Returns an unused buffer to the channel, whose capacity is the number of buffers.
    fn keep(&self, buffer: Vec<u8>) {
        let _ = self.give_back.try_send(buffer);
    }
}

impl Drop for WorkerLog {
    fn drop(&mut self) {
        if self.lines > 0 && !self.send(Vec::new()) {
            self.counters.add(Counter::LogDropped, self.lines);
        }
    }
}

#[cfg(test)]
mod tests;
