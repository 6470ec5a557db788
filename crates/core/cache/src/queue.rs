//! FIFO queues whose links live in a shared slab, so that removing an item from
//! the middle, or moving it to another queue, takes constant time.
//!
//! Invariants: an item is in at most one queue; a queue's bytes and length are
//! those of its items.

use slab::Slab;

use crate::limits::{TABLE_MIN, TABLE_SPARSE};

/// Index of an item in its arena.
pub(crate) type Index = u32;

/// Storage for the items of one or more queues.
pub(crate) type Arena<T> = Slab<Linked<T>>;

/// No item: the end of a queue. Arenas stay smaller: this many items would take 200 GiB for their
/// links and keys alone.
const NIL: Index = Index::MAX;

/// An item with its links.
#[derive(Debug)]
pub(crate) struct Linked<T> {
    pub(crate) item: T,
    /// Its share of the queue's bytes.
    pub(crate) bytes: u64,
    older: Index,
    newer: Index,
}

#[derive(Debug)]
pub(crate) struct Queue {
    oldest: Index,
    newest: Index,
    len: usize,
    bytes: u64,
}

/// Stores an item in the arena, without a queue.
pub(crate) fn store<T>(arena: &mut Arena<T>, item: T, bytes: u64) -> Index {
    let index = arena.insert(Linked { item, bytes, older: NIL, newer: NIL });
    assert!(index < NIL as usize, "an arena holds fewer than 2^32 items");
    index as Index
}

/// Whether most of an arena's memory belonged to items that were removed.
pub(crate) fn is_sparse<T>(arena: &Arena<T>) -> bool {
    arena.capacity() > TABLE_MIN.max(arena.len() * TABLE_SPARSE)
}

impl Queue {
    pub(crate) fn new() -> Self {
        Self { oldest: NIL, newest: NIL, len: 0, bytes: 0 }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn oldest(&self) -> Option<Index> {
        (self.oldest != NIL).then_some(self.oldest)
    }

    /// Appends an item that is in no queue.
    pub(crate) fn push<T>(&mut self, arena: &mut Arena<T>, index: Index) {
        let item = &mut arena[index as usize];
        item.older = self.newest;
        item.newer = NIL;
        self.bytes += item.bytes;
        self.len += 1;
        match self.newest {
            NIL => self.oldest = index,
            newest => arena[newest as usize].newer = index,
        }
        self.newest = index;
    }

    /// Removes an item from this queue.
    pub(crate) fn unlink<T>(&mut self, arena: &mut Arena<T>, index: Index) {
        let Linked { older, newer, bytes, .. } = arena[index as usize];
        match older {
            NIL => self.oldest = newer,
            older => arena[older as usize].newer = newer,
        }
        match newer {
            NIL => self.newest = older,
            newer => arena[newer as usize].older = older,
        }
        self.bytes -= bytes;
        self.len -= 1;
    }

    /// Moves its items to another arena, preserving their order.
    pub(crate) fn move_to<T>(&mut self, old: &mut Arena<T>, new: &mut Arena<T>) {
        let mut next = std::mem::replace(self, Self::new()).oldest;
        while next != NIL {
            let Linked { item, bytes, newer, .. } = old.remove(next as usize);
            let index = store(new, item, bytes);
            self.push(new, index);
            next = newer;
        }
    }

    /// Its items from newest to oldest.
    pub(crate) fn iter<'a, T>(
        &self,
        arena: &'a Arena<T>,
    ) -> impl Iterator<Item = (Index, &'a T)> + use<'a, T> {
        walk(arena, self.newest, |linked| linked.older)
    }

    /// Its items from oldest to newest.
    pub(crate) fn iter_oldest<'a, T>(
        &self,
        arena: &'a Arena<T>,
    ) -> impl Iterator<Item = (Index, &'a T)> + use<'a, T> {
        walk(arena, self.oldest, |linked| linked.newer)
    }
}

fn walk<T>(
    arena: &Arena<T>,
    mut next: Index,
    step: impl Fn(&Linked<T>) -> Index,
) -> impl Iterator<Item = (Index, &T)> {
    std::iter::from_fn(move || {
        let index = (next != NIL).then_some(next)?;
        let linked = &arena[index as usize];
        next = step(linked);
        Some((index, &linked.item))
    })
}
