//! The store that dispatchers share, as used by [`skep_cluster::lease_observer`].

use std::sync::Arc;

use skep_cluster::lease_observer::{LeaseRecord, SharedStore, StoreLeader};
use skep_store::{Campaign, Expected, Health, Leader, Pending, Seen, Store, StoreError, Watch};
use skep_wire::seal::PeerId;

/// Key of the value `NAME EPOCH` of the active dispatcher.
const ACTIVE: &str = "active";

/// The store of one dispatcher.
pub(crate) struct EtcdStore {
    store: Store,
    name: String,
    /// Time to live of the lease, in seconds.
    ttl_s: u64,
    campaign: Option<Campaign>,
    leader: Watch,
    active: Watch,
    epoch_write: Option<Pending<()>>,
    active_write: Option<Pending<u64>>,
    /// The health that was last logged.
    told: Arc<Health>,
}

impl EtcdStore {
    pub(crate) fn new(store: Store, name: &str, ttl_s: u64) -> Result<Self, StoreError> {
        Ok(Self {
            leader: store.watch_leader(|_| ())?,
            active: store.watch(ACTIVE, |_| ())?,
            told: store.health(),
            store,
            name: name.to_owned(),
            ttl_s,
            campaign: None,
            epoch_write: None,
            active_write: None,
        })
    }

    /// The health of the store.
    pub(crate) fn health(&self) -> Arc<Health> {
        self.store.health()
    }

    /// Logs when the store becomes reachable or unreachable, completely or in part.
    pub(crate) fn tell_health(&mut self) {
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

impl SharedStore for EtcdStore {
    fn leader(&mut self) -> StoreLeader {
        match &self.campaign {
            Some(campaign) => match campaign.view().leader {
                Leader::Me => StoreLeader::Me,
                Leader::Nobody => StoreLeader::Nobody,
                Leader::Other(name) => StoreLeader::Other(PeerId::of(&name)),
                Leader::NoOpinion | Leader::Unknown => StoreLeader::Unknown,
            },
            None => match &*self.leader.seen() {
                Seen { is_current: false, .. } => StoreLeader::Unknown,
                Seen { entry: None, .. } => StoreLeader::Nobody,
                Seen { entry: Some(entry), .. } => {
                    let name = String::from_utf8_lossy(&entry.value);
                    StoreLeader::Other(PeerId::of(&name))
                }
            },
        }
    }

    fn campaign(&mut self, is_wanted: bool) {
        if is_wanted == self.campaign.is_some() {
            return;
        }
        self.campaign = None;
        if is_wanted {
            match self.store.campaign(&self.name, self.ttl_s, |_| ()) {
                Ok(campaign) => self.campaign = Some(campaign),
                Err(error) => tracing::warn!("cannot read the leader from the store: {error}"),
            }
        }
    }

    fn active(&mut self) -> Option<(PeerId, u64)> {
        let seen = self.active.seen();
        let text = std::str::from_utf8(&seen.entry.as_ref()?.value).ok()?;
        let (name, epoch) = text.split_once(' ')?;
        Some((PeerId::of(name), epoch.parse().ok()?))
    }

    fn write(&mut self, record: LeaseRecord, epoch: u64) {
        match record {
            LeaseRecord::Epoch => self.epoch_write = Some(self.store.record_epoch(epoch)),
            LeaseRecord::Active => {
                let text = format!("{} {epoch}", self.name);
                self.active_write = Some(self.store.put(ACTIVE, text.as_bytes(), Expected::Any));
            }
        }
    }

    fn outcome(&mut self, record: LeaseRecord) -> Option<bool> {
        match record {
            LeaseRecord::Epoch => self.epoch_write.as_mut()?.try_take().map(|it| it.is_ok()),
            LeaseRecord::Active => self.active_write.as_mut()?.try_take().map(|it| it.is_ok()),
        }
    }
}
