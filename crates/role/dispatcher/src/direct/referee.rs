//! The store's opinion on who is active: asked, never waited for.
//!
//! Whoever is active campaigns for the lease there, and while it holds it writes
//! its name and epoch beside it. The others' duty takes that as a claim that it
//! has heard; see `skep_cluster::duty`.

use skep_cluster::duty::LeaseView;
use skep_store::{Campaign, Expected, Leader, Store, StoreError, Watch};
use skep_wire::seal::PeerId;

/// Key of `NAME EPOCH` of the active dispatcher.
const ACTIVE: &str = "active";

/// See the module.
pub(crate) struct Referee {
    store: Store,
    name: String,
    ttl_s: u64,
    campaign: Option<Campaign>,
    active: Watch,
    /// Of this dispatcher's reign, if it is active.
    epoch: Option<u64>,
    /// The epoch that was written last.
    written: Option<u64>,
}

impl Referee {
    pub(crate) fn new(store: Store, name: &str, ttl_s: u64) -> Result<Self, StoreError> {
        let active = store.watch(ACTIVE, |_| ())?;
        let name = name.to_owned();
        Ok(Self { store, name, ttl_s, campaign: None, active, epoch: None, written: None })
    }

    /// This dispatcher is active now.
    pub(crate) fn claim(&mut self, epoch: u64) {
        self.epoch = Some(epoch);
        if self.campaign.is_none() {
            match self.store.campaign(&self.name, self.ttl_s, |_| ()) {
                Ok(campaign) => self.campaign = Some(campaign),
                Err(error) => tracing::warn!("the store cannot be asked who leads: {error}"),
            }
        }
    }

    /// It is not active any more.
    pub(crate) fn release(&mut self) {
        (self.epoch, self.written, self.campaign) = (None, None, None);
    }

    /// What the store says now; `None` if it says nothing.
    pub(crate) fn view(&mut self) -> Option<LeaseView> {
        match self.campaign.as_ref()?.view().leader {
            Leader::Me => {
                let epoch = self.epoch?;
                if self.written != Some(epoch) {
                    let text = format!("{} {epoch}", self.name);
                    // Not waited for: if it is lost, others learn the epoch from beats.
                    drop(self.store.put(ACTIVE, text.as_bytes(), Expected::Any));
                    self.written = Some(epoch);
                }
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

    /// How the store does, in a line.
    pub(crate) fn health(&self) -> String {
        self.store.health().to_string()
    }
}
