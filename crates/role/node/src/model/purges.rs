//! The purges known to this node, shared by all workers and the links.
//!
//! A purge triggers no search: whether a resource was fetched before the purge is determined
//! at the next request for it. Each resource stores the latest purge that applied to it when
//! it was looked up, which is part of its segments' names, and the generation of purges that
//! it was last compared with; a new purge makes all these comparisons out of date.
//!
//! ```text
//!   links --learn--> Purges { snapshot, generation }
//!                               |           |
//!       slow: is its latest purge           quick: was it compared
//!       later than the one in its names?    with this generation?
//! ```
//!
//! Invariants: once [`Purges::learn`] has returned, no reply begins with what was purged;
//! the name of fetched bytes contains the latest purge known before they were requested.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use skep_directory::{PurgeTable, PurgeTables};
use skep_serve::{monotonic_ms, unix_ms};
use skep_wire::cache::{PurgeKind, PurgeNews, PurgeStamp, PurgeWhat};
use tokio::sync::Notify;

use crate::limits::PAUSE_WAIT_MS;

#[derive(Debug, Default)]
pub(crate) struct Purges {
    snapshot: ArcSwap<PurgeSnapshot>,
    /// The generation of the snapshot, stored after it.
    generation: AtomicU64,
    learning: Mutex<()>,
    dropped: AtomicU64,
    softened: AtomicU64,
    learned: Notify,
    step: Step,
}

/// What purges did at a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeEffects {
    /// Purge messages that were applied.
    pub applied: u64,
    /// Objects that were found purged and taken out of use.
    pub dropped: u64,
    /// Objects that were found softly purged and made stale.
    pub softened: u64,
}

/// The time until which no purge can have been missed.
#[derive(Debug)]
struct Step {
    until_ms: AtomicU64,
    renewed: Notify,
}

impl Default for Step {
    fn default() -> Self {
        // In step while there is no coordinator to receive purges from.
        Self { until_ms: AtomicU64::new(u64::MAX), renewed: Notify::new() }
    }
}

/// The purges known at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct PurgeSnapshot {
    pub(crate) known: PurgeTables,
    /// Incremented by each purge message that is applied.
    pub(crate) generation: u64,
}

impl PurgeSnapshot {
    /// Hard purges, whose stamps are part of names.
    pub(crate) fn hard(&self) -> &PurgeTable {
        self.known.of(PurgeKind::Hard)
    }

    /// Soft purges: responses fetched before are stale.
    pub(crate) fn soft(&self) -> &PurgeTable {
        self.known.of(PurgeKind::Soft)
    }
}

impl Purges {
    /// The current snapshot.
    pub(crate) fn load(&self) -> Arc<PurgeSnapshot> {
        self.snapshot.load_full()
    }

    /// Changes with every purge.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Applies purges; returns those that were new.
    pub(crate) fn learn(&self, kind: PurgeKind, news: &PurgeNews) -> Option<PurgeNews> {
        let _alone = self.learning.lock().unwrap_or_else(PoisonError::into_inner);
        let mut snapshot = PurgeSnapshot::clone(&self.load());
        let new = snapshot.known.learn(kind, news)?;
        snapshot.generation += 1;
        let generation = snapshot.generation;
        self.snapshot.store(Arc::new(snapshot));
        self.generation.store(generation, Ordering::Release);
        self.learned.notify_waiters();
        Some(new)
    }

    /// Purges on this node only, now.
    pub(crate) fn purge(&self, kind: PurgeKind, what: Vec<PurgeWhat>) -> PurgeStamp {
        let stamp = PurgeStamp::after(self.newest(), unix_ms(), 0);
        let purges = what.into_iter().map(|what| (what, stamp)).collect();
        self.learn(kind, &PurgeNews { purges, ..PurgeNews::default() });
        stamp
    }

    /// Waits until `is_known` returns true for the hard purges.
    pub(crate) async fn until(&self, is_known: impl Fn(&PurgeTable) -> bool) {
        loop {
            let learned = self.learned.notified();
            if is_known(self.load().hard()) {
                return;
            }
            learned.await;
        }
    }

    /// The latest purge that is known.
    pub(crate) fn newest(&self) -> PurgeStamp {
        self.snapshot.load().known.newest()
    }

    /// Whether no purge can have been missed by `now_ms` because this process was suspended
    /// ([`crate::peers`]).
    pub(crate) fn is_in_step(&self, now_ms: u64) -> bool {
        now_ms < self.step.until_ms.load(Ordering::Acquire)
    }

    /// Records that no purge can be missed until `until_ms`.
    pub(crate) fn in_step_until(&self, until_ms: u64) {
        self.step.until_ms.store(until_ms, Ordering::Release);
        self.step.renewed.notify_waiters();
    }

    /// Waits until [`Self::is_in_step`], for a bounded time.
    pub(crate) async fn until_in_step(&self) {
        let step = async {
            loop {
                let renewed = self.step.renewed.notified();
                if self.is_in_step(monotonic_ms()) {
                    return;
                }
                renewed.await;
            }
        };
        let limit = Duration::from_millis(2 * PAUSE_WAIT_MS);
        if tokio::time::timeout(limit, step).await.is_err() {
            tracing::warn!("the link thread is blocked: possibly serving purged content");
        }
    }

    /// Counts a resource that was found to be purged and was taken out of use.
    pub(crate) fn count_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a resource that was found to be softly purged and is stale.
    pub(crate) fn count_softened(&self) {
        self.softened.fetch_add(1, Ordering::Relaxed);
    }

    /// See [`PurgeEffects`].
    pub(crate) fn counts(&self) -> PurgeEffects {
        PurgeEffects {
            applied: self.generation(),
            dropped: self.dropped.load(Ordering::Relaxed),
            softened: self.softened.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn news_make_a_generation_and_what_is_known_does_not() {
        let purges = Purges::default();
        let tag = PurgeWhat::Tag("t".into());
        let news = PurgeNews { purges: vec![(tag, PurgeStamp(5))], ..PurgeNews::default() };
        assert_eq!(purges.learn(PurgeKind::Hard, &news), Some(news.clone()));
        assert_eq!(purges.learn(PurgeKind::Hard, &news), None);
        assert_eq!((purges.generation(), purges.load().generation), (1, 1));
        assert_eq!(purges.newest(), PurgeStamp(5));
    }
}
