//! Arbitration by a store that dispatchers share: between two that are both active and do not hear
//! each other, its lease decides.
//!
//! A takeover waits for no store. Whoever is active campaigns for the lease afterwards; one that
//! does not get it steps down, and does not claim again as long as the store names another
//! dispatcher. A store that does not answer decides nothing.

use skep_units::Now;
use skep_wire::seal::PeerId;

/// The lease of the active dispatcher, according to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseView {
    /// The store does not answer.
    Unknown,
    /// The store answers, and nobody holds it.
    Free,
    /// A dispatcher holds it.
    Held {
        leader: PeerId,
        /// The epoch that the leader has recorded; 0 before it has. No number of the store's own.
        epoch: u64,
    },
}

/// What the store has said, and since when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arbitration {
    own: PeerId,
    /// How long the lease may be another's while this dispatcher is active, and how long a store
    /// that does not answer any more still restrains it: longer than a lease lasts.
    patience_ms: u64,
    view: LeaseView,
    /// Since when the lease is another's.
    lost_since: Option<Now>,
    restraint: Restraint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Restraint {
    None,
    /// Stepped down for the lease, and it is still another's.
    Lost,
    /// The same, but the store has not answered since.
    Unknown {
        since: Now,
    },
}

impl Arbitration {
    pub(super) fn new(own: PeerId, patience_ms: u64) -> Self {
        let (view, restraint) = (LeaseView::Unknown, Restraint::None);
        Self { own, patience_ms, view, lost_since: None, restraint }
    }

    /// The store's answer, or its silence. May be repeated.
    pub(super) fn see(&mut self, listened: Now, view: LeaseView) {
        self.view = view;
        let is_anothers = matches!(view, LeaseView::Held { leader, .. } if leader != self.own);
        self.lost_since = is_anothers.then(|| self.lost_since.unwrap_or(listened));
        self.restraint = match (self.restraint, view) {
            (Restraint::None, _) => Restraint::None,
            (Restraint::Lost, LeaseView::Unknown) => Restraint::Unknown { since: listened },
            (Restraint::Unknown { since }, LeaseView::Unknown) => {
                let is_over = listened.since_ms(since) > self.patience_ms;
                if is_over { Restraint::None } else { Restraint::Unknown { since } }
            }
            (_, LeaseView::Held { .. }) if is_anothers => Restraint::Lost,
            (_, LeaseView::Held { .. } | LeaseView::Free) => Restraint::None,
        };
    }

    /// Whether a dispatcher that is not active may claim.
    pub(super) fn allows_claim(&self) -> bool {
        self.restraint == Restraint::None
    }

    /// Whether this dispatcher, active with `epoch`, has to step down: the epoch of the leader.
    pub(super) fn verdict(&self, listened: Now, epoch: u64) -> Option<u64> {
        let LeaseView::Held { epoch: leaders, .. } = self.view else { return None };
        let since = self.lost_since?;
        let is_late = listened.since_ms(since) > self.patience_ms;
        (is_late || epoch < leaders).then_some(leaders)
    }

    /// This dispatcher has become active: it has time to get the lease.
    pub(super) fn claimed(&mut self, listened: Now) {
        self.lost_since = self.lost_since.map(|_| listened);
    }

    /// It has stepped down, as the verdict was.
    pub(super) fn obeyed(&mut self) {
        self.restraint = Restraint::Lost;
    }

    /// Beats of an active dispatcher arrive: the silence of the leader means something again.
    pub(super) fn heard(&mut self, active: PeerId) {
        if matches!(self.view, LeaseView::Held { leader, .. } if leader == active) {
            self.restraint = Restraint::None;
        }
    }
}
