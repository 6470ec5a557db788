//! The reporting thread: sends this node's load to every dispatcher, in one datagram per interval,
//! and receives the dispatchers' datagrams.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use skep_peer::{Pulse, Received, Socket};
use skep_units::Now;
use skep_wire::message::{ArmCounts, Message, NodeLoad, ServedObjects, TransferRates};
use skep_wire::seal::PeerId;

use crate::limits::{RATES_MS, REPORT_STALL_S_MAX};
use crate::now;

pub(crate) struct Report<P> {
    pub(crate) socket: Socket,
    pub(crate) dispatchers: Vec<PeerId>,
    pub(crate) interval_ms: u64,
    pub(crate) source: ReportSource,
    pub(crate) protocol: P,
    pub(crate) stop: Arc<AtomicBool>,
}

/// The contents of a node's report.
#[derive(Debug, Default)]
pub struct NodeReport {
    pub load: NodeLoad,
    /// Sent from time to time.
    pub rates: TransferRates,
    /// Objects that it has served, for processes that select nodes without seeing responses.
    pub served: Vec<ServedObjects>,
    /// Its counts of A/B tests.
    pub arm_counts: Vec<ArmCounts>,
}

/// Returns the node's current load and the other contents of a report.
pub type ReportSource = Box<dyn FnMut() -> NodeReport + Send>;

/// The contents of a report besides the load, and the handling of the dispatchers' datagrams.
pub(crate) trait ReportProtocol {
    /// The next report.
    fn message(&mut self, now: Now, load: NodeLoad) -> Message;

    /// Records objects that this node has served.
    fn note_served(&mut self, _served: &ServedObjects) {}

    /// Handles a dispatcher's datagram.
    fn received(&mut self, received: Received, socket: &mut Socket);
}

/// Reports the load only.
pub(crate) struct LoadOnly;

impl ReportProtocol for LoadOnly {
    fn message(&mut self, _: Now, load: NodeLoad) -> Message {
        Message::Load(load)
    }

    fn received(&mut self, _: Received, _: &mut Socket) {}
}

impl<P: ReportProtocol> Report<P> {
    /// Time that one turn may take before the process exits, in seconds.
    pub(crate) fn stall_s_max(&self) -> u32 {
        let interval_s = u32::try_from(self.interval_ms / 1000).unwrap_or(u32::MAX / 2);
        REPORT_STALL_S_MAX.saturating_add(interval_s)
    }

    pub(crate) fn run(mut self, pulse: &Pulse) {
        let (mut report_at, mut rates_at) = (now(), now());
        while !self.stop.load(Ordering::Relaxed) {
            pulse.tick();
            let now = now();
            if now >= report_at {
                self.report(now, &mut rates_at);
                report_at = now.plus_ms(self.interval_ms);
            }
            let left = Duration::from_millis(report_at.since_ms(now).max(1));
            match self.socket.receive(left) {
                Ok(Some(received)) if self.dispatchers.contains(&received.from) => {
                    self.protocol.received(received, &mut self.socket);
                }
                Ok(Some(_)) => {}
                // Woken: there is something to report.
                Ok(None) => report_at = crate::now(),
                Err(error) => {
                    tracing::error!(%error, "cannot receive from dispatchers");
                    std::thread::sleep(left);
                }
            }
        }
    }

    fn report(&mut self, now: Now, rates_at: &mut Now) {
        let NodeReport { load, rates, served, arm_counts } = (self.source)();
        let message = self.protocol.message(now, load);
        self.socket.send_all(self.dispatchers.iter().copied(), &message);
        for served in served {
            self.protocol.note_served(&served);
            self.socket.send_all(self.dispatchers.iter().copied(), &Message::Served(served));
        }
        if now >= *rates_at {
            *rates_at = now.plus_ms(RATES_MS);
            self.socket.send_all(self.dispatchers.iter().copied(), &Message::Rates(rates));
        }
        for counts in arm_counts {
            self.socket.send_all(self.dispatchers.iter().copied(), &Message::ArmCounts(counts));
        }
    }
}
