//! What the mover has done so far, for metrics and operators.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use skep_handoff::{DonorCounters, MovedCounters, ReceiverCounters};
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
}

/// How long moves take, and their steps. The mover's thread writes them.
#[derive(Debug, Default)]
pub struct HandoffTimings {
    /// From the order to freeze a connection until its receiver is told to go on.
    pub freeze: Arc<Histogram>,
    /// From the worker's request until the receiver says that it serves.
    pub whole: Arc<Histogram>,
    steps: [Arc<Histogram>; MoveStep::ALL.len()],
}

/// A part of a move, from the end of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveStep {
    /// Donor: from a worker's request until the mover orders the freeze.
    Wait,
    /// Donor: netguard's answer is awaited.
    Freeze,
    /// Donor: the connection is read.
    Read,
    /// Donor: from the offer to READY.
    Offer,
    /// Donor: netguard's answer is awaited.
    Redirect,
    /// Donor: from GO to DONE.
    Go,
    /// Receiver: netguard's answer is awaited.
    Create,
    /// Receiver: the connection is written into the socket.
    Restore,
    /// Receiver: from READY to GO.
    Ready,
    /// Receiver: netguard's answer is awaited.
    Start,
}

impl MoveStep {
    /// In their order, first those of the donor.
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

    /// In metrics.
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

    /// Authentic messages that are none.
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
    ) {
        let counts = HandoffCounts { donor: donor.clone(), receiver: receiver.clone(), moved };
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }

    pub(crate) fn malformed(&self) {
        self.malformed.fetch_add(1, Relaxed);
    }
}

impl HandoffTimings {
    /// Those of one step.
    pub fn step(&self, step: MoveStep) -> &Arc<Histogram> {
        &self.steps[step as usize]
    }

    /// A step has ended that began at `since`, which is now the beginning of the next.
    pub(crate) fn lap(&self, step: MoveStep, since: &mut Instant) {
        let now = Instant::now();
        self.step(step).record(now.saturating_duration_since(*since));
        *since = now;
    }
}
