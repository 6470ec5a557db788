//! Timers by key, with the next one that is due.

use std::collections::{BTreeMap, BTreeSet};

use skep_units::Now;

/// At most one time per key.
#[derive(Clone, Debug)]
pub(crate) struct Timers<K> {
    by_time: BTreeSet<(Now, K)>,
    by_key: BTreeMap<K, Now>,
}

impl<K: Copy + Ord> Timers<K> {
    /// Sets the time of a key, or removes it.
    pub(crate) fn set(&mut self, key: K, due: Option<Now>) {
        let before = match due {
            Some(due) => self.by_key.insert(key, due),
            None => self.by_key.remove(&key),
        };
        if let Some(before) = before {
            self.by_time.remove(&(before, key));
        }
        if let Some(due) = due {
            self.by_time.insert((due, key));
        }
    }

    /// Removes and returns the keys that are due, each once.
    pub(crate) fn take_due(&mut self, now: Now) -> Vec<K> {
        let due = self.by_time.iter().take_while(|(due, _)| *due <= now);
        let keys: Vec<K> = due.map(|(_, key)| *key).collect();
        keys.iter().for_each(|key| self.set(*key, None));
        keys
    }

    /// When the next one is due.
    pub(crate) fn next(&self) -> Option<Now> {
        self.by_time.first().map(|(due, _)| *due)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.by_key.keys()
    }
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self { by_time: BTreeSet::new(), by_key: BTreeMap::new() }
    }
}
