//! The public interface of the store, and the thread behind it.

use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use arc_swap::ArcSwap;
use skep_units::EPOCH_STORED_MAX;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep, timeout};

use crate::backend::Backend;
use crate::embedded::Embedded;
use crate::error::{StoreError, StoreOpenError};
use crate::etcd::{Candidate, Etcd, LEADER};
use crate::file::File;
use crate::latest::{Latest, Notify};
use crate::limits::{
    ATTEMPT_TIMEOUT_MS, CALL_MARGIN_MS, CALL_TIMEOUT_MS, CALLS_MAX, CONFIG_BYTES_MAX,
    HEALTH_INTERVAL_MS, KEY_BYTES_MAX, LEASE_TTL_MAX_S, LEASE_TTL_MIN_S, RESIGN_TIMEOUT_MS,
    RESOLVER_THREADS_MAX, STARTS_MAX, WATCH_REREAD_MS, WATCH_RETRY_MS,
};
use crate::pending::{Pending, wait_until};
use crate::types::{
    Expected, Health, Held, Leader, LeadershipView, Seen, StoredValue, check_key, check_length,
    check_value,
};

/// The keys of the config text, and of the epoch in decimal digits. Keys of callers are below `kv/`.
const CONFIG: &str = "config";
const EPOCH: &str = "epoch";

/// The location of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreSettings {
    /// In a file of this machine.
    Embedded {
        /// The file; created if it is missing, in a directory that exists. While the disk has no room for it,
        /// calls fail, and each call tries again.
        file: PathBuf,
    },
    /// In an etcd 3.4 or newer.
    Etcd {
        /// `http://HOST:PORT` of each member's client port.
        endpoints: Vec<String>,
        /// Name of the cluster; keys are below `/skep/CLUSTER/`.
        cluster: String,
    },
}

/// An open store. Clones share it; the thread ends with the last of them and of their campaigns and
/// watches.
///
/// No method blocks. Calls of one store are executed in the order in which they were made, each
/// within [`CALL_TIMEOUT_MS`] from then.
#[derive(Clone)]
pub struct Store {
    calls: mpsc::Sender<Task>,
    starts: mpsc::Sender<Task>,
    health: Arc<ArcSwap<Health>>,
    /// Its sender is dropped when the thread ends.
    ended: watch::Receiver<()>,
}

/// A campaign for leadership. It resigns on drop.
pub struct Campaign {
    latest: Arc<ArcSwap<Held>>,
    _stop: oneshot::Sender<()>,
    /// Keeps the thread alive.
    _store: Store,
}

/// A value that is kept up to date. Updates end on drop.
pub struct Watch {
    latest: Arc<ArcSwap<Seen>>,
    _stop: oneshot::Sender<()>,
    /// Keeps the thread alive.
    _store: Store,
}

/// Work for the store's thread.
type Task = Box<dyn FnOnce(Rc<Backend>) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

impl Store {
    /// Opens the file, or prepares for etcd, which need not be available yet. Starts the store's thread. The
    /// only function here that waits for a disk.
    pub fn open(settings: &StoreSettings) -> Result<Self, StoreOpenError> {
        let (calls, call_queue) = mpsc::channel(CALLS_MAX);
        let (starts, start_queue) = mpsc::channel(STARTS_MAX);
        let (alive, ended) = watch::channel(());
        let runtime = runtime().map_err(StoreOpenError::Thread)?;
        let backend = {
            let _within = runtime.enter();
            open(settings)?
        };
        let health = Arc::new(ArcSwap::from_pointee(Health {
            answering: 0,
            of: 0,
            what: "endpoints",
            problems: vec!["not asked yet".to_owned()],
        }));
        let published = Arc::clone(&health);
        let work = move || {
            LocalSet::new().block_on(&runtime, run(backend, call_queue, start_queue, published));
            runtime.shutdown_background();
            drop(alive);
        };
        let thread = thread::Builder::new().name("skep-store".to_owned()).spawn(work);
        thread.map_err(StoreOpenError::Thread)?;
        Ok(Self { calls, starts, health, ended })
    }

    /// Reads the value at `key`, if there is one.
    pub fn get(&self, key: &str) -> Pending<Option<StoredValue>> {
        let key = match full_key(key) {
            Ok(key) => key,
            Err(error) => return Pending::failed(error),
        };
        self.call(async move |backend, deadline| Ok(backend.get(&key, deadline).await?.entry))
    }

    /// Writes `value` at `key` if the present value is as expected; returns the revision of this write, or
    /// [`StoreError::Conflict`].
    pub fn put(&self, key: &str, value: &[u8], expected: Expected) -> Pending<u64> {
        let key = match full_key(key).and_then(|key| check_value(value).map(|()| key)) {
            Ok(key) => key,
            Err(error) => return Pending::failed(error),
        };
        let value = value.to_owned();
        self.call(async move |backend, deadline| {
            backend.put(&key, &value, expected, deadline).await
        })
    }

    /// Keeps the value at `key` up to date. `notify` is called for every change on the store's thread, and
    /// must not block.
    pub fn watch(
        &self,
        key: &str,
        notify: impl Fn(&Seen) + Send + 'static,
    ) -> Result<Watch, StoreError> {
        self.start_watch(full_key(key)?, Box::new(notify))
    }

    /// Stores `epoch` as the last one, unless a greater one is stored already. An invalid stored value is
    /// replaced.
    pub fn record_epoch(&self, epoch: u64) -> Pending<()> {
        self.call(async move |backend, deadline| {
            loop {
                let (last, expected) = read_epoch(backend, deadline).await?;
                if last.is_some_and(|last| last >= epoch) {
                    return Ok(());
                }
                let text = epoch.to_string();
                match backend.put(EPOCH, text.as_bytes(), expected, deadline).await {
                    Ok(_) => return Ok(()),
                    // Another process wrote meanwhile: compare again.
                    Err(StoreError::Conflict { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        })
    }

    /// Returns the greatest epoch recorded; 0 before the first. Fails if the stored value is not an epoch.
    pub fn last_epoch(&self) -> Pending<u64> {
        self.call(async |backend, deadline| match read_epoch(backend, deadline).await? {
            (Some(epoch), _) => Ok(epoch),
            (None, Expected::Absent) => Ok(0),
            (None, _) => Err(foreign(EPOCH, "a number up to 2^62")),
        })
    }

    /// Stores `text` as the current config; returns its revision.
    pub fn publish_config(&self, text: &str, expected: Expected) -> Pending<u64> {
        if let Err(error) = check_length("the config", text.len(), CONFIG_BYTES_MAX) {
            return Pending::failed(error);
        }
        let text = text.to_owned();
        self.call(async move |backend, deadline| {
            backend.put(CONFIG, text.as_bytes(), expected, deadline).await
        })
    }

    /// Returns the current config and its revision, if there is one.
    pub fn config(&self) -> Pending<Option<(String, u64)>> {
        self.call(async |backend, deadline| {
            let Some(entry) = backend.get(CONFIG, deadline).await?.entry else { return Ok(None) };
            let text = String::from_utf8(entry.value).map_err(|_| foreign(CONFIG, "text"))?;
            Ok(Some((text, entry.revision)))
        })
    }

    /// As [`Self::watch`], for the current config.
    pub fn watch_config(
        &self,
        notify: impl Fn(&Seen) + Send + 'static,
    ) -> Result<Watch, StoreError> {
        self.start_watch(CONFIG.to_owned(), Box::new(notify))
    }

    /// Campaigns for leadership of the cluster as `name`, with leases of `ttl_s` seconds, clamped to
    /// [`LEASE_TTL_MIN_S`] and [`LEASE_TTL_MAX_S`]. `notify` is called for every change on the store's
    /// thread, and must not block.
    pub fn campaign(
        &self,
        name: &str,
        ttl_s: u64,
        notify: impl Fn(&LeadershipView) + Send + 'static,
    ) -> Result<Campaign, StoreError> {
        check_length("a candidate's name", name.len(), KEY_BYTES_MAX)?;
        let latest = Arc::new(ArcSwap::from_pointee(Held::unknown(0)));
        let notify: Notify<Held> = Box::new(move |held: &Held| notify(&held.view));
        let published = Latest::new(Arc::clone(&latest), notify);
        let ttl = Duration::from_secs(ttl_s.clamp(LEASE_TTL_MIN_S, LEASE_TTL_MAX_S));
        let name = name.to_owned();
        let stop = self.start(async move |backend, stop| match &*backend {
            Backend::Etcd(etcd) => Candidate::new(name, ttl, published).run(etcd, stop).await,
            Backend::Embedded(_) => {
                let view = LeadershipView { leader: Leader::NoOpinion, epoch: 0 };
                published.publish(Held { view, good_until: None }, true);
            }
        })?;
        Ok(Campaign { latest, _stop: stop, _store: self.clone() })
    }

    /// Keeps the name of the leader up to date, for processes that do not campaign: there is no entry while
    /// there is no leader. `notify` is called as for [`Self::watch`].
    pub fn watch_leader(
        &self,
        notify: impl Fn(&Seen) + Send + 'static,
    ) -> Result<Watch, StoreError> {
        self.start_watch(LEADER.to_owned(), Box::new(notify))
    }

    /// Returns the health of the store, at most a few seconds old.
    pub fn health(&self) -> Arc<Health> {
        self.health.load_full()
    }

    /// Drops this handle and waits at most `timeout` until the thread has ended: leases are revoked, and the
    /// file is closed. Returns whether it has ended, which it does not while other handles, campaigns or
    /// watches exist.
    pub fn close(self, timeout: Duration) -> bool {
        let mut ended = self.ended.clone();
        drop(self);
        let deadline = std::time::Instant::now() + timeout;
        wait_until(deadline, async { while ended.changed().await.is_ok() {} }).is_some()
    }

    fn start_watch(&self, key: String, notify: Notify<Seen>) -> Result<Watch, StoreError> {
        let latest = Arc::new(ArcSwap::from_pointee(Seen::default()));
        let published = Latest::new(Arc::clone(&latest), notify);
        let stop = self.start(async move |backend, stop| {
            tokio::select! {
                _ = stop => {}
                () = keep_up(&backend, &key, &published) => {}
            }
        })?;
        Ok(Watch { latest, _stop: stop, _store: self.clone() })
    }

    /// Queues `operation` for the store's thread.
    fn call<T: Send + 'static>(
        &self,
        operation: impl AsyncFnOnce(&Backend, Instant) -> Result<T, StoreError> + Send + 'static,
    ) -> Pending<T> {
        let (reply, pending) = Pending::new();
        let margin = Duration::from_millis(CALL_MARGIN_MS);
        let deadline = Instant::from_std(pending.deadline()) - margin;
        let task: Task = Box::new(move |backend| {
            Box::pin(async move {
                // The caller may have stopped waiting.
                let _ = reply.send(operation(&backend, deadline).await);
            })
        });
        match self.calls.try_send(task) {
            Ok(()) => pending,
            Err(error) => Pending::failed(refused(&error)),
        }
    }

    /// Has the thread run `operation` concurrently with all others until the returned sender is dropped.
    fn start(
        &self,
        operation: impl AsyncFnOnce(Rc<Backend>, oneshot::Receiver<()>) + Send + 'static,
    ) -> Result<oneshot::Sender<()>, StoreError> {
        let (stop, stopped) = oneshot::channel();
        let task: Task = Box::new(move |backend| Box::pin(operation(backend, stopped)));
        self.starts.try_send(task).map_err(|error| refused(&error))?;
        Ok(stop)
    }
}

impl Campaign {
    /// Returns the present leader: a lease that has expired since the store last answered does not count.
    pub fn view(&self) -> LeadershipView {
        self.latest.load().at(Instant::now())
    }
}

impl Watch {
    /// The last known value.
    pub fn seen(&self) -> Arc<Seen> {
        self.latest.load_full()
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().max_blocking_threads(RESOLVER_THREADS_MAX).build()
}

fn open(settings: &StoreSettings) -> Result<Backend, StoreOpenError> {
    match settings {
        StoreSettings::Embedded { file } => {
            Ok(Backend::Embedded(Embedded::start(File::open_or_wait(file)?)?))
        }
        StoreSettings::Etcd { endpoints, cluster } => {
            if check_key(cluster).is_err() || cluster.contains(['/', ':']) {
                return Err(StoreOpenError::Cluster(cluster.clone()));
            }
            Ok(Backend::Etcd(Etcd::new(endpoints, cluster)?))
        }
    }
}

/// The main loop of the store's thread.
async fn run(
    backend: Backend,
    mut calls: mpsc::Receiver<Task>,
    mut starts: mpsc::Receiver<Task>,
    health: Arc<ArcSwap<Health>>,
) {
    let backend = Rc::new(backend);
    let mut started = JoinSet::new();
    let served = Rc::clone(&backend);
    let serving = tokio::task::spawn_local(async move {
        while let Some(call) = calls.recv().await {
            call(Rc::clone(&served)).await;
        }
    });
    let checked = Rc::clone(&backend);
    let checking = tokio::task::spawn_local(async move { check(&checked, &health).await });
    loop {
        tokio::select! {
            start = starts.recv() => match start {
                Some(start) => { started.spawn_local(start(Rc::clone(&backend))); }
                None => break,
            },
            Some(_) = started.join_next() => {}
        }
    }
    checking.abort();
    let leaving = async {
        while started.join_next().await.is_some() {}
        // Queued calls are still executed.
        let _ = serving.await;
    };
    let _ = timeout(Duration::from_millis(RESIGN_TIMEOUT_MS), leaving).await;
}

/// Checks the health of the store periodically.
async fn check(backend: &Backend, health: &ArcSwap<Health>) {
    loop {
        let deadline = Instant::now() + Duration::from_millis(ATTEMPT_TIMEOUT_MS);
        health.store(Arc::new(backend.health(deadline).await));
        sleep(Duration::from_millis(HEALTH_INTERVAL_MS)).await;
    }
}

/// Reads `key` again whenever it may have changed.
async fn keep_up(backend: &Backend, key: &str, latest: &Latest<Seen>) {
    loop {
        let deadline = Instant::now() + Duration::from_millis(CALL_TIMEOUT_MS);
        let read = backend.get(key, deadline).await;
        let before = latest.get();
        let seen = match &read {
            Ok(read) => Seen { entry: read.entry.clone(), is_current: true },
            Err(_) => Seen { entry: before.entry.clone(), is_current: false },
        };
        if seen != *before {
            latest.publish(seen, true);
        }
        match read {
            Ok(read) => {
                let most = Duration::from_millis(WATCH_REREAD_MS);
                // In either case the value is read again.
                let _ = timeout(most, backend.changed(key, read.as_of)).await;
            }
            Err(_) => sleep(Duration::from_millis(WATCH_RETRY_MS)).await,
        }
    }
}

/// Reads the last epoch, if there is one; returns it with the expectation for putting the next one.
async fn read_epoch(
    backend: &Backend,
    deadline: Instant,
) -> Result<(Option<u64>, Expected), StoreError> {
    let Some(entry) = backend.get(EPOCH, deadline).await?.entry else {
        return Ok((None, Expected::Absent));
    };
    let epoch = std::str::from_utf8(&entry.value).ok().and_then(|text| text.parse().ok());
    let epoch = epoch.filter(|epoch| *epoch <= EPOCH_STORED_MAX);
    Ok((epoch, Expected::Revision(entry.revision)))
}

fn full_key(key: &str) -> Result<String, StoreError> {
    check_key(key)?;
    Ok(format!("kv/{key}"))
}

fn foreign(key: &str, expected: &'static str) -> StoreError {
    StoreError::Foreign { key: key.to_owned(), expected }
}

fn refused(error: &mpsc::error::TrySendError<Task>) -> StoreError {
    match error {
        mpsc::error::TrySendError::Full(_) => StoreError::Busy,
        mpsc::error::TrySendError::Closed(_) => StoreError::Closed,
    }
}
