//! The recorder of a process: what the process and its machine did in each interval, into a file of
//! SQLite, on a thread of its own.
//!
//! ```text
//!   /proc, figures of the server --> sampler.rs: differences, means --> sample_writer.rs: samples that wait, the file, its faults
//! ```
//!
//! Invariants: nothing that serves waits for this thread or for its disk; whatever is wrong with the
//! file is an event and a count; what waits for it is bounded; intervals go by the monotonic clock.

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

/// What a process knows of what it serves. Asked on the recorder's thread.
pub trait ServerFigures: Send {
    fn counters(&mut self) -> ServerCounters;
    fn gauges(&mut self) -> ServerGauges;
    /// `None`: the process has no cache.
    fn cache(&mut self) -> Option<CacheBytes>;
}

/// Sums since the process began.
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

/// What rises and falls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerGauges {
    pub connections: u64,
    pub requests_in_flight: u64,
    pub bytes_outstanding: u64,
}

/// Memory of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheBytes {
    /// What it has.
    pub stored_bytes: u64,
    /// In memory files, which the kernel does not count as the process's.
    pub file_bytes: u64,
}

/// What a recorder needs to start.
pub struct RecorderParts {
    /// Name of the process.
    pub name: String,
    /// Host and port that clients reach its node at.
    pub authority: Option<String>,
    pub is_node: bool,
    pub figures: Box<dyn ServerFigures>,
}

/// Its thread ends when it is dropped.
#[derive(Debug)]
pub struct Recorder {
    counts: Arc<RecorderCounts>,
    /// Some until the end.
    stop: Option<SyncSender<()>>,
    ended: Receiver<()>,
}

impl Recorder {
    /// Starts to record, if `config` names a file.
    ///
    /// # Errors
    /// No thread can be started.
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

    /// What has become of samples.
    pub fn counts(&self) -> &Arc<RecorderCounts> {
        &self.counts
    }

    /// Records what has passed of the last interval, and waits for that, but not long.
    pub fn end(mut self) {
        drop(self.stop.take());
        let wait = Duration::from_millis(RECORDER_END_WAIT_MS);
        if let Err(RecvTimeoutError::Timeout) = self.ended.recv_timeout(wait) {
            tracing::warn!("the last sample of the recorder is not in its file: the disk is slow");
        }
    }
}

/// The thread, until `stopped` has lost its other end.
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
        // After a pause the intervals lie as before; what it covers is in one sample.
        due_ms += (now_ms - due_ms) / interval_ms * interval_ms + interval_ms;
    }
}

#[cfg(test)]
mod tests;
