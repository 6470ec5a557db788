//! The files and folders of other nodes at paths that this node does not have, shared by all
//! workers.
//!
//! There is one look-up at a time for a name, in a [`SingleFlight`]; it runs in its own task, so
//! that waiting requests do not depend on the client whose request started it.

use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use skep_segments::{Charge, FetchError, HeadAccount, SegmentStore};
use skep_serve::monotonic_ms;
use skep_wire::cache::part::FileHead;
use skep_wire::cache::{FilePlace, SegmentName};

use crate::backend::single_flight::{FlightRole, FlightWaiter, Flights, SingleFlight};
use crate::disk::DiskError;
use crate::limits::{ATTEMPTS_MAX, HEAD_SLOT_BYTES, PART_ABSENT_MS};
use crate::model::object::Variants;
use crate::model::purges::PurgeSnapshot;
use crate::model::resource::Resource;
use crate::model::route::Route;
use crate::peers::{PartSought, PeerClient};

/// The result of a look-up of a path on other nodes.
#[derive(Clone, Debug)]
pub(crate) enum Elsewhere {
    File(Arc<Resource>),
    /// A folder, requested without the slash at its end.
    Folder,
    /// No node has it.
    Nothing,
}

/// The outcome of a look-up.
type PartOutcome = Result<Elsewhere, FetchError>;

#[derive(Debug)]
pub(crate) struct PartHeadCache {
    store: Arc<SegmentStore>,
    account: Arc<HeadAccount>,
    slots: Mutex<HashMap<SegmentName, PartSlot>>,
    slots_max: usize,
    flights: Arc<Flights<SegmentName, PartOutcome>>,
}

#[derive(Debug)]
struct PartSlot {
    /// Charged for the slot and its contents.
    _charge: Charge,
    /// The result of the last look-up.
    known: Elsewhere,
    /// Time until which it may be used without another look-up.
    until_ms: u64,
}

/// The result of a look-up in the cache.
enum PartLookup {
    Known(Elsewhere),
    Wait(FlightWaiter<PartOutcome>),
    /// The caller must look it up.
    Lead(LookUp),
}

impl PartHeadCache {
    /// An empty cache for at most `slots_max` paths.
    pub(crate) fn new(store: &Arc<SegmentStore>, slots_max: usize) -> Arc<Self> {
        let (store, account) = (Arc::clone(store), store.account());
        let flights = Flights::new();
        Arc::new(Self { store, account, slots: Mutex::default(), slots_max, flights })
    }

    /// The file or folder of other nodes at `relative` of a route.
    pub(crate) async fn find(
        self: &Arc<Self>,
        peer_client: &Rc<PeerClient>,
        route: &Arc<Route>,
        relative: &[u8],
    ) -> Result<Elsewhere, FetchError> {
        let name = route.part_head_name(relative);
        for _ in 0..ATTEMPTS_MAX {
            let mut flight = match self.look(name) {
                PartLookup::Known(known) => return Ok(known),
                PartLookup::Wait(flight) => flight,
                PartLookup::Lead(look_up) => {
                    let waiter = look_up.flight.waiter();
                    let (peer_client, route) = (Rc::clone(peer_client), Arc::clone(route));
                    let relative = relative.to_vec();
                    tokio::task::spawn_local(async move {
                        look_up.run(&peer_client, &route, &relative).await;
                    });
                    waiter
                }
            };
            // The worker of the flight may have ended.
            if let Some(outcome) = flight.outcome().await {
                return outcome;
            }
        }
        Err(FetchError::Abandoned)
    }

    fn look(self: &Arc<Self>, name: SegmentName) -> PartLookup {
        let now_ms = monotonic_ms();
        let mut slots = self.lock();
        let is_out = |slot: &PartSlot| slot.known.is_retired() || slot.known.is_purged(&self.store);
        if slots.get(&name).is_some_and(is_out) {
            slots.remove(&name);
        }
        let slot = slots.get(&name);
        if let Some(slot) =
            slot.filter(|slot| now_ms < slot.until_ms && !slot.known.is_expired(now_ms))
        {
            return PartLookup::Known(slot.known.clone());
        }
        // Joined while the slots are locked: an outcome must not exist without being in its slot.
        match self.flights.join(&name) {
            FlightRole::Wait(flight) => PartLookup::Wait(flight),
            FlightRole::Lead(flight) => {
                let known = slot.map(|slot| slot.known.clone());
                PartLookup::Lead(LookUp { heads: Arc::clone(self), known, flight })
            }
        }
    }

    /// Removes all entries. Look-ups in progress continue.
    pub(crate) fn forget_all(&self) {
        drop(std::mem::take(&mut *self.lock()));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SegmentName, PartSlot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The exclusive right and the duty to look up one name.
struct LookUp {
    heads: Arc<PartHeadCache>,
    /// The result of the last look-up.
    known: Option<Elsewhere>,
    flight: SingleFlight<SegmentName, PartOutcome>,
}

impl LookUp {
    async fn run(self, peer_client: &PeerClient, route: &Arc<Route>, relative: &[u8]) {
        let (began_ms, purges) = (monotonic_ms(), route.purges.load());
        let place = FilePlace { route: route.short_key, path: relative.to_vec() };
        let (found, fresh_ms) = match peer_client.seek_part(*self.flight.key(), place).await {
            PartSought::Found { head: FileHead::File(versions), home, fresh_ms } => {
                let known = purges.hard();
                let variants = Variants::elsewhere(route, relative, &versions, home, known);
                (Ok(self.file(route, variants, began_ms + fresh_ms, &purges)), fresh_ms)
            }
            PartSought::Found { head: FileHead::Folder, .. } => {
                (Ok(Elsewhere::Folder), PART_ABSENT_MS)
            }
            PartSought::Found { head: FileHead::Forbidden, .. } => {
                (Err(DiskError::Forbidden.into()), 0)
            }
            PartSought::Nobody => (Ok(Elsewhere::Nothing), PART_ABSENT_MS),
            PartSought::Unreachable => (Err(FetchError::NodeAway), 0),
        };
        if let Ok(found) = &found {
            self.keep(found, began_ms + fresh_ms);
        }
        self.flight.land(found);
    }

    /// The file in this version: the known resource if it is the same, so that references to it
    /// remain valid.
    fn file(
        &self,
        route: &Arc<Route>,
        variants: Variants,
        until_ms: u64,
        purges: &PurgeSnapshot,
    ) -> Elsewhere {
        let names = |variants: &Variants| {
            let names = variants.iter().map(|object| (object.bytes(), object.segment_name(0)));
            names.collect::<Vec<_>>()
        };
        match &self.known {
            Some(Elsewhere::File(known))
                if !known.is_retired() && names(&known.variants) == names(&variants) =>
            {
                known.renew(until_ms);
                Elsewhere::File(Arc::clone(known))
            }
            _ => Elsewhere::File(Arc::new(Resource::elsewhere(route, variants, until_ms, purges))),
        }
    }

    /// Stores the result; the previous one is not served any more.
    fn keep(&self, found: &Elsewhere, until_ms: u64) {
        let heads = &self.heads;
        let known_bytes = match found {
            Elsewhere::File(file) => file.memory_bytes(),
            Elsewhere::Folder | Elsewhere::Nothing => 0,
        };
        let _charge = heads.account.charge(HEAD_SLOT_BYTES + known_bytes);
        let replaced = {
            let mut slots = heads.lock();
            let is_full = slots.len() >= heads.slots_max || heads.account.is_full();
            if is_full && !slots.contains_key(self.flight.key()) {
                make_room(&mut slots, heads.slots_max, monotonic_ms(), &heads.account);
            }
            let slot = PartSlot { _charge, known: found.clone(), until_ms };
            slots.insert(*self.flight.key(), slot)
        };
        self.heads.store.fit();
        if let Some(PartSlot { known: Elsewhere::File(old), .. }) = replaced
            && !matches!(found, Elsewhere::File(new) if Arc::ptr_eq(new, &old))
        {
            old.retire(&self.heads.store);
        }
    }
}

impl Elsewhere {
    fn is_retired(&self) -> bool {
        matches!(self, Self::File(resource) if resource.is_retired())
    }

    /// Whether its node must be asked again before the time of its slot, because of a soft purge.
    fn is_expired(&self, now_ms: u64) -> bool {
        matches!(self, Self::File(resource) if resource.is_expired(now_ms))
    }

    /// Whether it was purged; if so, it is taken out of use.
    fn is_purged(&self, store: &SegmentStore) -> bool {
        match self {
            Self::File(resource) if resource.is_purged() => {
                resource.drop_purged(store);
                true
            }
            _ => false,
        }
    }
}

/// Evicts expired entries first, then arbitrary ones.
fn make_room(
    slots: &mut HashMap<SegmentName, PartSlot>,
    slots_max: usize,
    now_ms: u64,
    account: &HeadAccount,
) {
    slots.retain(|_, slot| now_ms < slot.until_ms);
    let mut surplus = (slots.len() + 1).saturating_sub(slots_max * 7 / 8);
    slots.retain(|_, _| {
        let keep = surplus == 0 && account.is_roomy();
        surplus = surplus.saturating_sub(usize::from(!keep));
        keep
    });
    if slots.capacity() / 4 > slots.len() {
        slots.shrink_to_fit();
    }
}
