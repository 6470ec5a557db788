//! The shelf: what each path of the sites with origins led to, for all workers.
//!
//! A flight is one request to an origin for a head. While it is under way all
//! others wait for its end, which comes: landed, or dropped, which they are told.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use skep_serve::monotonic_ms;
use skep_telemetry::CacheResult;
use tokio::sync::watch;

use crate::catalog::Resource;
use crate::limits::PASS_MS;
use crate::store::Store;

/// Site and path with query.
type Key = (usize, Box<[u8]>);

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

/// What is known of a path.
pub(crate) enum Looked {
    /// It may be served.
    Resource(Arc<Resource>),
    /// It may be served, but the caller must ask as well.
    Stale(Arc<Resource>, Flight),
    /// Its answers are not kept.
    Pass,
    /// Somebody is asking.
    Wait(watch::Receiver<Option<Landed>>),
    /// The caller must ask.
    Lead(Flight),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Shelf {
    store: Arc<Store>,
    slots: Mutex<HashMap<Key, Slot>>,
    slots_max: usize,
}

#[derive(Debug, Default)]
struct Slot {
    kept: Option<Arc<Resource>>,
    passes_until_ms: u64,
    flight: Option<watch::Receiver<Option<Landed>>>,
}

impl Shelf {
    /// An empty shelf for at most `slots_max` paths.
    pub(crate) fn new(store: &Arc<Store>, slots_max: usize) -> Arc<Self> {
        Arc::new(Self { store: Arc::clone(store), slots: Mutex::default(), slots_max })
    }

    /// What is known of `target` of a site.
    pub(crate) fn look(self: &Arc<Self>, site: usize, target: &[u8]) -> Looked {
        let now_ms = monotonic_ms();
        let mut slots = self.lock();
        let key = (site, Box::from(target));
        if slots.len() >= self.slots_max && !slots.contains_key(&key) {
            make_room(&mut slots, self.slots_max);
        }
        let slot = slots.entry(key.clone()).or_default();
        slot.kept.take_if(|kept| kept.is_retired());
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
                let (sender, receiver) = watch::channel(None);
                slot.flight = Some(receiver);
                let flight =
                    Flight { shelf: Arc::clone(self), key, kept: slot.kept.clone(), sender };
                match usable {
                    Some(kept) => Looked::Stale(kept, flight),
                    None => Looked::Lead(flight),
                }
            }
        }
    }

    /// Takes a resource out because its bytes were found to differ.
    pub(crate) fn retire(&self, resource: &Resource) {
        resource.retire(&self.store);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right and the duty to ask for one path.
#[derive(Debug)]
pub(crate) struct Flight {
    shelf: Arc<Shelf>,
    key: Key,
    kept: Option<Arc<Resource>>,
    sender: watch::Sender<Option<Landed>>,
}

impl Flight {
    /// Path and query.
    pub(crate) fn target(&self) -> &[u8] {
        &self.key.1
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
            let slot = slots.entry(self.key.clone()).or_default();
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
        self.sender.send_replace(Some(landed));
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut slots = self.shelf.lock();
        if let Some(slot) = slots.get_mut(&self.key) {
            slot.flight = None;
            if slot.kept.is_none() && slot.passes_until_ms == 0 {
                slots.remove(&self.key);
            }
        }
    }
}

/// Forgets what was not used since the last time, then anything; but no
/// flight.
fn make_room(slots: &mut HashMap<Key, Slot>, slots_max: usize) {
    let was_used = |slot: &Slot| slot.kept.as_ref().is_some_and(|kept| kept.take_used());
    slots.retain(|_, slot| was_used(slot) || slot.flight.is_some());
    let mut surplus = (slots.len() + 1).saturating_sub(slots_max * 7 / 8);
    slots.retain(|_, slot| {
        let keep = surplus == 0 || slot.flight.is_some();
        surplus = surplus.saturating_sub(usize::from(!keep));
        keep
    });
}
