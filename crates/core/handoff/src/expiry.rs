//! Keys that expire after some time, or when there are too many, oldest first.

use std::collections::VecDeque;

use skep_units::Now;

/// Keys by the time of their addition; see the module.
#[derive(Clone, Debug)]
pub(crate) struct ExpiryQueue<K, const AGE_MS_MAX: u64, const COUNT_MAX: usize> {
    oldest_first: VecDeque<(Now, K)>,
}

impl<K, const AGE_MS_MAX: u64, const COUNT_MAX: usize> ExpiryQueue<K, AGE_MS_MAX, COUNT_MAX> {
    /// Call [`Self::pop_expired`] afterwards until it returns `None`.
    pub(crate) fn push(&mut self, now: Now, key: K) {
        self.oldest_first.push_back((now, key));
    }

    /// Removes the next expired key; returns it and when it was added.
    pub(crate) fn pop_expired(&mut self, now: Now) -> Option<(Now, K)> {
        let (added_at, _) = self.oldest_first.front()?;
        let is_expired = now.since_ms(*added_at) >= AGE_MS_MAX || self.len() > COUNT_MAX;
        if is_expired { self.oldest_first.pop_front() } else { None }
    }

    pub(crate) fn len(&self) -> usize {
        self.oldest_first.len()
    }
}

impl<K, const AGE_MS_MAX: u64, const COUNT_MAX: usize> Default
    for ExpiryQueue<K, AGE_MS_MAX, COUNT_MAX>
{
    fn default() -> Self {
        Self { oldest_first: VecDeque::new() }
    }
}
