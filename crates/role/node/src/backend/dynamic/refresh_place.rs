//! The bound on refreshes that no client waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One of a bounded number of refreshes in progress; released when dropped.
#[derive(Debug)]
pub(super) struct RefreshPlace(Arc<AtomicUsize>);

impl RefreshPlace {
    /// Takes a slot, unless `count_max` are in use.
    pub(super) fn take(under_way: &Arc<AtomicUsize>, count_max: usize) -> Option<Self> {
        let more = |count: usize| (count < count_max).then_some(count + 1);
        under_way.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Self(Arc::clone(under_way)))
    }
}

impl Drop for RefreshPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_so_many_are_under_way() {
        let under_way = Arc::<AtomicUsize>::default();
        let mut places: Vec<_> = (0..4).map(|_| RefreshPlace::take(&under_way, 3)).collect();
        assert!(places.pop().is_some_and(|place| place.is_none()), "one too many");
        assert!(places.iter().all(Option::is_some));
        drop(places.pop());
        assert!(RefreshPlace::take(&under_way, 3).is_some());
    }
}
