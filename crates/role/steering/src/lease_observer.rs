//! The lease in the shared store, whose holder is the active dispatcher there: polled, never waited
//! for.
//!
//! The active dispatcher campaigns for the lease, and while it holds it writes its name and epoch
//! beside it. The failover of the other dispatchers treats that as a received claim; see
//! `skep_cluster::failover`. Writes that fail while the store is unreachable are repeated until
//! they succeed.

use std::sync::Arc;

use skep_cluster::failover::LeaseView;
use skep_store::{Campaign, Expected, Health, Leader, Pending, Store, StoreError, Watch};
use skep_units::Now;
use skep_wire::seal::PeerId;

use crate::limits::RECORD_AGAIN_MS;

/// Key of `NAME EPOCH` of the active dispatcher.
const ACTIVE: &str = "active";

/// Observes the lease in the shared store, and campaigns for it while this dispatcher is active.
pub(crate) struct LeaseObserver {
    store: Store,
    name: String,
    ttl_s: u64,
    campaign: Option<Campaign>,
    active: Watch,
    /// Of this dispatcher's term, if it is active.
    epoch: Option<u64>,
    /// The epoch, recorded as the last one of all.
    recorded: Record<()>,
    /// The epoch, recorded as that of the holder of the lease.
    signed: Record<u64>,
    /// The health that was reported last.
    told: Arc<Health>,
}

/// An epoch being written to the store.
struct Record<T> {
    confirmed: Option<u64>,
    under_way: Option<(u64, Now, Pending<T>)>,
}

impl LeaseObserver {
    pub(crate) fn new(store: Store, name: &str, ttl_s: u64) -> Result<Self, StoreError> {
        Ok(Self {
            active: store.watch(ACTIVE, |_| ())?,
            told: store.health(),
            store,
            name: name.to_owned(),
            ttl_s,
            campaign: None,
            epoch: None,
            recorded: Record::default(),
            signed: Record::default(),
        })
    }

    /// This dispatcher has become active.
    pub(crate) fn claim(&mut self, epoch: u64) {
        self.epoch = Some(epoch);
        if self.campaign.is_none() {
            match self.store.campaign(&self.name, self.ttl_s, |_| ()) {
                Ok(campaign) => self.campaign = Some(campaign),
                Err(error) => tracing::warn!("the store cannot be asked who leads: {error}"),
            }
        }
    }

    /// This dispatcher is no longer active.
    pub(crate) fn release(&mut self) {
        (self.epoch, self.campaign) = (None, None);
        (self.recorded, self.signed) = Default::default();
    }

    /// The state of the store now; `None` if it does not answer. To be polled: each call also does
    /// the pending writes, and reports the health of the store.
    pub(crate) fn view(&mut self, now: Now) -> Option<LeaseView> {
        self.tell_health();
        let store = &self.store;
        if let Some(epoch) = self.epoch {
            self.recorded.ensure(now, epoch, || store.record_epoch(epoch));
        }
        match self.campaign.as_ref()?.view().leader {
            Leader::Me => {
                let epoch = self.epoch?;
                let text = format!("{} {epoch}", self.name);
                let sign = || store.put(ACTIVE, text.as_bytes(), Expected::Any);
                self.signed.ensure(now, epoch, sign);
                Some(LeaseView { leader: PeerId::of(&self.name), epoch })
            }
            Leader::Other(name) => {
                let seen = self.active.seen();
                let text = std::str::from_utf8(&seen.entry.as_ref()?.value).ok()?;
                let (holder, epoch) = text.split_once(' ')?;
                let epoch = epoch.parse().ok().filter(|_| holder == name)?;
                Some(LeaseView { leader: PeerId::of(&name), epoch })
            }
            Leader::NoOpinion | Leader::Unknown | Leader::Nobody => None,
        }
    }

    /// The health of the store.
    pub(crate) fn health(&self) -> Arc<Health> {
        self.store.health()
    }

    /// Logs when the store becomes reachable or unreachable, in whole or in part.
    fn tell_health(&mut self) {
        let health = self.store.health();
        if (health.answering, health.of) == (self.told.answering, self.told.of) {
            return;
        }
        if health.answering == 0 {
            tracing::warn!("the store does not answer; packets are steered without it: {health}");
        } else if health.answering < health.of {
            tracing::warn!("a part of the store does not answer: {health}");
        } else {
            tracing::info!("the store answers: {health}");
        }
        self.told = health;
    }
}

impl<T> Record<T> {
    /// Queues `epoch` to be written, unless the store has it or soon will.
    fn ensure(&mut self, now: Now, epoch: u64, write: impl FnOnce() -> Pending<T>) {
        if let Some((written, since, pending)) = &mut self.under_way {
            let outcome = pending.try_take();
            if matches!(outcome, Some(Ok(_))) {
                self.confirmed = Some(*written);
            } else if outcome.is_none() || now.since_ms(*since) < RECORD_AGAIN_MS {
                return;
            }
            self.under_way = None;
        }
        if self.confirmed != Some(epoch) {
            self.under_way = Some((epoch, now, write()));
        }
    }
}

impl<T> Default for Record<T> {
    fn default() -> Self {
        Self { confirmed: None, under_way: None }
    }
}
