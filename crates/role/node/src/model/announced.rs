//! The files and folders that this node announces, by head name, and the changes that
//! coordinators have yet to receive.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use skep_wire::cache::SegmentName;
use skep_wire::limits::HELD_PER_MESSAGE_MAX;

/// The place of an announced file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AnnouncedPath {
    /// The route's key.
    pub(crate) route: u64,
    /// Path below its root.
    pub(crate) relative: Box<[u8]>,
}

/// The term of one walker; reports of walkers of earlier terms are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WalkTerm(u64);

/// Added and removed names, as many as one message holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnnouncedChanges {
    pub(crate) added: Vec<SegmentName>,
    pub(crate) removed: Vec<SegmentName>,
}

/// Outlives a config: announced entries stay announced across a reload.
#[derive(Debug, Default)]
pub(crate) struct Announced {
    inner: Mutex<AnnouncedState>,
}

#[derive(Debug, Default)]
struct AnnouncedState {
    term: u64,
    /// Each with the term in which it was last found.
    places: HashMap<SegmentName, (AnnouncedPath, u64)>,
    /// Changes to report: whether each of these is present.
    changes: BTreeMap<SegmentName, bool>,
    /// Whether the current walk has found everything.
    is_complete: bool,
    /// Announced names that coordinators may no longer list here.
    doubted: Vec<SegmentName>,
}

impl Announced {
    /// Starts the term of a new walker.
    pub(crate) fn begin(&self) -> WalkTerm {
        let mut inner = self.lock();
        inner.term += 1;
        inner.is_complete = false;
        WalkTerm(inner.term)
    }

    /// Adds places that a walk found.
    pub(crate) fn add(
        &self,
        term: WalkTerm,
        found: impl Iterator<Item = (SegmentName, AnnouncedPath)>,
    ) {
        let mut inner = self.lock();
        if inner.term != term.0 {
            return;
        }
        for (name, place) in found {
            if inner.places.insert(name, (place, term.0)).is_none() {
                inner.changes.insert(name, true);
            }
        }
    }

    /// Removes names that are gone.
    pub(crate) fn remove(&self, term: WalkTerm, gone: impl Iterator<Item = SegmentName>) {
        let mut inner = self.lock();
        if inner.term == term.0 {
            gone.for_each(|name| inner.remove(name));
        }
    }

    /// Ends a complete walk: places that only earlier walkers found are removed. `has_all`: every
    /// place was added.
    pub(crate) fn settle(&self, term: WalkTerm, has_all: bool) {
        let mut inner = self.lock();
        if inner.term != term.0 {
            return;
        }
        let old = inner.places.iter().filter(|(_, (_, found))| *found != term.0);
        let old: Vec<_> = old.map(|(&name, _)| name).collect();
        old.into_iter().for_each(|name| inner.remove(name));
        inner.is_complete = has_all;
    }

    /// Records that a place was not added.
    pub(crate) fn has_more(&self, term: WalkTerm) {
        let mut inner = self.lock();
        if inner.term == term.0 {
            inner.is_complete = false;
        }
    }

    /// Whether all files and folders are announced, once [`Self::changes`] called after this have
    /// been reported.
    pub(crate) fn is_complete(&self) -> bool {
        self.lock().is_complete
    }

    /// The place of `name`, if it was announced.
    pub(crate) fn find(&self, name: SegmentName) -> Option<AnnouncedPath> {
        self.lock().places.get(&name).map(|(place, _)| place.clone())
    }

    /// Coordinators remove a node as holder if it asks for the name, or is reported not to have it.
    /// If the name was announced, the folder was briefly between two states, and the name is
    /// checked again.
    pub(crate) fn doubt(&self, name: SegmentName) {
        let mut inner = self.lock();
        if inner.places.contains_key(&name) && !inner.doubted.contains(&name) {
            inner.doubted.push(name);
        }
    }

    /// The names doubted since the last call, to be checked again.
    pub(crate) fn take_doubted(&self) -> Vec<(SegmentName, AnnouncedPath)> {
        let mut inner = self.lock();
        let doubted = std::mem::take(&mut inner.doubted);
        let place = |name| Some((name, inner.places.get(&name)?.0.clone()));
        doubted.into_iter().filter_map(place).collect()
    }

    /// Reports those of `names` that are still announced to coordinators again.
    pub(crate) fn tell_again(&self, names: impl Iterator<Item = SegmentName>) {
        let mut inner = self.lock();
        for name in names {
            if inner.places.contains_key(&name) {
                inner.changes.insert(name, true);
            }
        }
    }

    /// The changes since the last call, in the order in which to report them.
    pub(crate) fn changes(&self) -> Vec<AnnouncedChanges> {
        let changes: Vec<_> = std::mem::take(&mut self.lock().changes).into_iter().collect();
        let names = |some: &[(SegmentName, bool)], is_there| {
            let these = some.iter().filter(|(_, it)| *it == is_there);
            these.map(|(name, _)| *name).collect()
        };
        let message =
            |some: &[_]| AnnouncedChanges { added: names(some, true), removed: names(some, false) };
        changes.chunks(HELD_PER_MESSAGE_MAX).map(message).collect()
    }

    /// All names.
    pub(crate) fn names(&self) -> Vec<SegmentName> {
        self.lock().places.keys().copied().collect()
    }

    /// Those of `names` that are announced.
    pub(crate) fn still(&self, names: &[SegmentName]) -> Vec<SegmentName> {
        let inner = self.lock();
        names.iter().filter(|name| inner.places.contains_key(*name)).copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, AnnouncedState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AnnouncedState {
    fn remove(&mut self, name: SegmentName) {
        if self.places.remove(&name).is_some() {
            self.changes.insert(name, false);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn name(number: u8) -> SegmentName {
        SegmentName([number; 16])
    }

    fn found(numbers: std::ops::Range<u8>) -> impl Iterator<Item = (SegmentName, AnnouncedPath)> {
        numbers.map(|number| (name(number), AnnouncedPath { route: 1, relative: [number].into() }))
    }

    fn told(announced: &Announced) -> (Vec<u8>, Vec<u8>) {
        let mut told = (Vec::new(), Vec::new());
        for changes in announced.changes() {
            told.0.extend(changes.added.iter().map(|name| name.0[0]));
            told.1.extend(changes.removed.iter().map(|name| name.0[0]));
        }
        told
    }

    #[test]
    fn changes_are_told_once_and_doubts_once_more() {
        let announced = Announced::default();
        let term = announced.begin();
        announced.add(term, found(0..3));
        announced.add(term, found(0..3));
        assert_eq!(told(&announced), (vec![0, 1, 2], vec![]));
        announced.remove(term, [name(1), name(9)].into_iter());
        announced.doubt(name(1));
        announced.doubt(name(2));
        announced.doubt(name(2));
        assert_eq!(told(&announced), (vec![], vec![1]));
        let doubted = announced.take_doubted();
        assert_eq!(doubted.len(), 1);
        announced.tell_again(doubted.into_iter().map(|(name, _)| name));
        assert_eq!(told(&announced), (vec![2], vec![]));
        assert_eq!(announced.names().len(), 2);
    }

    #[test]
    fn a_reload_withdraws_what_the_new_walk_did_not_find_and_nothing_else() {
        let announced = Announced::default();
        let old = announced.begin();
        announced.add(old, found(0..4));
        told(&announced);
        let new = announced.begin();
        announced.add(old, found(7..9));
        announced.add(new, found(2..6));
        announced.settle(old, true);
        assert_eq!(told(&announced), (vec![4, 5], vec![]));
        assert!(!announced.is_complete());
        announced.settle(new, true);
        assert_eq!(told(&announced), (vec![], vec![0, 1]));
        assert!(announced.is_complete());
        announced.has_more(old);
        assert!(announced.is_complete());
        announced.has_more(new);
        assert!(!announced.is_complete());
        assert!(announced.find(name(7)).is_none());
    }
}
