//! The holders of each segment: exact, compact, in tables that are swept and grow one at a time.
//!
//! A holder gets a new number whenever a node begins an inventory. The holdings of a retired
//! number are invisible to lookups at once, and are freed after a round
//! of [`Directory::sweep`]; only then the number is reused.
//!
//! Invariants: holdings <= the maximum; each holder's bytes are the sum of its
//! entries; an entry has at least one holder.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Slot;
use skep_wire::cache::SegmentName;

use super::holders::{HOLDER_MAX, Holder, HolderLists, Holders};
use crate::limits::SHARDS;

#[derive(Debug)]
pub(crate) struct Directory {
    shards: Vec<HashTable<Entry>>,
    crowds: HolderLists,
    accounts: Vec<HolderUsage>,
    free: Vec<Holder>,
    /// Retired numbers that wait for the end of a round of sweeping, each with the first shard that
    /// was swept after it was retired.
    retired: Vec<(Holder, u64)>,
    /// Shards swept so far.
    swept: u64,
    entries: usize,
    holdings: usize,
    holdings_max: usize,
    forgotten: u64,
}

/// 28 bytes for up to four holders.
#[derive(Debug)]
struct Entry {
    name: SegmentName,
    bytes: u32,
    holders: Holders,
}

/// Usage of a holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HolderUsage {
    pub(crate) segments: u64,
    pub(crate) bytes: u64,
    /// Bytes of segments that other holders have, too.
    pub(crate) shared_bytes: u64,
    /// Of these, bytes of redundant replicas: another holder has had them for longer.
    pub(crate) redundant_bytes: u64,
    is_retired: bool,
}

impl Directory {
    pub(crate) fn new(holdings_max: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| HashTable::new()).collect(),
            crowds: HolderLists::default(),
            accounts: Vec::new(),
            free: Vec::new(),
            retired: Vec::new(),
            swept: 0,
            entries: 0,
            holdings: 0,
            holdings_max,
            forgotten: 0,
        }
    }

    /// A number for a node that begins an inventory.
    pub(crate) fn new_holder(&mut self) -> Holder {
        if self.free.is_empty() && self.accounts.len() > usize::from(HOLDER_MAX) {
            // All numbers were used within one round of sweeping: complete the round now.
            (0..SHARDS).for_each(|_| self.sweep());
        }
        if let Some(holder) = self.free.pop() {
            self.accounts[usize::from(holder)] = HolderUsage::default();
            return holder;
        }
        self.accounts.push(HolderUsage::default());
        (self.accounts.len() - 1) as Holder
    }

    /// Retires a holder: its holdings are no longer visible.
    pub(crate) fn retire(&mut self, holder: Holder) {
        self.accounts[usize::from(holder)].is_retired = true;
        self.retired.push((holder, self.swept));
    }

    /// Usage of a holder.
    pub(crate) fn account(&self, holder: Holder) -> HolderUsage {
        self.accounts[usize::from(holder)]
    }

    /// The holders of `name`, without retired ones.
    pub(crate) fn holders(&self, name: &SegmentName) -> impl Iterator<Item = Holder> {
        let entry = self.shards[shard_of(name)].find(name.bits(), |entry| entry.name == *name);
        let holders = entry.map_or(&[][..], |entry| self.crowds.all(&entry.holders));
        holders.iter().copied().filter(|&holder| !self.accounts[usize::from(holder)].is_retired)
    }

    /// Adds `name` to `holder`. Forgets another entry if there is no room.
    pub(crate) fn add(&mut self, name: SegmentName, bytes: u32, holder: Holder) {
        if self.holdings >= self.holdings_max {
            self.forget_one_near(&name);
        }
        self.insert(name, bytes, holder);
    }

    /// Adds `name` to `holder` if there is room; returns whether it is listed now.
    pub(crate) fn add_if_room(&mut self, name: SegmentName, bytes: u32, holder: Holder) -> bool {
        let has_room = self.holdings < self.holdings_max;
        if has_room {
            self.insert(name, bytes, holder);
        }
        has_room || self.holders(&name).any(|it| it == holder)
    }

    fn insert(&mut self, name: SegmentName, bytes: u32, holder: Holder) {
        let hash = |entry: &Entry| entry.name.bits();
        let shard = &mut self.shards[shard_of(&name)];
        match shard.entry(name.bits(), |entry| entry.name == name, hash) {
            Slot::Vacant(vacant) => {
                vacant.insert(Entry { name, bytes, holders: Holders::one(holder) });
                self.entries += 1;
                self.accounts[usize::from(holder)].gain(bytes);
            }
            Slot::Occupied(mut occupied) => {
                let entry = occupied.get_mut();
                let before = self.crowds.all(&entry.holders);
                if before.contains(&holder) {
                    return;
                }
                if let [only] = *before {
                    self.accounts[usize::from(only)].shared_bytes += u64::from(entry.bytes);
                }
                let account = &mut self.accounts[usize::from(holder)];
                account.gain(entry.bytes);
                account.shared_bytes += u64::from(entry.bytes);
                account.redundant_bytes += u64::from(entry.bytes);
                self.crowds.push(&mut entry.holders, holder);
            }
        }
        self.holdings += 1;
    }

    /// Removes `name` from `holder`; returns whether it was listed.
    pub(crate) fn remove(&mut self, name: &SegmentName, holder: Holder) -> bool {
        let shard = &mut self.shards[shard_of(name)];
        let found = shard.find_entry(name.bits(), |entry| entry.name == *name);
        let Ok(mut occupied) = found else { return false };
        let entry = occupied.get_mut();
        if !self.crowds.all(&entry.holders).contains(&holder) {
            return false;
        }
        let bytes = entry.bytes;
        drop_holder(&mut self.crowds, &mut self.accounts, &mut entry.holders, bytes, holder);
        self.holdings -= 1;
        if self.crowds.all(&entry.holders).is_empty() {
            occupied.remove();
            self.entries -= 1;
        }
        true
    }

    /// Removes the holdings of retired holders from the next shard, if there are any.
    pub(crate) fn sweep(&mut self) {
        if self.retired.is_empty() {
            return;
        }
        let Self { shards, crowds, accounts, entries, holdings, .. } = self;
        let shard = &mut shards[(self.swept % SHARDS as u64) as usize];
        shard.retain(|entry| {
            while let Some(gone) = first_retired(crowds.all(&entry.holders), accounts) {
                drop_holder(crowds, accounts, &mut entry.holders, entry.bytes, gone);
                *holdings -= 1;
            }
            let is_held = !crowds.all(&entry.holders).is_empty();
            *entries -= usize::from(!is_held);
            is_held
        });
        shard.shrink_to(shard.len() * 2, |entry| entry.name.bits());
        self.swept += 1;
        let (swept, free) = (self.swept, &mut self.free);
        let accounts = &self.accounts;
        self.retired.retain(|&(holder, since)| {
            let is_clean = swept - since >= SHARDS as u64;
            if is_clean {
                debug_assert_eq!(accounts[usize::from(holder)].segments, 0);
                free.push(holder);
            }
            !is_clean
        });
    }

    /// Segments in the directory.
    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    /// The sum over all segments of their holders, including those still to be swept.
    pub(crate) fn holdings(&self) -> usize {
        self.holdings
    }

    /// Holdings dropped for lack of room.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Memory of the directory, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let shards: usize = self.shards.iter().map(HashTable::allocation_size).sum();
        shards
            + self.crowds.memory_bytes()
            + self.accounts.capacity() * size_of::<HolderUsage>()
            + SHARDS * size_of::<HashTable<Entry>>()
    }

    /// Makes room: forgets an entry of the shard of `name`, or of the next shard that is not empty.
    fn forget_one_near(&mut self, name: &SegmentName) {
        let first = shard_of(name);
        let shards = (first..SHARDS).chain(0..first);
        let Some(shard) = shards.into_iter().find(|&shard| !self.shards[shard].is_empty()) else {
            return;
        };
        let table = &mut self.shards[shard];
        let buckets = table.num_buckets();
        let start = name.bits() as usize % buckets;
        let mut order = (start..buckets).chain(0..start);
        let Some(bucket) = order.find(|&bucket| table.get_bucket(bucket).is_some()) else { return };
        let Ok(occupied) = table.get_bucket_entry(bucket) else { return };
        let (mut entry, _) = occupied.remove();
        while let Some(&holder) = self.crowds.all(&entry.holders).first() {
            let (crowds, accounts) = (&mut self.crowds, &mut self.accounts);
            drop_holder(crowds, accounts, &mut entry.holders, entry.bytes, holder);
            self.holdings -= 1;
            self.forgotten += 1;
        }
        self.entries -= 1;
    }
}

impl HolderUsage {
    fn gain(&mut self, bytes: u32) {
        self.segments += 1;
        self.bytes += u64::from(bytes);
    }
}

fn first_retired(holders: &[Holder], accounts: &[HolderUsage]) -> Option<Holder> {
    holders.iter().copied().find(|&holder| accounts[usize::from(holder)].is_retired)
}

/// Removes `holder`, which is in the list, from `holders`.
fn drop_holder(
    crowds: &mut HolderLists,
    accounts: &mut [HolderUsage],
    holders: &mut Holders,
    bytes: u32,
    holder: Holder,
) {
    let bytes = u64::from(bytes);
    let was_first = crowds.all(holders).first() == Some(&holder);
    crowds.remove(holders, holder);
    let left = crowds.all(holders);
    let account = &mut accounts[usize::from(holder)];
    account.segments -= 1;
    account.bytes -= bytes;
    if !left.is_empty() {
        account.shared_bytes -= bytes;
    }
    // The oldest remaining replica becomes the primary one.
    let not_redundant = if was_first { left.first() } else { Some(&holder) };
    if let Some(&holder) = not_redundant {
        accounts[usize::from(holder)].redundant_bytes -= bytes;
    }
    if let [only] = *left {
        accounts[usize::from(only)].shared_bytes -= bytes;
    }
}

/// The shard of a name. Shard sizes are spread between one and two times the smallest (evenly on a
/// logarithmic scale), so that shards double one after the other and not all at once: neither
/// latency nor memory jumps.
fn shard_of(name: &SegmentName) -> usize {
    // Uses other bits than those that place the name within the shard. The parabola approximates
    // log2(1 + x) to within 0.01.
    let x = u64::from(u16::from_le_bytes([name.0[14], name.0[15]]));
    ((x * (88_244 - ((22_708 * x) >> 16))) >> 24) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_shard_and_all_shards_have_names() {
        let shard = |x: u16| {
            let mut name = SegmentName([0; 16]);
            name.0[14..].copy_from_slice(&x.to_le_bytes());
            shard_of(&name)
        };
        let mut names = vec![0; SHARDS];
        (0..=u16::MAX).for_each(|x| names[shard(x)] += 1);
        assert!(names.iter().all(|&count| (185..=395).contains(&count)), "{names:?}");
    }
}
