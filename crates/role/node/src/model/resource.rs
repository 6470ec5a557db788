//! Resources: the contents of a path, and until when they may be served.
//!
//! Invariant: a resource that was taken out of use, purged, or has exceeded its age is not
//! current, and becomes current only by a check at its source.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use skep_segments::SegmentStore;
use skep_serve::{monotonic_ms, unix_ms};
use skep_wire::cache::PurgeStamp;

use crate::disk::FileKind;
use crate::disk::watch::Directory;
use crate::limits::{FORGOTTEN_SEGMENTS_MAX, TELL_AGAIN_MS};
use crate::model::compressed::CompressedVariants;
use crate::model::freshness::{LatestPurges, Remote, ResourceFreshness};
use crate::model::object::{ObjectSource, Variants};
use crate::model::purges::PurgeSnapshot;
use crate::model::route::Route;

/// The resource at a path: a version of a file with its sidecars, or an origin's object.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) route: Arc<Route>,
    pub(crate) variants: Variants,
    /// The compressed variants of the plain object, if it is compressible.
    pub(crate) compressed: Option<CompressedVariants>,
    validity: Validity,
    used: AtomicBool,
    retired: AtomicBool,
    /// Generation of the purges with which it was last compared.
    compared: AtomicU64,
    /// The latest soft purge before it was fetched; for files, before the last check.
    softly_purged: AtomicU64,
    /// Time since which a later soft purge makes it stale, by the monotonic clock in milliseconds;
    /// `u64::MAX`: it is not stale. Files are checked instead.
    stale_from_ms: AtomicU64,
    /// Requests that it has answered, if they are counted.
    hits: AtomicU64,
    /// Time at which its size was last reported to dispatchers, by the monotonic clock in milliseconds; 0:
    /// never.
    told_ms: AtomicU64,
}

/// Until when a resource may be served.
#[derive(Debug)]
enum Validity {
    /// For a while after a check, or until its directory changes.
    Checked(Checks),
    /// As long as its freshness allows.
    Fresh(ResourceFreshness),
    /// As long as the node that has it allows: until this time by the monotonic clock, in milliseconds.
    Until(AtomicU64),
}

#[derive(Debug)]
struct Checks {
    directory: Arc<Directory>,
    /// Generation of the directory when this was last found unchanged.
    generation: AtomicU64,
    verified_ms: AtomicU64,
}

impl Checks {
    fn is_current(&self, now_ms: u64, interval_ms: u64) -> bool {
        self.generation.load(Ordering::Acquire) == self.directory.generation()
            && now_ms.saturating_sub(self.verified_ms.load(Ordering::Relaxed)) <= interval_ms
    }

    fn verified(&self, began_ms: u64, generation: u64) {
        self.generation.store(generation, Ordering::SeqCst);
        self.verified_ms.store(began_ms, Ordering::Relaxed);
    }

    /// Requires a check before it is used again.
    fn expire(&self) {
        // A generation that no directory reaches.
        self.verified(0, u64::MAX);
    }
}

impl Resource {
    /// Files that were looked up at `began_ms`, when `directory` was at `generation` and `purges` were
    /// known.
    pub(crate) fn of_files(
        route: &Arc<Route>,
        variants: Variants,
        directory: Arc<Directory>,
        (generation, began_ms): (u64, u64),
        purges: &PurgeSnapshot,
    ) -> Self {
        let (generation, verified_ms) = (AtomicU64::new(generation), AtomicU64::new(began_ms));
        let checks = Checks { directory, generation, verified_ms };
        let relatives = variants.iter().filter_map(|object| object.relative());
        let softly_purged = route.purged_files(purges.soft(), relatives);
        Self::new(route, variants, Validity::Checked(checks), (purges, softly_purged))
    }

    fn new(
        route: &Arc<Route>,
        variants: Variants,
        validity: Validity,
        (purges, softly_purged): (&PurgeSnapshot, PurgeStamp),
    ) -> Self {
        Self {
            route: Arc::clone(route),
            compressed: variants.plain.is_compressible.then(CompressedVariants::default),
            variants,
            validity,
            used: AtomicBool::new(true),
            retired: AtomicBool::new(false),
            compared: AtomicU64::new(purges.generation),
            softly_purged: AtomicU64::new(softly_purged.0),
            stale_from_ms: AtomicU64::new(u64::MAX),
            hits: AtomicU64::new(0),
            told_ms: AtomicU64::new(0),
        }
    }

    /// Memory that it takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let objects = self.variants.iter().map(|object| object.memory_bytes());
        size_of::<Self>() + objects.sum::<usize>()
    }

    /// An origin's object; `purges` were known before the request. `softly_purged`: the latest soft purge
    /// known to the node that fetched it; a later one makes it stale.
    pub(crate) fn of_origin(
        route: &Arc<Route>,
        variants: Variants,
        freshness: ResourceFreshness,
        (purges, softly_purged): (&PurgeSnapshot, PurgeStamp),
    ) -> Self {
        let fresh = Validity::Fresh(freshness);
        let resource = Self::new(route, variants, fresh, (purges, softly_purged));
        let latest = resource.remote().map(|remote| remote.purged(route, purges));
        resource.soften(latest.unwrap_or_default().soft);
        resource
    }

    /// Another node's files; `purges` were known before the request.
    pub(crate) fn elsewhere(
        route: &Arc<Route>,
        variants: Variants,
        until_ms: u64,
        purges: &PurgeSnapshot,
    ) -> Self {
        let relatives = variants.iter().filter_map(|object| object.relative());
        let softly_purged = route.purged_files(purges.soft(), relatives);
        let until = Validity::Until(AtomicU64::new(until_ms));
        Self::new(route, variants, until, (purges, softly_purged))
    }

    /// Whether this may be served at `now_ms`. False while it is unknown whether a purge applies to it: use
    /// [`Purges::until_in_step`] and [`Resource::is_purged`] to determine that.
    ///
    /// [`Purges::until_in_step`]: crate::model::purges::Purges::until_in_step
    pub(crate) fn is_current(&self, now_ms: u64, interval_ms: u64) -> bool {
        self.is_in_use(now_ms)
            && match &self.validity {
                Validity::Checked(checks) => checks.is_current(now_ms, interval_ms),
                Validity::Fresh(_) => self.freshness().is_some_and(|it| it.is_fresh(now_ms)),
                Validity::Until(until_ms) => now_ms < until_ms.load(Ordering::Relaxed),
            }
    }

    /// Whether it is neither purged nor replaced, so that it may at least be validated.
    pub(crate) fn is_in_use(&self, now_ms: u64) -> bool {
        !self.is_retired()
            && self.compared.load(Ordering::Acquire) == self.route.purges.generation()
            && self.route.purges.is_in_step(now_ms)
    }

    /// Time for which another node may use this node's file, in milliseconds.
    pub(crate) fn fresh_ms(&self, now_ms: u64, interval_ms: u64) -> u64 {
        let Some(checks) = self.checks() else { return 0 };
        let age_ms = now_ms.saturating_sub(checks.verified_ms.load(Ordering::Relaxed));
        interval_ms.saturating_sub(age_ms)
    }

    /// Whether these are the files that were looked up as `found`; if so, this resource is as current as
    /// `found`.
    pub(crate) fn is_still(&self, found: &Self) -> bool {
        let (Some(old), Some(new)) = (self.checks(), found.checks()) else { return false };
        let files = self.variants.iter().map(|object| object.file());
        let is_it = !self.is_retired()
            && self.variants.plain.purged() == found.variants.plain.purged()
            && files.eq(found.variants.iter().map(|object| object.file()))
            && Arc::ptr_eq(&old.directory, &new.directory);
        if is_it {
            let verified_ms = new.verified_ms.load(Ordering::Relaxed);
            let softly_purged = found.softly_purged.load(Ordering::Relaxed);
            self.softly_purged.store(softly_purged, Ordering::SeqCst);
            old.verified(verified_ms, new.generation.load(Ordering::Relaxed));
            self.compared.store(found.compared.load(Ordering::Relaxed), Ordering::Release);
            self.mark_used();
        }
        is_it
    }

    /// Checks that files on this node's disk are unchanged; true for a remote resource. May
    /// wait for the disk.
    pub(crate) fn check(&self) -> bool {
        let Some(checks) = self.checks() else { return true };
        let (began_ms, generation) = (monotonic_ms(), checks.directory.generation());
        let softly_purged = self.softly_purged.load(Ordering::SeqCst);
        let is_right = self.matches_disk();
        if is_right {
            checks.verified(began_ms, generation);
            // A soft purge since then is later than the check.
            if self.softly_purged.load(Ordering::SeqCst) != softly_purged {
                checks.expire();
            }
        }
        is_right
    }

    /// Whether all of its files were settled when they were looked up.
    pub(crate) fn is_settled(&self) -> bool {
        self.variants.iter().all(|object| object.is_settled)
    }

    /// Whether the names of its objects mean the same bytes on all nodes: not if each node has its own copy
    /// of the folder.
    pub(crate) fn is_of_all_nodes(&self) -> bool {
        self.variants.plain.file().is_none() || !self.route.is_local()
    }

    /// Time until a check can find it settled, in milliseconds; at least 1.
    pub(crate) fn settles_in_ms(&self) -> u64 {
        let stamps = self.variants.iter().filter_map(|object| object.file());
        stamps.map(|(_, stamp)| stamp.settles_in_ms()).max().unwrap_or(0).max(1)
    }

    /// Whether another node must confirm that it still has it.
    pub(crate) fn is_expired(&self, now_ms: u64) -> bool {
        matches!(&self.validity, Validity::Until(until) if now_ms >= until.load(Ordering::Relaxed))
    }

    /// Extends its use after another node confirmed that it still has it.
    pub(crate) fn renew(&self, until_ms: u64) {
        if let Validity::Until(until) = &self.validity {
            until.fetch_max(until_ms, Ordering::Relaxed);
        }
    }

    /// Whether it was taken out of use: replaced, gone, or purged.
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Whether it was purged after it was looked up. Compares only if there were purges since the last
    /// call; a soft purge makes it stale.
    pub(crate) fn is_purged(&self) -> bool {
        if self.compared.load(Ordering::Acquire) == self.route.purges.generation() {
            return false;
        }
        let purges = self.route.purges.load();
        let latest = match self.remote() {
            Some(remote) => remote.purged(&self.route, &purges),
            None => {
                let files = || self.variants.iter().filter_map(|object| object.relative());
                let of = |known| self.route.purged_files(known, files());
                LatestPurges { hard: of(purges.hard()), soft: of(purges.soft()) }
            }
        };
        if latest.hard > self.variants.plain.purged() {
            return true;
        }
        self.soften(latest.soft);
        self.compared.store(purges.generation, Ordering::Release);
        false
    }

    /// Whether a soft purge made it stale.
    pub(crate) fn is_softly_purged(&self) -> bool {
        !self.is_purged() && self.stale_from_ms.load(Ordering::Acquire) != u64::MAX
    }

    /// The latest purges that precede it.
    pub(crate) fn purges_before(&self) -> LatestPurges {
        LatestPurges { hard: self.variants.plain.purged(), soft: self.softly_purged() }
    }

    /// The latest soft purge that was known when it was fetched.
    pub(crate) fn softly_purged(&self) -> PurgeStamp {
        PurgeStamp(self.softly_purged.load(Ordering::Acquire))
    }

    /// Makes it stale if a soft purge is later than it.
    fn soften(&self, latest: PurgeStamp) {
        if latest <= self.softly_purged() {
            return;
        }
        let is_first = match &self.validity {
            Validity::Fresh(_) => {
                // Counted from the purge's stamp: the time for which it may be used stale does not start
                // with the next request.
                let ago_ms = unix_ms().saturating_sub(latest.unix_ms());
                let from_ms = monotonic_ms().saturating_sub(ago_ms);
                self.stale_from_ms.fetch_min(from_ms, Ordering::AcqRel) == u64::MAX
            }
            Validity::Checked(checks) => {
                self.softly_purged.store(latest.0, Ordering::SeqCst);
                checks.expire();
                true
            }
            Validity::Until(until_ms) => {
                self.softly_purged.store(latest.0, Ordering::SeqCst);
                until_ms.store(0, Ordering::Relaxed);
                true
            }
        };
        if is_first {
            self.route.purges.count_softened();
        }
    }

    /// Takes the resource and its bytes out of use after a purge.
    pub(crate) fn drop_purged(&self, store: &SegmentStore) {
        if self.take_out(store) {
            self.route.purges.count_dropped();
        }
    }

    /// Takes the resource and its bytes out of use because there is another version, or none.
    pub(crate) fn retire(&self, store: &SegmentStore) {
        if self.take_out(store) {
            store.count_stale();
        }
    }

    /// Returns false if it was already out of use.
    fn take_out(&self, store: &SegmentStore) -> bool {
        if self.retired.swap(true, Ordering::AcqRel) {
            return false;
        }
        for object in self.variants.iter() {
            store.forget(object.segment_names().take(FORGOTTEN_SEGMENTS_MAX));
        }
        if let Some(compressed) = &self.compressed {
            compressed.iter().for_each(|it| store.forget(it.object.segment_names()));
        }
        true
    }

    /// Its freshness, if it is an origin's object.
    #[inline]
    pub(crate) fn freshness(&self) -> Option<ResourceFreshness> {
        match &self.validity {
            Validity::Checked(_) | Validity::Until(_) => None,
            Validity::Fresh(freshness) => {
                let stale_from_ms = self.stale_from_ms.load(Ordering::Acquire);
                Some(match stale_from_ms {
                    u64::MAX => *freshness,
                    from_ms => freshness.expired_at(from_ms),
                })
            }
        }
    }

    /// Its place at its origins, if it has one.
    pub(crate) fn remote(&self) -> Option<&Remote> {
        match &self.variants.plain.source {
            ObjectSource::Origin(remote) => Some(remote),
            _ => None,
        }
    }

    /// Whether `other` has the same bytes under the same names.
    pub(crate) fn is_same_version(&self, other: &Self) -> bool {
        let name = |resource: &Self| {
            let object = &resource.variants.plain;
            (object.bytes(), object.segment_name(0))
        };
        name(self) == name(other)
    }

    /// Whether it was served since the last call of [`Resource::take_used`].
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether it was served since the last call.
    pub(crate) fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    /// Counts a request that it answers; returns how many there are.
    pub(crate) fn count_hit(&self) -> u64 {
        self.hits.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether its size is to be reported to dispatchers, now that it is served; if so, the caller must
    /// report it.
    pub(crate) fn is_to_be_told(&self, now_ms: u64) -> bool {
        let told_ms = self.told_ms.load(Ordering::Relaxed);
        let is_due = told_ms == 0 || now_ms.saturating_sub(told_ms) >= TELL_AGAIN_MS;
        if is_due {
            self.told_ms.store(now_ms.max(1), Ordering::Relaxed);
        }
        is_due
    }

    /// Records that it was served, so that it stays among the resources that are checked.
    pub(crate) fn mark_used(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the files at the paths are those of this resource.
    fn matches_disk(&self) -> bool {
        let Ok(root) = self.route.open_root() else { return false };
        self.variants
            .iter()
            .filter_map(|object| object.file())
            .all(|(relative, stamp)| root.describe(relative) == Ok(FileKind::File(stamp)))
    }

    fn checks(&self) -> Option<&Checks> {
        match &self.validity {
            Validity::Checked(checks) => Some(checks),
            Validity::Fresh(_) | Validity::Until(_) => None,
        }
    }
}
