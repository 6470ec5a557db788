//! The state of one name: the response, or the reason why there is none.

use std::sync::Arc;

use skep_httpcache::{OriginFailure, SecondaryKey, VaryNames};
use skep_segments::{Charge, SegmentStore};
use skep_wire::cache::SegmentName;

use crate::backend::head_slots::HeadSlot;
use crate::limits::{VARIANTS_TOLD_MAX, VARIES_MAX};
use crate::model::changes::{ChangeCounter, SeenVersion};
use crate::model::resource::Resource;

/// The reply sent when no server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    /// Complete field lines.
    pub(crate) lines: Arc<[u8]>,
}

#[derive(Debug)]
pub(super) struct PoolSlot {
    /// Charge for the slot and its contents.
    pub(super) charge: Charge,
    pub(super) kept: Option<Arc<Resource>>,
    /// The response that `kept` replaces when its body is complete; it stays in use if the body breaks off.
    before: Option<Arc<Resource>>,
    /// For a primary name: Vary of the responses, the most recent last.
    pub(super) varies: Vec<VaryNames>,
    /// For a primary name: the secondary keys of responses, for operators.
    pub(super) variants: Vec<SecondaryKey>,
    /// For a primary name: the name of the refresh that produced the response.
    pub(super) refreshed: Option<SegmentName>,
    /// Time until which requests do not wait for each other, by the monotonic clock in milliseconds; and
    /// the reason (hit-for-miss).
    pub(super) mark: Option<(u64, &'static str)>,
    /// Time until which servers are not asked again, and their failure.
    pub(super) failed: Option<(u64, OriginFailure, Option<Refusal>)>,
    /// Time before which there is no background refresh, by the monotonic clock in milliseconds: the last
    /// one failed.
    pub(super) refreshes_paused_until_ms: u64,
    /// For a primary name: counts the responses stored under its key.
    changes: ChangeCounter,
}

impl HeadSlot for PoolSlot {
    fn empty(charge: Charge) -> Self {
        let (kept, before, mark, failed) = (None, None, None, None);
        let (varies, variants, changes) = (Vec::new(), Vec::new(), ChangeCounter::default());
        let (refreshed, refreshes_paused_until_ms) = (None, 0);
        Self {
            charge,
            kept,
            before,
            varies,
            variants,
            refreshed,
            mark,
            failed,
            refreshes_paused_until_ms,
            changes,
        }
    }

    fn take_used(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.take_used())
    }
}

impl PoolSlot {
    /// Stores a response; returns those that it replaces. `replaces` is kept in reserve until the body of
    /// the response is complete.
    pub(super) fn put(
        &mut self,
        resource: Arc<Resource>,
        replaces: Option<&Arc<Resource>>,
    ) -> Vec<Arc<Resource>> {
        (self.mark, self.failed, self.refreshes_paused_until_ms) = (None, None, 0);
        let old = self.kept.replace(resource).into_iter().chain(self.before.take());
        let is_replaced_later =
            |old: &Arc<Resource>| replaces.is_some_and(|it| Arc::ptr_eq(it, old));
        let (reserve, replaced): (Vec<_>, Vec<_>) = old.partition(is_replaced_later);
        self.before = reserve.into_iter().next();
        replaced
    }

    /// The response to use: not one that is still being received if it is stale, since only a complete
    /// response can be validated or used stale.
    pub(super) fn usable(&self, now_ms: u64) -> Option<&Arc<Resource>> {
        let is_fresh = self.kept.as_ref().is_some_and(|kept| is_fresh(kept, now_ms));
        self.before.as_ref().filter(|_| !is_fresh).or(self.kept.as_ref())
    }

    /// Whether background refreshes are paused now.
    pub(super) fn is_paused(&self, now_ms: u64) -> bool {
        let marked = self.mark.map(|(until_ms, _)| until_ms);
        let failed = self.failed.as_ref().map(|(until_ms, ..)| *until_ms);
        let ends = [marked, failed, Some(self.refreshes_paused_until_ms)];
        ends.into_iter().flatten().any(|until_ms| now_ms < until_ms)
    }

    /// Drops stale responses.
    pub(super) fn drop_stale(&mut self, now_ms: u64) -> Vec<Arc<Resource>> {
        let kept = self.kept.take_if(|kept| !is_fresh(kept, now_ms));
        let before = self.before.take_if(|before| !is_fresh(before, now_ms));
        kept.into_iter().chain(before).collect()
    }

    /// Drops responses that were purged or taken out of use; returns the current one if it was dropped.
    pub(super) fn drop_gone(&mut self, store: &SegmentStore) -> Option<Arc<Resource>> {
        let is_gone = |kept: &Resource| kept.is_retired() || kept.is_purged();
        self.before.take_if(|before| is_gone(before));
        let gone = self.kept.take_if(|kept| is_gone(kept))?;
        gone.drop_purged(store);
        self.kept = self.before.take();
        Some(gone)
    }

    /// Records what a response varies by, and its variant; the oldest of each is replaced if there are too
    /// many.
    pub(super) fn learn_vary(&mut self, vary: VaryNames, variant: &SecondaryKey) {
        self.variants.retain(|known| known != variant);
        if self.variants.len() == VARIANTS_TOLD_MAX {
            self.variants.remove(0);
        }
        self.variants.push(variant.clone());
        self.varies.retain(|known| *known != vary);
        if self.varies.len() == VARIES_MAX {
            self.varies.remove(0);
        }
        self.varies.push(vary);
    }

    /// For a primary name: records that a response was stored under its key.
    pub(super) fn count_change(&self) {
        self.changes.count();
    }

    /// For a primary name: the version with which a look-up may be reused; `None` if responses under the
    /// key vary by different fields, so that a later one may fit a request better.
    pub(super) fn version(&self) -> Option<SeenVersion> {
        (self.varies.len() == 1).then(|| self.changes.version())
    }

    /// Heap memory of its contents, in bytes.
    pub(super) fn kept_bytes(&self) -> usize {
        let kept = self.kept.iter().chain(&self.before).map(|kept| kept.memory_bytes());
        let names = self.varies.iter().flat_map(VaryNames::names).map(String::capacity);
        let variants = self.variants.iter().map(|variant| variant.as_bytes().len());
        kept.chain(names).chain(variants).sum()
    }
}

fn is_fresh(resource: &Resource, now_ms: u64) -> bool {
    resource.freshness().is_some_and(|it| it.is_fresh(now_ms))
}
