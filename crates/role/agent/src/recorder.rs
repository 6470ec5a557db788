//! The recorder of a process: writes samples of the process and its machine to an SQLite file, one per
//! interval, on its own thread.
//!
//! ```text
//!   /proc, figures of the server --> sampler.rs: differences, means --> sample_writer.rs: samples that wait, the file, its faults
//! ```
//!
//! Invariants: no serving thread waits for this thread or its disk; a fault of the file is logged and
//! counted; the number of waiting samples is bounded; intervals follow the monotonic clock.

mod sample_writer;
mod sampler;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use skep_config::RecorderConfig;
use skep_database::RecordingInfo;
use skep_machine::{MachineCounters, PROC};
use skep_serve::{boottime_ms, unix_ms};

use crate::limits::{RECORDER_END_WAIT_MS, RECORDER_LOOK_MS_MIN, RECORDER_LOOKS};
pub(crate) use sample_writer::RECORDER_FAULTS;
pub use sample_writer::RecorderCounts;
use sample_writer::SampleWriter;
use sampler::Sampler;

/// The counters and gauges of a process. Read on the recorder's thread.
pub trait ServerFigures: Send {
    fn counters(&mut self) -> ServerCounters;
    fn gauges(&mut self) -> ServerGauges;
    /// `None`: the process has no cache.
    fn cache(&mut self) -> Option<CacheBytes>;
}

/// Sums since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounters {
    pub connections_accepted: u64,
    pub requests: u64,
    pub responses_5xx: u64,
    pub redirects: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    pub peer_sent_bytes: u64,
    pub cache_lookups: u64,
    pub cache_hits: u64,
    pub peer_hits: u64,
    pub peer_filled_bytes: u64,
    pub origin_filled_bytes: u64,
}

/// Gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerGauges {
    pub connections: u64,
    pub requests_in_flight: u64,
    pub bytes_outstanding: u64,
}

/// Memory of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheBytes {
    /// Bytes stored.
    pub stored_bytes: u64,
    /// Bytes in memory files, which the kernel does not count as memory of the process.
    pub file_bytes: u64,
}

/// What a recorder needs to start.
pub struct RecorderParts {
    /// Name of the process.
    pub name: String,
    /// Host and port at which clients reach its node.
    pub authority: Option<String>,
    pub is_node: bool,
    pub figures: Box<dyn ServerFigures>,
}

/// The thread ends when this is dropped.
#[derive(Debug)]
pub struct Recorder {
    counts: Arc<RecorderCounts>,
    /// `Some` until the recorder ends.
    stop: Option<SyncSender<()>>,
    ended: Receiver<()>,
}

impl Recorder {
    /// Starts to record, if `config` names a file.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(config: &RecorderConfig, parts: RecorderParts) -> io::Result<Option<Self>> {
        let Some(path) = config.file.clone() else { return Ok(None) };
        let info = RecordingInfo {
            name: parts.name,
            authority: parts.authority,
            is_node: parts.is_node,
            begun_unix_ms: unix_ms(),
            interval_ms: config.interval_ms,
            samples_max: (config.keep_ms / config.interval_ms).max(1),
            size_bytes_max: config.size_bytes_max,
        };
        let (stop, stopped) = sync_channel(1);
        let (end, ended) = sync_channel(1);
        let counts = Arc::new(RecorderCounts::default());
        let shared = Arc::clone(&counts);
        let (interval_ms, figures) = (config.interval_ms, parts.figures);
        std::thread::Builder::new().name("skep-recorder".into()).spawn(move || {
            run(SampleWriter::new(path, info, shared), interval_ms, figures, &stopped);
            let _ = end.send(());
        })?;
        Ok(Some(Self { counts, stop: Some(stop), ended }))
    }

    /// The outcomes for samples.
    pub fn counts(&self) -> &Arc<RecorderCounts> {
        &self.counts
    }

    /// Records the elapsed part of the last interval, and waits for that for a bounded time.
    pub fn end(mut self) {
        drop(self.stop.take());
        let wait = Duration::from_millis(RECORDER_END_WAIT_MS);
        if let Err(RecvTimeoutError::Timeout) = self.ended.recv_timeout(wait) {
            tracing::warn!("the last sample of the recorder is not in its file: the disk is slow");
        }
    }
}

/// The thread; ends when the sender of `stopped` is dropped.
fn run(
    mut writer: SampleWriter,
    interval_ms: u64,
    mut figures: Box<dyn ServerFigures>,
    stopped: &Receiver<()>,
) {
    let proc = Path::new(PROC);
    let begin_ms = boottime_ms();
    let mut sampler = Sampler::begin(begin_ms, MachineCounters::read(proc), figures.counters());
    let mut due_ms = begin_ms + interval_ms;
    let look_ms = (interval_ms / RECORDER_LOOKS).max(RECORDER_LOOK_MS_MIN);
    writer.flush();
    loop {
        let now_ms = boottime_ms();
        let wait_ms = due_ms.saturating_sub(now_ms).min(look_ms).max(1);
        let is_last = match stopped.recv_timeout(Duration::from_millis(wait_ms)) {
            Err(RecvTimeoutError::Timeout) => false,
            Ok(()) | Err(RecvTimeoutError::Disconnected) => true,
        };
        sampler.look(figures.gauges());
        let now_ms = boottime_ms();
        if now_ms < due_ms && !is_last {
            continue;
        }
        let machine = MachineCounters::read(proc);
        let taken = sampler.take(now_ms, unix_ms(), machine, figures.counters(), figures.cache());
        if let Some(sample) = taken {
            writer.keep(sample);
        }
        if is_last {
            return writer.close();
        }
        // After a pause the intervals are aligned as before; one sample covers the pause.
        due_ms += (now_ms - due_ms) / interval_ms * interval_ms + interval_ms;
    }
}

#[cfg(test)]
mod tests;
