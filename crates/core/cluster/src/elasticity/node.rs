//! One node, from off to active and back, with attempts and timeouts.

use skep_units::NodeId;

use super::settings::{
    ElasticitySettings, ElasticityStep, LifecycleState, NodeObservation, Observed, PowerEvent,
    PowerOrder, StartFault,
};

/// A node; times are of the watched clock.
#[derive(Clone, Debug)]
pub(super) struct ElasticNode {
    phase: Phase,
    is_held: bool,
    /// The time until which it counts as failed.
    failed_until_ms: u64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Off,
    Starting {
        began_ms: u64,
        attempt: Attempt,
    },
    Active {
        is_lost: bool,
    },
    Draining {
        until_ms: u64,
    },
    /// Drained, and ordered off.
    Stopping {
        attempt: Attempt,
    },
}

/// An order that was given.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    /// Counted from 1.
    number: u32,
    /// When it times out; if it has failed, when the next one is due.
    ends: AttemptEnds,
}

#[derive(Clone, Copy, Debug)]
enum AttemptEnds {
    At(u64),
    RepeatedAt(u64),
}

impl ElasticNode {
    /// A node in its observed state.
    pub(super) fn new(seen: &NodeObservation) -> Self {
        let is_ready = seen.observed == Observed::Ready;
        let phase = if is_ready { Phase::Active { is_lost: false } } else { Phase::Off };
        Self { phase, is_held: seen.is_held, failed_until_ms: 0 }
    }

    pub(super) fn state(&self) -> LifecycleState {
        match self.phase {
            Phase::Off => LifecycleState::Off,
            Phase::Starting { .. } => LifecycleState::Starting,
            Phase::Active { .. } => LifecycleState::Active,
            Phase::Draining { .. } | Phase::Stopping { .. } => LifecycleState::Draining,
        }
    }

    pub(super) fn is_failed(&self, clock_ms: u64) -> bool {
        clock_ms < self.failed_until_ms
    }

    pub(super) fn serves(&self) -> bool {
        !self.is_held && matches!(self.phase, Phase::Active { is_lost: false })
    }

    pub(super) fn is_starting(&self) -> bool {
        !self.is_held && matches!(self.phase, Phase::Starting { .. })
    }

    pub(super) fn is_draining(&self) -> bool {
        !self.is_held && matches!(self.phase, Phase::Draining { .. } | Phase::Stopping { .. })
    }

    /// Whether it carries load, or is expected to soon: not after a failed attempt.
    pub(super) fn counts(&self) -> bool {
        let is_first =
            |attempt: Attempt| attempt.number == 1 && matches!(attempt.ends, AttemptEnds::At(_));
        self.serves()
            || !self.is_held
                && matches!(self.phase, Phase::Starting { attempt, .. } if is_first(attempt))
    }

    /// Its rank among the nodes that can be started, lowest first; `None` if it cannot be.
    pub(super) fn start_rank(&self, clock_ms: u64) -> Option<u8> {
        match self.phase {
            _ if self.is_held => None,
            // It is running, and its memory is warm.
            Phase::Draining { .. } => Some(0),
            Phase::Off if !self.is_failed(clock_ms) => Some(1),
            _ => None,
        }
    }

    pub(super) fn start(&mut self, clock_ms: u64, settings: &ElasticitySettings) {
        self.phase = match self.phase {
            Phase::Draining { .. } => Phase::Active { is_lost: false },
            _ => Phase::Starting {
                began_ms: clock_ms,
                attempt: Attempt::first(clock_ms + settings.start_timeout_ms),
            },
        };
    }

    pub(super) fn drain(&mut self, clock_ms: u64, settings: &ElasticitySettings) {
        self.phase = Phase::Draining { until_ms: clock_ms + settings.drain_timeout_ms };
    }

    /// Processes an observation of the node.
    pub(super) fn observe(
        &mut self,
        clock_ms: u64,
        settings: &ElasticitySettings,
        seen: &NodeObservation,
        step: &mut ElasticityStep,
    ) {
        self.is_held = seen.is_held;
        if seen.is_held {
            self.phase = Self::new(seen).phase;
            return;
        }
        let node = seen.id;
        match self.phase {
            Phase::Off if seen.observed == Observed::Ready => {
                self.phase = Phase::Active { is_lost: false };
                step.events.push(PowerEvent::Joined { node });
            }
            Phase::Off => {}
            Phase::Starting { began_ms, attempt } => {
                self.starting(clock_ms, settings, (began_ms, attempt), seen, step);
            }
            Phase::Active { is_lost } => self.active(is_lost, seen, step),
            Phase::Draining { until_ms } => match seen.observed {
                Observed::Ready if seen.is_idle || clock_ms >= until_ms => {
                    if !seen.is_idle {
                        let requests = seen.requests;
                        step.events.push(PowerEvent::DrainTimedOut { node, requests });
                    }
                    let attempt = Attempt::first(clock_ms + settings.stop_timeout_ms);
                    self.phase = Phase::Stopping { attempt };
                    step.orders.push(PowerOrder::Stop(node));
                }
                Observed::Ready => {}
                Observed::Off => self.stopped(seen, step),
                Observed::Silent | Observed::Lost => {
                    self.fail(clock_ms, settings);
                    step.events.push(PowerEvent::LostDraining { node });
                }
            },
            Phase::Stopping { attempt } => self.stopping(clock_ms, settings, attempt, seen, step),
        }
    }

    fn starting(
        &mut self,
        clock_ms: u64,
        settings: &ElasticitySettings,
        (began_ms, attempt): (u64, Attempt),
        seen: &NodeObservation,
        step: &mut ElasticityStep,
    ) {
        let node = seen.id;
        let number = attempt.number;
        if seen.observed == Observed::Ready {
            self.phase = Phase::Active { is_lost: false };
            step.events.push(PowerEvent::Started { node, after_ms: clock_ms - began_ms });
            return;
        }
        let fault = match attempt.ends {
            AttemptEnds::RepeatedAt(_) => return,
            AttemptEnds::At(_) if seen.order_failed => StartFault::OrderFailed,
            AttemptEnds::At(_) if seen.observed == Observed::Lost => StartFault::Lost,
            AttemptEnds::At(end_ms) if clock_ms >= end_ms => StartFault::NotInTime,
            AttemptEnds::At(_) => return,
        };
        if number < settings.attempts_max {
            let attempt = attempt.failed(clock_ms, settings);
            self.phase = Phase::Starting { began_ms, attempt };
            step.events.push(PowerEvent::StartRetried { node, attempt: number, fault });
        } else {
            self.fail(clock_ms, settings);
            step.events.push(PowerEvent::StartFailed { node, attempts: number, fault });
            // The machine may have started partly.
            step.orders.push(PowerOrder::Stop(node));
        }
    }

    /// Repeats a start that is due, or gives up a node that is not needed any more. Returns the
    /// order.
    pub(super) fn repeat_start(
        &mut self,
        clock_ms: u64,
        settings: &ElasticitySettings,
        id: NodeId,
        is_too_many: bool,
    ) -> Option<PowerOrder> {
        let Phase::Starting { began_ms, attempt } = self.phase else { return None };
        let is_due = |due_ms| clock_ms >= due_ms;
        if !matches!(attempt.ends, AttemptEnds::RepeatedAt(due_ms) if is_due(due_ms)) {
            return None;
        }
        if is_too_many {
            self.phase = Phase::Off;
            return Some(PowerOrder::Stop(id));
        }
        let attempt = attempt.next(clock_ms + settings.start_timeout_ms);
        self.phase = Phase::Starting { began_ms, attempt };
        Some(PowerOrder::Start(id))
    }

    fn active(&mut self, was_lost: bool, seen: &NodeObservation, step: &mut ElasticityStep) {
        let node = seen.id;
        let is_lost = seen.observed != Observed::Ready;
        self.phase = match seen.observed {
            Observed::Off => Phase::Off,
            _ => Phase::Active { is_lost },
        };
        match (was_lost, is_lost) {
            _ if seen.observed == Observed::Off => step.events.push(PowerEvent::Stopped { node }),
            (false, true) => step.events.push(PowerEvent::Lost { node }),
            (true, false) => step.events.push(PowerEvent::Returned { node }),
            (true, true) | (false, false) => {}
        }
    }

    fn stopping(
        &mut self,
        clock_ms: u64,
        settings: &ElasticitySettings,
        attempt: Attempt,
        seen: &NodeObservation,
        step: &mut ElasticityStep,
    ) {
        let (node, number) = (seen.id, attempt.number);
        if seen.observed != Observed::Ready {
            return self.stopped(seen, step);
        }
        match attempt.ends {
            AttemptEnds::RepeatedAt(due_ms) if clock_ms >= due_ms => {
                let attempt = attempt.next(clock_ms + settings.stop_timeout_ms);
                self.phase = Phase::Stopping { attempt };
                step.orders.push(PowerOrder::Stop(node));
            }
            AttemptEnds::At(end_ms) if clock_ms >= end_ms || seen.order_failed => {
                if number < settings.attempts_max {
                    self.phase = Phase::Stopping { attempt: attempt.failed(clock_ms, settings) };
                    step.events.push(PowerEvent::StopRetried { node, attempt: number });
                    return;
                }
                self.fail(clock_ms, settings);
                self.phase = Phase::Active { is_lost: false };
                step.events.push(PowerEvent::StopFailed { node, attempts: number });
                step.orders.push(PowerOrder::Start(node));
            }
            AttemptEnds::At(_) | AttemptEnds::RepeatedAt(_) => {}
        }
    }

    fn stopped(&mut self, seen: &NodeObservation, step: &mut ElasticityStep) {
        self.phase = Phase::Off;
        step.events.push(PowerEvent::Stopped { node: seen.id });
    }

    fn fail(&mut self, clock_ms: u64, settings: &ElasticitySettings) {
        self.phase = Phase::Off;
        self.failed_until_ms = clock_ms + settings.failed_hold_ms;
    }
}

impl Attempt {
    fn first(end_ms: u64) -> Self {
        Self { number: 1, ends: AttemptEnds::At(end_ms) }
    }

    fn next(self, end_ms: u64) -> Self {
        Self { number: self.number + 1, ends: AttemptEnds::At(end_ms) }
    }

    fn failed(self, clock_ms: u64, settings: &ElasticitySettings) -> Self {
        let doublings = (self.number - 1).min(crate::limits::ELASTIC_RETRY_DOUBLINGS_MAX);
        let pause_ms = settings.retry_pause_ms << doublings;
        Self { ends: AttemptEnds::RepeatedAt(clock_ms + pause_ms), ..self }
    }
}
