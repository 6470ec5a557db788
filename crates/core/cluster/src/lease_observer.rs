//! The lease in the store that dispatchers share, held by the active dispatcher: it is polled,
//! never waited for.
//!
//! The active dispatcher campaigns for the lease, and while it holds it writes its name and epoch
//! beside it. The failover of the other dispatchers treats that as a received claim; see
//! [`crate::failover`]. Writes that fail while the store is unreachable are repeated until they
//! succeed.

use skep_units::{EPOCH_STORED_MAX, Now};
use skep_wire::seal::PeerId;

use crate::failover::LeaseView;
use crate::limits::RECORD_AGAIN_MS;

/// The shared store, from one dispatcher's view. No call blocks.
pub trait SharedStore {
    /// The leader according to the store, whether this dispatcher campaigns or not.
    fn leader(&mut self) -> StoreLeader;

    /// Starts to campaign for the lease, or releases it. May be repeated.
    fn campaign(&mut self, is_wanted: bool);

    /// The dispatcher that last recorded itself as active, and its epoch.
    fn active(&mut self) -> Option<(PeerId, u64)>;

    /// Begins to write this epoch; a pending write of the same record is abandoned.
    fn write(&mut self, record: LeaseRecord, epoch: u64);

    /// Whether the last write of this record has succeeded; `None` while it is pending. Not called
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

/// The records that the active dispatcher writes to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseRecord {
    /// The latest epoch in use.
    Epoch,
    /// The leader's name and epoch.
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
    /// An observer for the dispatcher `own`.
    pub fn new(store: S, own: PeerId) -> Self {
        Self { store, own, last_epoch: Written::default(), active: Written::default() }
    }

    /// The current state of the lease. To be polled: each call also starts or stops the campaign,
    /// and drives pending writes. `epoch` is that of this dispatcher's term, if it is active;
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
            // Its own lease is of a term that has ended: it is being released.
            (StoreLeader::Nobody | StoreLeader::Me, _) => LeaseView::Free,
            (StoreLeader::Unknown, _) => LeaseView::Unknown,
        }
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The store, for calls beyond those of [`SharedStore`].
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }
}

impl Written {
    /// Writes `epoch`, unless it is stored or being written.
    fn ensure(&mut self, now: Now, store: &mut impl SharedStore, record: LeaseRecord, epoch: u64) {
        if let Some((written, since)) = self.under_way {
            match store.outcome(record) {
                None => return,
                Some(true) => self.confirmed = Some(written),
                // Do not flood a store that refuses at once.
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
