//! Slots for the state of heads, by their names in the cluster, in bounded memory.
//!
//! Invariant: the removal of every name is reported to coordinators.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use skep_segments::{Charge, HeadAccount, SegmentStore};
use skep_wire::cache::SegmentName;

use crate::limits::HEAD_SLOT_BYTES;

/// The state of one name.
pub(crate) trait HeadSlot {
    /// An empty slot, with its charge.
    fn empty(charge: Charge) -> Self;

    /// Whether it was used since the last call.
    fn take_used(&self) -> bool;
}

#[derive(Debug)]
pub(crate) struct HeadSlots<S> {
    store: Arc<SegmentStore>,
    account: Arc<HeadAccount>,
    slots: Mutex<HashMap<SegmentName, S>>,
    slots_max: usize,
}

impl<S: HeadSlot> HeadSlots<S> {
    /// No slots, and room for at most `slots_max`.
    pub(crate) fn new(store: &Arc<SegmentStore>, slots_max: usize) -> Self {
        let (store, account) = (Arc::clone(store), store.account());
        Self { store, account, slots: Mutex::default(), slots_max }
    }

    pub(crate) fn store(&self) -> &Arc<SegmentStore> {
        &self.store
    }

    /// Locks all slots. The lock determines which changes others see as one.
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<SegmentName, S>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Charges for a slot with `kept_bytes` of contents.
    pub(crate) fn charge(&self, kept_bytes: usize) -> Charge {
        self.account.charge(HEAD_SLOT_BYTES + kept_bytes)
    }

    /// Changes the slot of `name`; evicts others if there is no room for a new one.
    pub(crate) fn change<R>(&self, name: SegmentName, change: impl FnOnce(&mut S) -> R) -> R {
        let mut slots = self.lock();
        let is_full = slots.len() >= self.slots_max || self.account.is_full();
        if is_full && !slots.contains_key(&name) {
            let gone = make_room(&mut slots, self.slots_max, &self.account);
            self.store.withdraw(gone.into_iter());
        }
        change(slots.entry(name).or_insert_with(|| S::empty(self.charge(0))))
    }

    /// Removes the slot of `name`.
    pub(crate) fn remove(&self, name: SegmentName) {
        let gone = self.lock().remove(&name).map(|_| name);
        self.store.withdraw(gone.into_iter());
    }

    /// Removes all slots.
    pub(crate) fn forget_all(&self) {
        let gone = std::mem::take(&mut *self.lock());
        self.store.withdraw(gone.into_keys());
    }
}

/// Evicts some entries, those not used since the last call first. Returns the evicted ones.
fn make_room<S: HeadSlot>(
    slots: &mut HashMap<SegmentName, S>,
    slots_max: usize,
    account: &HeadAccount,
) -> Vec<SegmentName> {
    let mut surplus = (slots.len() + 1).saturating_sub(slots_max * 7 / 8);
    let mut gone = Vec::new();
    for spares_used in [true, false] {
        let is_to_go = |slot: &S, surplus| {
            let is_crowded = surplus > 0 || !account.is_roomy();
            is_crowded && (!spares_used || !slot.take_used())
        };
        slots.retain(|name, slot| {
            let goes = is_to_go(slot, surplus);
            surplus = surplus.saturating_sub(usize::from(goes));
            goes.then(|| gone.push(*name));
            !goes
        });
    }
    if slots.capacity() / 4 > slots.len() {
        slots.shrink_to_fit();
    }
    gone
}
