//! The catalog: what each path leads to, and whether that still holds.
//!
//! An entry may be served while it was checked within the interval and its
//! directory told of no change. A thread checks the entries that are in use, so
//! a hit never makes a system call; an entry that nobody asked for is checked
//! by the request that asks.

use std::convert::Infallible;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hashbrown::HashMap;
use skep_serve::monotonic_ms;

use crate::disk::{DiskError, Kind, Root, Wait};
use crate::limits::FORGOTTEN_SEGMENTS_MAX;
use crate::object::{Found, Variants, look_up, parent, purged};
use crate::partition::Heads;
use crate::purges::Snapshot;
use crate::remote::{Freshness, Shelf};
use crate::site::{Site, SiteSet};
use crate::store::Store;
use crate::stream::pool;
use crate::watch::{Directory, Watcher};

/// What a path leads to: a file in one version, with its siblings; or what an
/// origin has.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) site: Arc<Site>,
    pub(crate) variants: Variants,
    validity: Validity,
    used: AtomicBool,
    retired: AtomicBool,
    /// Generation of the purges that it was compared with.
    compared: AtomicU64,
}

/// Until when a resource may be served.
#[derive(Debug)]
enum Validity {
    /// For a while since it was checked, or until its directory changes.
    Checked(Checks),
    /// As the origin said.
    Fresh(Freshness),
    /// As the node said that has it: until then, by the monotonic clock, in
    /// milliseconds.
    Until(AtomicU64),
}

#[derive(Debug)]
struct Checks {
    directory: Arc<Directory>,
    /// Generation of the directory when this was last found right.
    generation: AtomicU64,
    verified_ms: AtomicU64,
}

impl Checks {
    fn is_current(&self, now_ms: u64, interval_ms: u64) -> bool {
        self.generation.load(Ordering::Acquire) == self.directory.generation()
            && now_ms.saturating_sub(self.verified_ms.load(Ordering::Relaxed)) <= interval_ms
    }

    fn verified(&self, began_ms: u64, generation: u64) {
        self.generation.store(generation, Ordering::Release);
        self.verified_ms.store(began_ms, Ordering::Relaxed);
    }
}

impl Resource {
    fn new(site: &Arc<Site>, variants: Variants, validity: Validity, purges: &Snapshot) -> Self {
        let (used, retired) = (AtomicBool::new(true), AtomicBool::new(false));
        let compared = AtomicU64::new(purges.generation);
        Self { site: Arc::clone(site), variants, validity, used, retired, compared }
    }

    /// What an origin has; `purges` are those known before it was asked.
    pub(crate) fn of_origin(
        site: &Arc<Site>,
        variants: Variants,
        freshness: Freshness,
        purges: &Snapshot,
    ) -> Self {
        Self::new(site, variants, Validity::Fresh(freshness), purges)
    }

    /// What another node has; `purges` are those known before it was asked.
    pub(crate) fn elsewhere(
        site: &Arc<Site>,
        variants: Variants,
        until_ms: u64,
        purges: &Snapshot,
    ) -> Self {
        Self::new(site, variants, Validity::Until(AtomicU64::new(until_ms)), purges)
    }

    /// Whether this may be served at `now_ms`. False while it is not known
    /// whether a purge hits it: [`Purges::until_in_step`] and
    /// [`Resource::is_purged`] find out.
    ///
    /// [`Purges::until_in_step`]: crate::purges::Purges::until_in_step
    pub(crate) fn is_current(&self, now_ms: u64, interval_ms: u64) -> bool {
        !self.is_retired()
            && self.compared.load(Ordering::Acquire) == self.site.purges.generation()
            && self.site.purges.is_in_step(now_ms)
            && match &self.validity {
                Validity::Checked(checks) => checks.is_current(now_ms, interval_ms),
                Validity::Fresh(freshness) => freshness.is_fresh(now_ms),
                Validity::Until(until_ms) => now_ms < until_ms.load(Ordering::Relaxed),
            }
    }

    /// For how long another node may use what this one has on its disk, in
    /// milliseconds.
    pub(crate) fn fresh_ms(&self, now_ms: u64, interval_ms: u64) -> u64 {
        let Some(checks) = self.checks() else { return 0 };
        let age_ms = now_ms.saturating_sub(checks.verified_ms.load(Ordering::Relaxed));
        interval_ms.saturating_sub(age_ms)
    }

    /// Another node said that it still has this.
    pub(crate) fn renew(&self, until_ms: u64) {
        if let Validity::Until(until) = &self.validity {
            until.fetch_max(until_ms, Ordering::Relaxed);
        }
    }

    /// Whether another node has it.
    pub(crate) fn is_elsewhere(&self) -> bool {
        matches!(self.validity, Validity::Until(_))
    }

    /// Whether it was taken out of use: replaced, gone, or purged.
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Whether it was purged after it was looked up. Looks only if there were
    /// purges since the last call.
    pub(crate) fn is_purged(&self) -> bool {
        if self.compared.load(Ordering::Acquire) == self.site.purges.generation() {
            return false;
        }
        let purges = self.site.purges.load();
        let latest = match self.remote() {
            Some(remote) => remote.purged(&self.site, &purges.known),
            None => {
                let files = self.variants.iter().filter_map(|object| object.relative());
                purged(&self.site, &purges.known, files)
            }
        };
        if latest > self.variants.plain.purged() {
            return true;
        }
        self.compared.store(purges.generation, Ordering::Release);
        false
    }

    /// Takes it out of use, and its bytes, because it was purged.
    pub(crate) fn drop_purged(&self, store: &Store) {
        if self.take_out(store) {
            self.site.purges.count_dropped();
        }
    }

    /// Takes it out of use, and its bytes, because there is another version, or none.
    pub(crate) fn retire(&self, store: &Store) {
        if self.take_out(store) {
            store.count_stale();
        }
    }

    /// False if that was done before.
    fn take_out(&self, store: &Store) -> bool {
        if self.retired.swap(true, Ordering::AcqRel) {
            return false;
        }
        for object in self.variants.iter() {
            store.forget(object.segment_names().take(FORGOTTEN_SEGMENTS_MAX));
        }
        true
    }

    /// How long it may be used, if it is an origin's.
    pub(crate) fn freshness(&self) -> Option<&Freshness> {
        match &self.validity {
            Validity::Checked(_) | Validity::Until(_) => None,
            Validity::Fresh(freshness) => Some(freshness),
        }
    }

    /// Whether another has the same bytes under the same names.
    pub(crate) fn is_same_version(&self, other: &Self) -> bool {
        let name = |resource: &Self| {
            let object = &resource.variants.plain;
            (object.bytes(), object.segment_name(0))
        };
        name(self) == name(other)
    }

    /// Whether it was served since the last call.
    pub(crate) fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    /// Says that it was served; keeps it among those that are checked.
    pub(crate) fn mark_used(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the files at the paths are those that this was made of.
    fn matches_disk(&self) -> bool {
        let Ok(root) = Root::open(&self.site.root, self.site.symlinks) else { return false };
        self.variants
            .iter()
            .filter_map(|object| object.file())
            .all(|(relative, stamp)| root.describe(relative) == Ok(Kind::File(stamp)))
    }

    fn checks(&self) -> Option<&Checks> {
        match &self.validity {
            Validity::Checked(checks) => Some(checks),
            Validity::Fresh(_) | Validity::Until(_) => None,
        }
    }
}

/// What the catalog gives for a path.
pub(crate) enum Located {
    /// A file; with it the open plain file if it had to be opened.
    Resource(Arc<Resource>, Option<File>),
    /// A directory asked for without its slash.
    NeedsSlash,
    /// A directory to list.
    Directory,
}

type Key = (usize, Box<[u8]>);

/// See the module.
pub(crate) struct Catalog {
    sites: SiteSet,
    store: Arc<Store>,
    shelf: Arc<Shelf>,
    heads: Arc<Heads>,
    watcher: Arc<Watcher>,
    entries: Mutex<HashMap<Key, Arc<Resource>>>,
    entries_max: usize,
    interval_ms: u64,
    /// Closes with the catalog; its thread sees it.
    _alive: SyncSender<Infallible>,
}

impl Catalog {
    /// An empty catalog of `sites`, and the thread that checks its entries; the
    /// thread ends when the catalog is dropped.
    pub(crate) fn start(
        sites: SiteSet,
        store: Arc<Store>,
        watcher: Arc<Watcher>,
        entries_max: usize,
        interval_ms: u64,
    ) -> std::io::Result<Arc<Self>> {
        // Nothing is ever sent: only its end says something.
        let (alive, dropped) = sync_channel(0);
        let catalog = Arc::new(Self {
            _alive: alive,
            sites,
            shelf: Shelf::new(&store, entries_max),
            heads: Heads::new(&store, entries_max),
            store,
            watcher,
            entries: Mutex::default(),
            entries_max,
            interval_ms,
        });
        let watched = Arc::downgrade(&catalog);
        std::thread::Builder::new()
            .name("skep-fresh".into())
            .spawn(move || keep_checking(&watched, interval_ms, &dropped))?;
        Ok(catalog)
    }

    /// The sites.
    pub(crate) fn sites(&self) -> &SiteSet {
        &self.sites
    }

    /// What is known of the paths of sites with origins.
    pub(crate) fn shelf(&self) -> &Arc<Shelf> {
        &self.shelf
    }

    /// What is known of the paths that other nodes have.
    pub(crate) fn heads(&self) -> &Arc<Heads> {
        &self.heads
    }

    /// Longest age of a check that still counts, in milliseconds.
    pub(crate) fn interval_ms(&self) -> u64 {
        self.interval_ms
    }

    /// What `path` of `site` leads to. [`DiskError::WouldBlock`] only with
    /// [`Wait::No`].
    pub(crate) fn locate(
        &self,
        site: &Arc<Site>,
        path: &[u8],
        wait: Wait,
    ) -> Result<Located, DiskError> {
        let key = (site.index, Box::<[u8]>::from(path));
        let began_ms = monotonic_ms();
        let known = self.lock().get(&key).map(Arc::clone);
        if let Some(resource) = known {
            if resource.is_purged() {
                resource.drop_purged(&self.store);
            }
            if resource.is_current(began_ms, self.interval_ms) {
                return Ok(Located::Resource(resource, None));
            }
        }
        // Known before the disk is looked at, as is the generation: what is
        // purged or changed in between shows as a difference.
        let purges = site.purges.load();
        let directory = self.directory(site, path, wait)?;
        let generation = directory.generation();
        let (variants, file) = match look_up(site, path, wait, &purges.known) {
            Ok(Found::File(variants, file)) => (variants, file),
            Ok(Found::NeedsSlash) => return self.lost(&key, Ok(Located::NeedsSlash)),
            Ok(Found::Directory) => return self.lost(&key, Ok(Located::Directory)),
            Err(DiskError::WouldBlock) => return Err(DiskError::WouldBlock),
            Err(error) => return self.lost(&key, Err(error)),
        };
        let checks = Checks {
            directory,
            generation: AtomicU64::new(generation),
            verified_ms: AtomicU64::new(began_ms),
        };
        let found = Resource::new(site, variants, Validity::Checked(checks), &purges);
        Ok(Located::Resource(self.insert(key, found), Some(file)))
    }

    /// The same, on a thread that may wait for a disk if it must.
    pub(crate) async fn locate_or_wait(
        self: &Arc<Self>,
        site: &Arc<Site>,
        path: &[u8],
    ) -> Result<Located, DiskError> {
        match self.locate(site, path, Wait::No) {
            Err(DiskError::WouldBlock) => {
                let (catalog, site, path) = (Arc::clone(self), Arc::clone(site), path.to_vec());
                pool(move || catalog.locate(&site, &path, Wait::Yes)).await
            }
            located => located,
        }
    }

    /// Takes a resource out because it was found to be another by now, or gone.
    pub(crate) fn retire(&self, resource: &Arc<Resource>) {
        resource.retire(&self.store);
    }

    /// Enters what was found. If it is what was known, the known one stays, so
    /// that what points to it remains useful.
    fn insert(&self, key: Key, mut found: Resource) -> Arc<Resource> {
        let mut entries = self.lock();
        if let Some(known) = entries.get(&key) {
            let same = known.variants.iter().map(|object| object.file());
            if !known.is_retired()
                && known.variants.plain.purged() == found.variants.plain.purged()
                && same.eq(found.variants.iter().map(|object| object.file()))
                && let (Some(old), Some(new)) = (known.checks(), found.checks())
                && Arc::ptr_eq(&old.directory, &new.directory)
            {
                let verified_ms = new.verified_ms.load(Ordering::Relaxed);
                old.verified(verified_ms, new.generation.load(Ordering::Relaxed));
                known.compared.store(*found.compared.get_mut(), Ordering::Release);
                known.mark_used();
                return Arc::clone(known);
            }
        }
        if entries.len() >= self.entries_max {
            forget_unused(&mut entries, self.entries_max);
        }
        let found = Arc::new(found);
        let replaced = entries.insert(key, Arc::clone(&found));
        drop(entries);
        if let Some(replaced) = replaced {
            self.retire(&replaced);
        }
        found
    }

    /// The path no longer leads to a file.
    fn lost<T>(&self, key: &Key, result: Result<T, DiskError>) -> Result<T, DiskError> {
        let lost = self.lock().remove(key);
        if let Some(lost) = lost {
            self.retire(&lost);
        }
        result
    }

    fn directory(&self, site: &Site, path: &[u8], wait: Wait) -> Result<Arc<Directory>, DiskError> {
        let parent = parent(site, path);
        match (self.watcher.known(&parent), wait) {
            (Some(directory), _) => Ok(directory),
            (None, Wait::No) => Err(DiskError::WouldBlock),
            (None, Wait::Yes) => Ok(self.watcher.watch(&parent)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Resource>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes room: first what was not used since the last check, then anything.
fn forget_unused(entries: &mut HashMap<Key, Arc<Resource>>, entries_max: usize) {
    entries.retain(|_, resource| resource.used.load(Ordering::Relaxed));
    let mut surplus = (entries.len() + 1).saturating_sub(entries_max * 7 / 8);
    entries.retain(|_, _| {
        let keep = surplus == 0;
        surplus = surplus.saturating_sub(1);
        keep
    });
}

/// Checks what is in use twice per interval, so that it never runs out.
fn keep_checking(catalog: &Weak<Catalog>, interval_ms: u64, dropped: &Receiver<Infallible>) {
    let pause = Duration::from_millis((interval_ms / 2).max(1));
    loop {
        // Over at once when the catalog is: reloads must not pile up threads.
        if dropped.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        let Some(catalog) = catalog.upgrade() else { return };
        let used: Vec<Arc<Resource>> = {
            let entries = catalog.lock();
            let used = entries.values().filter(|r| r.take_used());
            used.map(Arc::clone).collect()
        };
        for resource in used {
            if resource.is_purged() {
                resource.drop_purged(&catalog.store);
                continue;
            }
            let Some(checks) = resource.checks() else { continue };
            let began_ms = monotonic_ms();
            let generation = checks.directory.generation();
            if resource.matches_disk() {
                checks.verified(began_ms, generation);
            } else {
                catalog.retire(&resource);
            }
        }
    }
}
