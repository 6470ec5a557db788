//! Arbitration by a store that dispatchers share: between two active dispatchers that do not
//! receive each other's heartbeats, the store's lease decides.
//!
//! A takeover does not wait for the store. The active dispatcher campaigns for the lease
//! afterwards; if it does not get the lease it steps down, and does not claim again as long as the
//! store names another dispatcher. A store that does not answer decides nothing.

use skep_units::Now;
use skep_wire::seal::PeerId;

use super::state::State;
use super::{Failover, FailoverAction, StepDownReason};
use crate::limits::LEADER_HEARD_MS;

/// The lease of the active dispatcher, according to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseView {
    /// The store does not answer.
    Unknown,
    /// The store answers, and no dispatcher holds the lease.
    Free,
    /// A dispatcher holds the lease.
    Held {
        leader: PeerId,
        /// The epoch that the leader has recorded; 0 before that. Not a number assigned by the
        /// store.
        epoch: u64,
    },
}

impl Failover {
    /// The state of the lease in the shared store. May be repeated.
    pub fn lease(&mut self, now: Now, lease: LeaseView) -> Vec<FailoverAction> {
        let listened = self.listening.at(now);
        self.arbitration.see(listened, lease);
        if let LeaseView::Held { epoch, .. } = lease {
            self.obey_lease(listened);
            self.note_epoch(listened, epoch);
        }
        self.drain()
    }

    /// Whether to campaign for the lease: while active, unless this dispatcher could not serve
    /// clients and another one may.
    pub fn wants_lease(&self) -> bool {
        matches!(self.state, State::Active { .. }) && !self.data_path.is_lost()
    }

    pub(super) fn obey_lease(&mut self, listened: Now) {
        if let State::Active { epoch, .. } = self.state
            && let Some(epoch) = self.arbitration.verdict(listened, epoch)
        {
            self.arbitration.obeyed();
            self.step_down(listened, StepDownReason::Lease { epoch });
        }
    }
}

/// What the store has reported, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arbitration {
    own: PeerId,
    /// How long another dispatcher may hold the lease while this one is active, and how long a
    /// store that stopped answering still restrains it: longer than the lifetime of a lease.
    patience_ms: u64,
    view: LeaseView,
    seen_at: Now,
    /// How long another dispatcher has held the lease; time in which the store was silent does not
    /// count.
    lost_ms: u64,
    /// Why this dispatcher must not claim while it is not active.
    restraint: Option<Restraint>,
}

/// Another dispatcher holds the lease, and this one does not take over from it.
#[derive(Clone, Copy, Debug, Default)]
struct Restraint {
    /// Since when the store has not answered.
    unknown_since: Option<Now>,
    /// Since when the leader's heartbeats have arrived without a gap, and when the last one did.
    leader_heard: Option<(Now, Now)>,
}

impl Arbitration {
    pub(super) fn new(own: PeerId, patience_ms: u64) -> Self {
        let (view, seen_at) = (LeaseView::Unknown, Now(0));
        Self { own, patience_ms, view, seen_at, lost_ms: 0, restraint: None }
    }

    /// The store's answer, or its silence. May be repeated.
    pub(super) fn see(&mut self, listened: Now, view: LeaseView) {
        self.lost_ms = match view {
            LeaseView::Held { leader, .. } if leader != self.own => self.lost_ms(listened),
            LeaseView::Unknown => self.lost_ms(listened),
            LeaseView::Held { .. } | LeaseView::Free => 0,
        };
        (self.view, self.seen_at) = (view, listened);
        self.restraint = self.restraint.and_then(|it| match view {
            LeaseView::Free => None,
            // Including its own lease from a term that has ended.
            LeaseView::Held { .. } => Some(Restraint { unknown_since: None, ..it }),
            LeaseView::Unknown => {
                let since = it.unknown_since.unwrap_or(listened);
                let is_over = listened.since_ms(since) > self.patience_ms;
                (!is_over).then_some(Restraint { unknown_since: Some(since), ..it })
            }
        });
    }

    /// Whether a dispatcher that is not active may claim.
    pub(super) fn allows_claim(&self) -> bool {
        self.restraint.is_none()
    }

    /// The epoch of the leader, if this dispatcher, active in `epoch`, must step down.
    pub(super) fn verdict(&self, listened: Now, epoch: u64) -> Option<u64> {
        let LeaseView::Held { leader, epoch: leaders } = self.view else { return None };
        let is_late = self.lost_ms(listened) > self.patience_ms;
        (leader != self.own && (is_late || epoch < leaders)).then_some(leaders)
    }

    /// This dispatcher has become active: it has time to obtain the lease.
    pub(super) fn claimed(&mut self, listened: Now) {
        (self.lost_ms, self.seen_at) = (0, listened);
    }

    /// It has stepped down because of the lease.
    pub(super) fn obeyed(&mut self) {
        self.restraint = Some(Restraint::default());
    }

    /// No active dispatcher is received. `last` is the previous one if it stepped down; a
    /// dispatcher that has just started passes `None`. If another dispatcher holds the lease, that
    /// one is probably active, but its heartbeats are not received.
    pub(super) fn vacant(&mut self, last: Option<PeerId>) {
        if let LeaseView::Held { leader, .. } = self.view
            && leader != self.own
            && last != Some(leader)
        {
            self.obeyed();
        }
    }

    /// A heartbeat of an active dispatcher was received; gaps of up to `gap_ms` count as none.
    /// After some time without gaps, silence of the leader is meaningful again; a single heartbeat
    /// only shows that some are lost.
    pub(super) fn heard(&mut self, listened: Now, active: PeerId, gap_ms: u64) {
        if !matches!(self.view, LeaseView::Held { leader, .. } if leader == active) {
            return;
        }
        self.restraint = self.restraint.and_then(|it| {
            let since = match it.leader_heard {
                Some((since, last)) if listened.since_ms(last) <= gap_ms => since,
                _ => listened,
            };
            let is_over = listened.since_ms(since) >= LEADER_HEARD_MS;
            let leader_heard = Some((since, listened));
            (!is_over).then_some(Restraint { leader_heard, ..it })
        });
    }

    fn lost_ms(&self, listened: Now) -> u64 {
        let is_others = matches!(self.view, LeaseView::Held { leader, .. } if leader != self.own);
        self.lost_ms + if is_others { listened.since_ms(self.seen_at) } else { 0 }
    }
}
