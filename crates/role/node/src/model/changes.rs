//! Versions of a state, for caches of what was found in it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Counts the changes of one state.
#[derive(Debug, Default)]
pub(crate) struct ChangeCounter(Arc<AtomicU64>);

/// A version of the state. After the counter is dropped, no version is current.
#[derive(Clone, Debug)]
pub(crate) struct SeenVersion {
    changes: Weak<AtomicU64>,
    seen: u64,
}

impl ChangeCounter {
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    /// The current version.
    pub(crate) fn version(&self) -> SeenVersion {
        SeenVersion { changes: Arc::downgrade(&self.0), seen: self.0.load(Ordering::Acquire) }
    }
}

impl SeenVersion {
    /// Whether there was no change since.
    pub(crate) fn is_current(&self) -> bool {
        self.changes.upgrade().is_some_and(|it| it.load(Ordering::Acquire) == self.seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_ends_with_the_next_change_and_with_the_thing() {
        let changes = ChangeCounter::default();
        let first = changes.version();
        assert!(first.is_current());
        changes.count();
        let second = changes.version();
        assert!(!first.is_current() && second.is_current());
        drop(changes);
        assert!(!second.is_current());
    }
}
