//! A bounded map from URLs to values: each row holds a few, and evicts the least recently used one.

use crate::limits::{URLS_MAX, URLS_PER_ROW};

const ROWS: usize = URLS_MAX / URLS_PER_ROW;

/// Values by the hash of a URL. A row is allocated at its first use.
pub(crate) struct UrlMap<V> {
    rows: Vec<Option<Box<[Entry<V>; URLS_PER_ROW]>>>,
    /// The number of uses so far.
    uses: u64,
}

#[derive(Clone, Copy, Default)]
struct Entry<V> {
    hash: u64,
    value: V,
    /// The number of its last use; 0 for an empty entry.
    used: u64,
}

impl<V: Copy + Default> UrlMap<V> {
    pub(crate) fn new() -> Self {
        Self { rows: (0..ROWS).map(|_| None).collect(), uses: 0 }
    }

    /// The value of a known URL.
    pub(crate) fn get(&self, hash: u64) -> Option<&V> {
        let row = self.rows[(hash % ROWS as u64) as usize].as_ref()?;
        let known = row.iter().find(|entry| entry.used > 0 && entry.hash == hash);
        known.map(|entry| &entry.value)
    }

    /// The value of a URL; the default value for a new one.
    pub(crate) fn get_or_insert(&mut self, hash: u64) -> &mut V {
        self.uses += 1;
        let row = &mut self.rows[(hash % ROWS as u64) as usize];
        let row = row.get_or_insert_with(|| Box::new([Entry::default(); URLS_PER_ROW]));
        let known = row.iter().position(|entry| entry.used > 0 && entry.hash == hash);
        let oldest = || row.iter().enumerate().min_by_key(|(_, entry)| entry.used);
        let place = known.or_else(|| oldest().map(|(place, _)| place)).unwrap_or(0);
        let entry = &mut row[place];
        if known.is_none() {
            *entry = Entry { hash, ..Entry::default() };
        }
        entry.used = self.uses;
        &mut entry.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_kept_until_others_of_the_row_are_used() {
        let mut urls = UrlMap::<u32>::new();
        let hash = |number: usize| (number * ROWS) as u64;
        for number in 0..URLS_PER_ROW {
            *urls.get_or_insert(hash(number)) = 1 + number as u32;
        }
        // The first is used again, so that the second is the least recently used.
        assert_eq!(*urls.get_or_insert(hash(0)), 1);
        assert_eq!(*urls.get_or_insert(hash(URLS_PER_ROW)), 0);
        assert_eq!(*urls.get_or_insert(hash(0)), 1);
        assert_eq!(*urls.get_or_insert(hash(2)), 3);
        assert_eq!(*urls.get_or_insert(hash(1)), 0, "it was forgotten");
        assert_eq!((urls.get(hash(1)), urls.get(hash(2))), (Some(&0), Some(&3)));
        assert_eq!(urls.get(hash(URLS_PER_ROW + 1)), None);
        // Other rows are not affected.
        *urls.get_or_insert(1) = 7;
        assert_eq!((*urls.get_or_insert(hash(0)), *urls.get_or_insert(1)), (1, 7));
    }
}
