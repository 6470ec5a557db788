//! The agent outside direct dispatch: it only reports the load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use skep_config::Config;
use skep_peer::{Counts, RealtimeWork, Waker, Watchdog, spawn_realtime_thread};
use skep_wire::seal::Key;

use crate::report::{LoadOnly, Report, ReportSource};
use crate::{AgentError, conversation};

/// What a reporter needs to start.
pub struct ReporterParts {
    /// Name of the node.
    pub name: String,
    pub key: Key,
    /// The source of the node's reports.
    pub source: ReportSource,
    /// Watches the thread.
    pub watchdog: Arc<Watchdog>,
}

/// Reports the load of one node to all dispatchers. Ends when dropped.
pub struct Reporter {
    counts: Arc<Counts>,
    stop: Arc<AtomicBool>,
    waker: Waker,
}

impl Reporter {
    /// Starts to report.
    ///
    /// # Errors
    /// The config has no such node, or the address of its agent cannot be bound.
    pub fn start(config: &Config, parts: ReporterParts) -> Result<Self, AgentError> {
        let ReporterParts { name, key, source, watchdog } = parts;
        let node = config.node(&name).ok_or_else(|| AgentError::NoSuchNode(name.clone()))?;
        let (socket, dispatchers) = conversation(config, node, &key)?;
        let (counts, waker) = (socket.counts(), socket.waker());
        let (interval_ms, stop) = (config.report_interval_ms(), Arc::<AtomicBool>::default());
        let (protocol, stopped) = (LoadOnly, Arc::clone(&stop));
        let report = Report { socket, dispatchers, interval_ms, source, protocol, stop: stopped };
        let pulse = watchdog.watch("skep-report", report.stall_s_max());
        spawn_realtime_thread("skep-report", RealtimeWork::Heartbeats, move |priority| {
            tracing::debug!("reports have {priority}");
            report.run(&pulse);
        })
        .map_err(AgentError::Thread)?;
        Ok(Self { counts, stop, waker })
    }

    /// Datagrams received, sent and refused.
    pub fn datagrams(&self) -> &Counts {
        &self.counts
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
    }
}
