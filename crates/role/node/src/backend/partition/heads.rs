//! What other nodes have at the paths that this one does not, for all workers.
//!
//! One look-up at a time for a name; it runs in a task of its own, so that those
//! who wait do not depend on the client that came first.

use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use skep_segments::{Charge, FetchError, HeadAccount, SegmentStore};
use skep_serve::monotonic_ms;
use skep_wire::cache::SegmentName;
use skep_wire::cache::part::FileHead;
use tokio::sync::watch;

use crate::disk::DiskError;
use crate::limits::{ATTEMPTS_MAX, HEAD_SLOT_BYTES, PART_ABSENT_MS};
use crate::model::object::Variants;
use crate::model::purges::Snapshot;
use crate::model::resource::Resource;
use crate::model::route::Route;
use crate::peers::{PartSought, PeerClient};

/// What another node has at a path.
#[derive(Clone, Debug)]
pub(crate) enum Elsewhere {
    File(Arc<Resource>),
    /// A folder, asked for without its slash.
    Folder,
    /// Nothing: no node has it.
    Nothing,
}

/// The outcome of a look-up; `None`: there is none yet.
type PartOutcome = Option<Result<Elsewhere, FetchError>>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Heads {
    store: Arc<SegmentStore>,
    account: Arc<HeadAccount>,
    slots: Mutex<HashMap<SegmentName, Slot>>,
    slots_max: usize,
}

#[derive(Debug)]
struct Slot {
    /// For the slot and what is known.
    charge: Charge,
    /// What was found last, and until when it may be used without asking.
    known: Option<(Elsewhere, u64)>,
    look_up: Option<watch::Receiver<PartOutcome>>,
}

/// What is known of a name.
enum PartLookup {
    Known(Elsewhere),
    Wait(watch::Receiver<PartOutcome>),
    /// The caller must look.
    Lead(LookUp),
}

impl Slot {
    fn new(account: &Arc<HeadAccount>) -> Self {
        Self { charge: account.charge(HEAD_SLOT_BYTES), known: None, look_up: None }
    }
}

impl Heads {
    /// Nothing known yet, of at most `slots_max` paths.
    pub(crate) fn new(store: &Arc<SegmentStore>, slots_max: usize) -> Arc<Self> {
        let (store, account) = (Arc::clone(store), store.account());
        Arc::new(Self { store, account, slots: Mutex::default(), slots_max })
    }

    /// What other nodes have at `relative` of a route.
    pub(crate) async fn find(
        self: &Arc<Self>,
        peer_client: &Rc<PeerClient>,
        route: &Arc<Route>,
        relative: &[u8],
    ) -> Result<Elsewhere, FetchError> {
        let name = route.part_head_name(relative);
        for _ in 0..ATTEMPTS_MAX {
            let mut receiver = match self.look(name) {
                PartLookup::Known(known) => return Ok(known),
                PartLookup::Wait(receiver) => receiver,
                PartLookup::Lead(look_up) => {
                    let receiver = look_up.sender.subscribe();
                    let (peer_client, route) = (Rc::clone(peer_client), Arc::clone(route));
                    let relative = relative.to_vec();
                    tokio::task::spawn_local(async move {
                        look_up.run(&peer_client, &route, &relative).await;
                    });
                    receiver
                }
            };
            // Its worker may have ended.
            if let Ok(outcome) = receiver.wait_for(Option::is_some).await
                && let Some(outcome) = &*outcome
            {
                return outcome.clone();
            }
        }
        Err(FetchError::Peer)
    }

    fn look(self: &Arc<Self>, name: SegmentName) -> PartLookup {
        let now_ms = monotonic_ms();
        let mut slots = self.lock();
        let is_full = slots.len() >= self.slots_max || self.account.is_full();
        if is_full && !slots.contains_key(&name) {
            make_room(&mut slots, self.slots_max, now_ms, &self.account);
        }
        let slot = slots.entry(name).or_insert_with(|| Slot::new(&self.account));
        slot.known.take_if(|(known, _)| known.is_retired() || known.is_purged(&self.store));
        if let Some((known, _)) = slot.known.as_ref().filter(|(_, until_ms)| now_ms < *until_ms) {
            return PartLookup::Known(known.clone());
        }
        if let Some(receiver) = &slot.look_up {
            return PartLookup::Wait(receiver.clone());
        }
        let (sender, receiver) = watch::channel(None);
        slot.look_up = Some(receiver);
        let known = slot.known.as_ref().map(|(known, _)| known.clone());
        PartLookup::Lead(LookUp { heads: Arc::clone(self), name, known, sender })
    }

    /// Forgets all but who is looking.
    pub(crate) fn forget_all(&self) {
        let mut slots = self.lock();
        slots.retain(|_, slot| slot.look_up.is_some());
        slots.shrink_to_fit();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SegmentName, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right and the duty to look one name up.
struct LookUp {
    heads: Arc<Heads>,
    name: SegmentName,
    /// What was found the last time.
    known: Option<Elsewhere>,
    sender: watch::Sender<PartOutcome>,
}

impl LookUp {
    async fn run(self, peer_client: &PeerClient, route: &Arc<Route>, relative: &[u8]) {
        let (began_ms, purges) = (monotonic_ms(), route.purges.load());
        let (found, fresh_ms) = match peer_client.seek_part(self.name).await {
            PartSought::Found { head: FileHead::File(versions), home, fresh_ms } => {
                let known = &purges.known;
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
            PartSought::Unreachable => (Err(FetchError::Peer), 0),
        };
        if let Ok(found) = &found {
            self.keep(found, began_ms + fresh_ms);
        }
        self.sender.send_replace(Some(found));
    }

    /// The file in this version: that of before if it was the same, so that what
    /// points to it remains useful.
    fn file(
        &self,
        route: &Arc<Route>,
        variants: Variants,
        until_ms: u64,
        purges: &Snapshot,
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

    /// Keeps what was found; what it takes the place of is not served any more.
    fn keep(&self, found: &Elsewhere, until_ms: u64) {
        let replaced = {
            let known_bytes = match found {
                Elsewhere::File(file) => file.memory_bytes(),
                Elsewhere::Folder | Elsewhere::Nothing => 0,
            };
            let mut slots = self.heads.lock();
            let slot = slots.entry(self.name).or_insert_with(|| Slot::new(&self.heads.account));
            slot.charge = self.heads.account.charge(HEAD_SLOT_BYTES + known_bytes);
            slot.known.replace((found.clone(), until_ms))
        };
        self.heads.store.fit();
        if let Some((Elsewhere::File(old), _)) = replaced
            && !matches!(found, Elsewhere::File(new) if Arc::ptr_eq(new, &old))
        {
            old.retire(&self.heads.store);
        }
    }
}

impl Drop for LookUp {
    fn drop(&mut self) {
        let mut slots = self.heads.lock();
        if let Some(slot) = slots.get_mut(&self.name) {
            slot.look_up = None;
            if slot.known.is_none() {
                slots.remove(&self.name);
            }
        }
    }
}

impl Elsewhere {
    fn is_retired(&self) -> bool {
        matches!(self, Self::File(resource) if resource.is_retired())
    }

    /// Whether it was purged; then it is out of use.
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

/// Forgets what would have to be asked for anyway, then anything; but no look-up
/// that somebody waits for.
fn make_room(
    slots: &mut HashMap<SegmentName, Slot>,
    slots_max: usize,
    now_ms: u64,
    account: &HeadAccount,
) {
    let is_known =
        |slot: &Slot| slot.known.as_ref().is_some_and(|(_, until_ms)| now_ms < *until_ms);
    slots.retain(|_, slot| slot.look_up.is_some() || is_known(slot));
    let mut surplus = (slots.len() + 1).saturating_sub(slots_max * 7 / 8);
    slots.retain(|_, slot| {
        let keep = (surplus == 0 && account.is_roomy()) || slot.look_up.is_some();
        surplus = surplus.saturating_sub(usize::from(!keep));
        keep
    });
    if slots.capacity() / 4 > slots.len() {
        slots.shrink_to_fit();
    }
}
