//! The shelf: what each path of the sites with origins led to, for all workers.
//!
//! A flight is one request to an origin for a head. While it is under way all
//! others wait for its end, which comes: landed, or dropped, which they are told.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use skep_directory::Purges as Known;
use skep_serve::monotonic_ms;
use skep_telemetry::CacheResult;
use skep_wire::cache::{Refusal, SegmentName};
use tokio::sync::watch;

use super::handed::{self, Handed};
use crate::catalog::Resource;
use crate::limits::{HEAD_WAIT_MS, LEASE_WAIT_MS, PASS_MS};
use crate::purges::Snapshot;
use crate::site::Site;
use crate::store::Store;

/// How a flight ended, for those who waited.
#[derive(Clone, Debug)]
pub(crate) enum Landed {
    /// With this; and what it took.
    Resource(Arc<Resource>, CacheResult),
    /// With an answer for one; ask for yourself.
    Passed,
    /// The origin failed; a status for the client.
    Failed(u16),
}

/// How far a flight is.
#[derive(Clone, Debug)]
pub(crate) enum Flown {
    /// It may wait for another node.
    Seeking,
    /// It waits for an origin alone.
    Asking,
    Landed(Landed),
}

/// What is known of a path.
pub(crate) enum Looked {
    /// It may be served.
    Resource(Arc<Resource>),
    /// It may be served, but the caller must ask as well.
    Stale(Arc<Resource>, Flight),
    /// Its answers are not kept.
    Pass,
    /// Somebody is asking.
    Wait(watch::Receiver<Flown>),
    /// The caller must ask.
    Lead(Flight),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Shelf {
    store: Arc<Store>,
    slots: Mutex<HashMap<SegmentName, Slot>>,
    slots_max: usize,
}

#[derive(Debug, Default)]
struct Slot {
    kept: Option<Arc<Resource>>,
    passes_until_ms: u64,
    flight: Option<watch::Receiver<Flown>>,
}

impl Shelf {
    /// An empty shelf for at most `slots_max` paths.
    pub(crate) fn new(store: &Arc<Store>, slots_max: usize) -> Arc<Self> {
        Arc::new(Self { store: Arc::clone(store), slots: Mutex::default(), slots_max })
    }

    /// What is known of `target` of a site.
    pub(crate) fn look(self: &Arc<Self>, site: &Site, target: &[u8]) -> Looked {
        let purges = site.purges.load();
        let name = head_name(site, target, &purges.known);
        let now_ms = monotonic_ms();
        let mut slots = self.lock();
        if slots.len() >= self.slots_max && !slots.contains_key(&name) {
            make_room(&mut slots, self.slots_max);
        }
        let slot = slots.entry(name).or_default();
        if let Some(kept) = slot.kept.take_if(|kept| kept.is_retired() || kept.is_purged()) {
            kept.drop_purged(&self.store);
        }
        if let Some(kept) = slot.kept.as_ref().filter(|kept| kept.is_current(now_ms, 0)) {
            kept.mark_used();
            return Looked::Resource(Arc::clone(kept));
        }
        if now_ms < slot.passes_until_ms {
            return Looked::Pass;
        }
        let usable = |kept: &&Arc<Resource>| {
            kept.freshness().is_some_and(|fresh| fresh.is_usable_while_asking(now_ms))
        };
        let usable = slot.kept.as_ref().filter(usable).map(Arc::clone);
        match (&slot.flight, usable) {
            (Some(_), Some(kept)) => Looked::Resource(kept),
            (Some(flight), None) => Looked::Wait(flight.clone()),
            (None, usable) => {
                let (sender, receiver) = watch::channel(Flown::Seeking);
                slot.flight = Some(receiver);
                let (shelf, kept) = (Arc::clone(self), slot.kept.clone());
                let flight = Flight { shelf, name, target: target.into(), kept, purges, sender };
                match usable {
                    Some(kept) => Looked::Stale(kept, flight),
                    None => Looked::Lead(flight),
                }
            }
        }
    }

    /// What another node is told of the head of this name: waits a little for an
    /// origin that is being asked, but for no other node, which may wait for us.
    pub(crate) async fn head_for_peer(&self, name: SegmentName) -> Result<Handed, Refusal> {
        let mut flight = {
            let slots = self.lock();
            let slot = slots.get(&name).ok_or(Refusal::NotThere)?;
            let unpurged = slot.kept.as_ref().filter(|kept| !kept.is_purged());
            if let Some(kept) = unpurged.filter(|kept| kept.is_current(monotonic_ms(), 0)) {
                return handed::of(kept).ok_or(Refusal::Mismatch);
            }
            slot.flight.as_ref().ok_or(Refusal::NotThere)?.clone()
        };
        // The lease that the other has heard of may still be on its way to us.
        let asks = flight.wait_for(|flown| !matches!(flown, Flown::Seeking));
        let asks = tokio::time::timeout(Duration::from_millis(LEASE_WAIT_MS), asks).await;
        drop(asks.ok().and_then(Result::ok).ok_or(Refusal::NotThere)?);
        let limit = Duration::from_millis(HEAD_WAIT_MS);
        match tokio::time::timeout(limit, landed(&mut flight)).await {
            Err(_) => Err(Refusal::Overloaded),
            Ok(None) => Err(Refusal::NotThere),
            Ok(Some(Landed::Resource(resource, _))) => {
                handed::of(&resource).ok_or(Refusal::Mismatch)
            }
            Ok(Some(_)) => Err(Refusal::OriginFailed),
        }
    }

    /// Takes a resource out because its bytes were found to differ.
    pub(crate) fn retire(&self, resource: &Resource) {
        resource.retire(&self.store);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SegmentName, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a flight ends; `None`: somewhere on the way.
pub(crate) async fn landed(flight: &mut watch::Receiver<Flown>) -> Option<Landed> {
    let flown = flight.wait_for(|flown| matches!(flown, Flown::Landed(_))).await.ok()?;
    match &*flown {
        Flown::Landed(landed) => Some(landed.clone()),
        Flown::Seeking | Flown::Asking => None,
    }
}

/// The right and the duty to ask for one path.
#[derive(Debug)]
pub(crate) struct Flight {
    shelf: Arc<Shelf>,
    name: SegmentName,
    target: Box<[u8]>,
    kept: Option<Arc<Resource>>,
    /// Known when it began.
    purges: Arc<Snapshot>,
    sender: watch::Sender<Flown>,
}

impl Flight {
    /// Path and query.
    pub(crate) fn target(&self) -> &[u8] {
        &self.target
    }

    /// What the head is called in the cluster.
    pub(crate) fn name(&self) -> SegmentName {
        self.name
    }

    /// Purges that what it brings is later than.
    pub(crate) fn purges(&self) -> &Snapshot {
        &self.purges
    }

    /// Says that from now on it waits for an origin alone.
    pub(crate) fn asks_origin(&self) {
        self.sender.send_replace(Flown::Asking);
    }

    /// What is there, to be asked about.
    pub(crate) fn kept(&self) -> Option<&Arc<Resource>> {
        self.kept.as_ref()
    }

    /// The end.
    pub(crate) fn land(self, landed: Landed) {
        let mut replaced = None;
        {
            let mut slots = self.shelf.lock();
            let slot = slots.entry(self.name).or_default();
            match &landed {
                Landed::Resource(resource, _) => {
                    replaced = slot.kept.replace(Arc::clone(resource));
                    slot.passes_until_ms = 0;
                }
                Landed::Passed => {
                    replaced = slot.kept.take();
                    slot.passes_until_ms = monotonic_ms() + PASS_MS;
                }
                Landed::Failed(_) => {}
            }
        }
        if let Some(replaced) = replaced
            && !matches!(&landed, Landed::Resource(new, _) if new.is_same_version(&replaced))
        {
            self.shelf.retire(&replaced);
        }
        self.sender.send_replace(Flown::Landed(landed));
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut slots = self.shelf.lock();
        if let Some(slot) = slots.get_mut(&self.name) {
            slot.flight = None;
            if slot.kept.is_none() && slot.passes_until_ms == 0 {
                slots.remove(&self.name);
            }
        }
    }
}

/// What the head of a target is called: as a segment that no object has. A purge
/// of the target gives it another name; one by tag, which only the head tells,
/// does not.
fn head_name(site: &Site, target: &[u8], known: &Known) -> SegmentName {
    let version = format!("head of site {}", site.index);
    let purged = site.purged(known, &String::from_utf8_lossy(target));
    site.object_name(target, version.as_bytes(), purged).segment(u32::MAX)
}

/// Forgets what was not used since the last time, then anything; but no
/// flight.
fn make_room(slots: &mut HashMap<SegmentName, Slot>, slots_max: usize) {
    let was_used = |slot: &Slot| slot.kept.as_ref().is_some_and(|kept| kept.take_used());
    slots.retain(|_, slot| was_used(slot) || slot.flight.is_some());
    let mut surplus = (slots.len() + 1).saturating_sub(slots_max * 7 / 8);
    slots.retain(|_, slot| {
        let keep = surplus == 0 || slot.flight.is_some();
        surplus = surplus.saturating_sub(usize::from(!keep));
        keep
    });
}
