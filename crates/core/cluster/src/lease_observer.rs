//! The lease in the store that dispatchers share, whose holder is the active dispatcher there:
//! polled, never waited for.
//!
//! The active dispatcher campaigns for the lease, and while it holds it writes its name and epoch
//! beside it. The failover of the other dispatchers treats that as a received claim; see
//! [`crate::failover`]. Writes that fail while the store is unreachable are repeated until they
//! succeed.

use skep_units::{EPOCH_STORED_MAX, Now};
use skep_wire::seal::PeerId;

use crate::failover::LeaseView;
use crate::limits::RECORD_AGAIN_MS;

/// The store that dispatchers share, as one of them sees it. No call waits.
pub trait SharedStore {
    /// The leader, as far as the store knows, whether this dispatcher campaigns or not.
    fn leader(&mut self) -> StoreLeader;

    /// Campaigns for the lease from now on, or gives it back. May be repeated.
    fn campaign(&mut self, is_wanted: bool);

    /// The dispatcher that has recorded itself as active last, and its epoch.
    fn active(&mut self) -> Option<(PeerId, u64)>;

    /// Begins to write this epoch; a write of this record that is under way is forgotten.
    fn write(&mut self, record: LeaseRecord, epoch: u64);

    /// Whether the last write of this record has succeeded; `None` while it is under way. Not called
    /// again after success.
    fn outcome(&mut self, record: LeaseRecord) -> Option<bool>;
}

/// The leader in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreLeader {
    /// The store does not answer.
    Unknown,
    Nobody,
    Me,
    Other(PeerId),
}

/// What the active dispatcher writes into the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseRecord {
    /// Its epoch, as the last one of all.
    Epoch,
    /// Its name and its epoch, as the leader's.
    Active,
}

/// Observes the lease, and campaigns for it while this dispatcher wants it.
#[derive(Debug)]
pub struct LeaseObserver<S> {
    store: S,
    own: PeerId,
    last_epoch: Written,
    active: Written,
}

/// An epoch being written to the store.
#[derive(Debug, Default)]
struct Written {
    confirmed: Option<u64>,
    under_way: Option<(u64, Now)>,
}

impl<S: SharedStore> LeaseObserver<S> {
    /// Of the dispatcher `own`.
    pub fn new(store: S, own: PeerId) -> Self {
        Self { store, own, last_epoch: Written::default(), active: Written::default() }
    }

    /// The state of the lease now. To be polled: each call also campaigns or stops, and does the
    /// pending writes. `epoch` is that of this dispatcher's term, if it is active;
    /// `wants_lease` is [`crate::failover::Failover::wants_lease`].
    pub fn view(&mut self, now: Now, epoch: Option<u64>, wants_lease: bool) -> LeaseView {
        self.store.campaign(wants_lease);
        match epoch {
            Some(epoch) => self.last_epoch.ensure(now, &mut self.store, LeaseRecord::Epoch, epoch),
            None => (self.last_epoch, self.active) = Default::default(),
        }
        match (self.store.leader(), epoch) {
            (StoreLeader::Me, Some(epoch)) => {
                self.active.ensure(now, &mut self.store, LeaseRecord::Active, epoch);
                LeaseView::Held { leader: self.own, epoch }
            }
            (StoreLeader::Other(leader), _) => {
                let is_its = |(holder, epoch): &(PeerId, u64)| {
                    *holder == leader && *epoch <= EPOCH_STORED_MAX
                };
                let recorded = self.store.active().filter(is_its);
                LeaseView::Held { leader, epoch: recorded.map_or(0, |(_, epoch)| epoch) }
            }
            // Of a term that has ended: it is being given back.
            (StoreLeader::Nobody | StoreLeader::Me, _) => LeaseView::Free,
            (StoreLeader::Unknown, _) => LeaseView::Unknown,
        }
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The store, for calls that it takes beyond those of [`SharedStore`].
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }
}

impl Written {
    /// Writes `epoch`, unless the store has it or soon will.
    fn ensure(&mut self, now: Now, store: &mut impl SharedStore, record: LeaseRecord, epoch: u64) {
        if let Some((written, since)) = self.under_way {
            match store.outcome(record) {
                None => return,
                Some(true) => self.confirmed = Some(written),
                // A store that refuses at once is not to be flooded.
                Some(false) if now.since_ms(since) < RECORD_AGAIN_MS => return,
                Some(false) => {}
            }
            self.under_way = None;
        }
        if self.confirmed != Some(epoch) {
            store.write(record, epoch);
            self.under_way = Some((epoch, now));
        }
    }
}
