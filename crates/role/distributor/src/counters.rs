//! The mover's counters and timings, for metrics and operators.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use skep_handoff::{DonorCounters, MovedCounters, QueryCounters, ReceiverCounters};
use skep_telemetry::Histogram;

#[derive(Debug, Default)]
pub struct HandoffCounters {
    latest: Mutex<HandoffCounts>,
    malformed: AtomicU64,
    times: HandoffTimings,
}

/// The counters of both state machines.
#[derive(Clone, Debug, Default)]
pub struct HandoffCounts {
    pub donor: DonorCounters,
    pub receiver: ReceiverCounters,
    pub moved: MovedCounters,
    pub queries: QueryCounters,
}

/// Durations of moves and of their steps, recorded by the mover's thread.
#[derive(Debug, Default)]
pub struct HandoffTimings {
    /// From the order to freeze a connection until GO is sent to its receiver.
    pub freeze: Arc<Histogram>,
    /// From the worker's request until the receiver reports that it serves the connection.
    pub whole: Arc<Histogram>,
    steps: [Arc<Histogram>; MoveStep::ALL.len()],
}

/// A part of a move, measured from the end of the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveStep {
    /// Donor: from a worker's request to the order to freeze.
    Wait,
    /// Donor: waits for netguard's answer.
    Freeze,
    /// Donor: reads the state of the connection.
    Read,
    /// Donor: from the offer to READY.
    Offer,
    /// Donor: waits for netguard's answer.
    Redirect,
    /// Donor: from GO to DONE.
    Go,
    /// Receiver: waits for netguard's answer.
    Create,
    /// Receiver: writes the state of the connection into the socket.
    Restore,
    /// Receiver: from READY to GO.
    Ready,
    /// Receiver: waits for netguard's answer.
    Start,
}

impl MoveStep {
    /// In order, those of the donor first.
    pub const ALL: [Self; 10] = [
        Self::Wait,
        Self::Freeze,
        Self::Read,
        Self::Offer,
        Self::Redirect,
        Self::Go,
        Self::Create,
        Self::Restore,
        Self::Ready,
        Self::Start,
    ];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Freeze => "freeze",
            Self::Read => "read",
            Self::Offer => "offer",
            Self::Redirect => "redirect",
            Self::Go => "go",
            Self::Create => "create",
            Self::Restore => "restore",
            Self::Ready => "ready",
            Self::Start => "start",
        }
    }
}

impl HandoffCounters {
    pub fn counts(&self) -> HandoffCounts {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Number of authentic messages that are malformed.
    pub fn malformed_messages(&self) -> u64 {
        self.malformed.load(Relaxed)
    }

    pub fn times(&self) -> &HandoffTimings {
        &self.times
    }

    pub(crate) fn take(
        &self,
        donor: &DonorCounters,
        receiver: &ReceiverCounters,
        moved: MovedCounters,
        queries: QueryCounters,
    ) {
        let (donor, receiver) = (donor.clone(), receiver.clone());
        let counts = HandoffCounts { donor, receiver, moved, queries };
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }

    pub(crate) fn malformed(&self) {
        self.malformed.fetch_add(1, Relaxed);
    }
}

impl HandoffTimings {
    /// The times of one step.
    pub fn step(&self, step: MoveStep) -> &Arc<Histogram> {
        &self.steps[step as usize]
    }

    /// Records the end of a step that began at `since`, and sets `since` to the beginning of the
    /// next one.
    pub(crate) fn lap(&self, step: MoveStep, since: &mut Instant) {
        let now = Instant::now();
        self.step(step).record(now.saturating_duration_since(*since));
        *since = now;
    }
}
