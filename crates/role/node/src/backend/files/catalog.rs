//! The catalog: the resource at each path, and whether it is still current.
//!
//! An entry may be served if it was checked within the interval and its directory has
//! reported no change. A thread checks the entries in use, so a hit never makes a system
//! call; an unused entry is checked by the next request for it.

use std::convert::Infallible;
use std::fs::File;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hashbrown::HashMap;
use skep_segments::{Charge, HeadAccount, SegmentStore};
use skep_serve::monotonic_ms;

use crate::backend::dynamic::PoolHeads;
use crate::backend::files::look_up::{FoundFile, look_up, parent};
use crate::backend::origin::OriginHeadCache;
use crate::backend::partition::PartHeadCache;
use crate::disk::pool::pool;
use crate::disk::watch::{Directory, Watcher};
use crate::disk::{DiskError, Wait};
use crate::limits::{HEAD_SLOT_BYTES, SETTLE_WAIT_MS};
use crate::model::resource::Resource;
use crate::model::route::Route;
use crate::model::site::SiteSet;

/// The result of a look-up in the catalog.
pub(crate) enum Located {
    /// A file; with it the open plain file if it had to be opened.
    Resource(Arc<Resource>, Option<File>),
    /// A directory asked for without its slash.
    NeedsSlash,
    /// A directory to list.
    Directory,
}

type Key = (usize, Box<[u8]>);

struct Kept {
    resource: Arc<Resource>,
    /// Charged for it, and its slot.
    _charge: Charge,
}

pub(crate) struct Catalog {
    sites: SiteSet,
    store: Arc<SegmentStore>,
    origin_heads: Arc<OriginHeadCache>,
    pool_heads: Arc<PoolHeads>,
    heads: Arc<PartHeadCache>,
    watcher: Arc<Watcher>,
    account: Arc<HeadAccount>,
    entries: Mutex<HashMap<Key, Kept>>,
    entries_max: usize,
    interval_ms: u64,
    /// Disconnects when the catalog is dropped, which ends its thread.
    _alive: SyncSender<Infallible>,
}

impl Catalog {
    /// An empty catalog of `sites`, and the thread that checks its entries; the
    /// thread ends when the catalog is dropped.
    pub(crate) fn start(
        sites: SiteSet,
        store: Arc<SegmentStore>,
        watcher: Arc<Watcher>,
        entries_max: usize,
        interval_ms: u64,
    ) -> std::io::Result<Arc<Self>> {
        // Nothing is ever sent: only the disconnection is observed.
        let (alive, dropped) = sync_channel(0);
        let catalog = Arc::new(Self {
            _alive: alive,
            sites,
            origin_heads: OriginHeadCache::new(&store, entries_max),
            pool_heads: PoolHeads::new(&store, entries_max),
            heads: PartHeadCache::new(&store, entries_max),
            account: store.account(),
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

    pub(crate) fn sites(&self) -> &SiteSet {
        &self.sites
    }

    /// The cache of heads of routes with origins.
    pub(crate) fn origin_heads(&self) -> &Arc<OriginHeadCache> {
        &self.origin_heads
    }

    /// The cache of heads of routes with pools.
    pub(crate) fn pool_heads(&self) -> &Arc<PoolHeads> {
        &self.pool_heads
    }

    /// The cache of heads of other nodes' files.
    pub(crate) fn heads(&self) -> &Arc<PartHeadCache> {
        &self.heads
    }

    /// Age up to which a check is valid, in milliseconds.
    pub(crate) fn interval_ms(&self) -> u64 {
        self.interval_ms
    }

    /// The cached resource at `path` of `route`; the disk is not read.
    pub(crate) fn known(&self, route: &Route, path: &[u8]) -> Option<Arc<Resource>> {
        let key = (route.index, Box::<[u8]>::from(path));
        let known = self.lock().get(&key).map(|kept| Arc::clone(&kept.resource))?;
        (!known.is_purged() && !known.is_retired()).then_some(known)
    }

    /// The resource at `path` of `route`. [`DiskError::WouldBlock`] only with [`Wait::No`].
    pub(crate) fn locate(
        &self,
        route: &Arc<Route>,
        path: &[u8],
        wait: Wait,
    ) -> Result<Located, DiskError> {
        let key = (route.index, Box::<[u8]>::from(path));
        let began_ms = monotonic_ms();
        let known = self.lock().get(&key).map(|kept| Arc::clone(&kept.resource));
        if let Some(resource) = known {
            if resource.is_purged() {
                resource.drop_purged(&self.store);
            }
            if resource.is_current(began_ms, self.interval_ms) {
                return Ok(Located::Resource(resource, None));
            }
        }
        // Loaded before the disk is read, as is the generation: purges and changes in between show
        // as a difference.
        let purges = route.purges.load();
        let directory = self.directory(route, path, wait)?;
        let generation = directory.generation();
        let (variants, file) = match look_up(route, path, wait, purges.hard()) {
            Ok(FoundFile::File(variants, file)) => (variants, file),
            Ok(FoundFile::NeedsSlash) => return self.lost(&key, Ok(Located::NeedsSlash)),
            Ok(FoundFile::Directory) => return self.lost(&key, Ok(Located::Directory)),
            Err(DiskError::WouldBlock) => return Err(DiskError::WouldBlock),
            Err(error) => return self.lost(&key, Err(error)),
        };
        let times = (generation, began_ms);
        let found = Resource::of_files(route, variants, directory, times, &purges);
        Ok(Located::Resource(self.insert(key, found), Some(file)))
    }

    /// The same, on a thread that may wait for a disk if necessary. A file that was just written
    /// may still be incomplete: it is checked again, a few times.
    pub(crate) async fn locate_or_wait(
        self: &Arc<Self>,
        route: &Arc<Route>,
        path: &[u8],
    ) -> Result<Located, DiskError> {
        let mut left_ms = SETTLE_WAIT_MS;
        loop {
            let located = self.locate_on_pool(route, path).await?;
            let pause_ms = match &located {
                Located::Resource(found, _) if !found.is_settled() => found.settles_in_ms(),
                _ => 0,
            };
            let pause_ms = pause_ms.min(left_ms);
            if pause_ms == 0 {
                return Ok(located);
            }
            left_ms -= pause_ms;
            drop(located);
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
    }

    async fn locate_on_pool(
        self: &Arc<Self>,
        route: &Arc<Route>,
        path: &[u8],
    ) -> Result<Located, DiskError> {
        match self.locate(route, path, Wait::No) {
            Err(DiskError::WouldBlock) => {
                let (catalog, route, path) = (Arc::clone(self), Arc::clone(route), path.to_vec());
                pool(move || catalog.locate(&route, &path, Wait::Yes)).await
            }
            located => located,
        }
    }

    /// Drops all entries because another catalog is current. Requests in progress continue with the
    /// resources that they have.
    pub(crate) fn retire_all(&self) {
        *self.lock() = HashMap::new();
        self.origin_heads.forget_all();
        self.pool_heads.forget_all();
        self.heads.forget_all();
    }

    /// Takes a resource out of use because it has changed or is gone.
    pub(crate) fn retire(&self, resource: &Arc<Resource>) {
        resource.retire(&self.store);
    }

    /// Inserts a found resource if it may be cached. If it equals the cached one, the cached one
    /// stays, so that references to it remain valid.
    fn insert(&self, key: Key, found: Resource) -> Arc<Resource> {
        let mut entries = self.lock();
        if let Some(known) = entries.get(&key).filter(|known| known.resource.is_still(&found)) {
            return Arc::clone(&known.resource);
        }
        if !found.is_settled() {
            let replaced = entries.remove(&key);
            drop(entries);
            replaced.into_iter().for_each(|replaced| self.retire(&replaced.resource));
            return Arc::new(found);
        }
        if entries.len() >= self.entries_max || self.account.is_full() {
            forget_unused(&mut entries, self.entries_max, &self.account);
        }
        let bytes = HEAD_SLOT_BYTES + key.1.len() + found.memory_bytes();
        let found = Arc::new(found);
        let kept = Kept { resource: Arc::clone(&found), _charge: self.account.charge(bytes) };
        let replaced = entries.insert(key, kept);
        drop(entries);
        self.store.fit();
        if let Some(replaced) = replaced {
            self.retire(&replaced.resource);
        }
        found
    }

    /// Removes an entry whose path no longer leads to a file.
    fn lost<T>(&self, key: &Key, result: Result<T, DiskError>) -> Result<T, DiskError> {
        let lost = self.lock().remove(key);
        if let Some(lost) = lost {
            self.retire(&lost.resource);
        }
        result
    }

    fn directory(
        &self,
        route: &Route,
        path: &[u8],
        wait: Wait,
    ) -> Result<Arc<Directory>, DiskError> {
        let parent = parent(route.folder().ok_or(DiskError::NotFound)?, path);
        match (self.watcher.known(&parent), wait) {
            (Some(directory), _) => Ok(directory),
            (None, Wait::No) => Err(DiskError::WouldBlock),
            (None, Wait::Yes) => Ok(self.watcher.watch(&parent)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Kept>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes room: evicts entries not used since the last check first, then arbitrary ones.
fn forget_unused(entries: &mut HashMap<Key, Kept>, entries_max: usize, account: &HeadAccount) {
    let mut surplus = (entries.len() + 1).saturating_sub(entries_max * 7 / 8);
    for spares_used in [true, false] {
        let is_to_go = |kept: &Kept, surplus| {
            (surplus > 0 || !account.is_roomy()) && !(spares_used && kept.resource.is_used())
        };
        entries.retain(|_, kept| {
            let goes = is_to_go(kept, surplus);
            surplus = surplus.saturating_sub(usize::from(goes));
            !goes
        });
    }
    if entries.capacity() / 4 > entries.len() {
        entries.shrink_to_fit();
    }
}

/// Checks the entries in use twice per interval, so that they never expire.
fn keep_checking(catalog: &Weak<Catalog>, interval_ms: u64, dropped: &Receiver<Infallible>) {
    let pause = Duration::from_millis((interval_ms / 2).max(1));
    loop {
        // Returns as soon as the catalog is dropped: reloads must not accumulate threads.
        if dropped.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        let Some(catalog) = catalog.upgrade() else { return };
        let used: Vec<Arc<Resource>> = {
            let entries = catalog.lock();
            let used = entries.values().map(|kept| &kept.resource).filter(|it| it.take_used());
            used.map(Arc::clone).collect()
        };
        for resource in used {
            if resource.is_purged() {
                resource.drop_purged(&catalog.store);
            } else if !resource.check() {
                catalog.retire(&resource);
            }
        }
    }
}
