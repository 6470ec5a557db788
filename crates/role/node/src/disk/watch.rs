//! Directories whose changes the kernel reports (inotify).
//!
//! A watched directory has a generation that grows with every change in it. Everything read from
//! the directory is stored with the generation at that time, and checked again if the two differ.
//! An event thus costs one atomic add, however many files the directory contains, and a hit costs
//! one atomic load.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use inotify::{EventMask, Inotify, WatchDescriptor, WatchMask, Watches};

use crate::limits::WATCHES_MAX;

/// A directory that files were served from.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    generation: AtomicU64,
}

impl Directory {
    /// Grows with every change that the kernel reports.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

/// All watched directories of a node.
pub(crate) struct Watcher {
    inner: Mutex<WatcherState>,
}

#[derive(Default)]
struct WatcherState {
    watches: Option<Watches>,
    by_path: HashMap<PathBuf, Arc<Directory>>,
    by_watch: HashMap<WatchDescriptor, (PathBuf, Arc<Directory>)>,
}

impl Watcher {
    /// Starts to receive change events. If the kernel offers no inotify, changes are detected by
    /// time only.
    pub(crate) fn start() -> Arc<Self> {
        let watcher = Arc::new(Self { inner: Mutex::default() });
        match Inotify::init() {
            Ok(inotify) => {
                watcher.lock().watches = Some(inotify.watches());
                let listener = Arc::clone(&watcher);
                let thread = std::thread::Builder::new().name("skep-watch".into());
                if let Err(error) = thread.spawn(move || listener.listen(inotify)) {
                    tracing::warn!(%error, "no thread for file changes; they are noticed by time");
                }
            }
            Err(error) => {
                tracing::warn!(%error, "inotify is not available; changes are noticed by time");
            }
        }
        watcher
    }

    /// A directory that is watched already.
    pub(crate) fn known(&self, path: &Path) -> Option<Arc<Directory>> {
        self.lock().by_path.get(path).map(Arc::clone)
    }

    /// Watches a directory from now on, if it exists. May wait for a disk.
    pub(crate) fn watch(&self, path: &Path) -> Arc<Directory> {
        let mut inner = self.lock();
        if let Some(directory) = inner.by_path.get(path) {
            return Arc::clone(directory);
        }
        let directory = Arc::new(Directory::default());
        if inner.by_path.len() >= WATCHES_MAX {
            return directory;
        }
        let mask = WatchMask::CREATE
            | WatchMask::DELETE
            | WatchMask::MODIFY
            | WatchMask::MOVED_FROM
            | WatchMask::MOVED_TO
            | WatchMask::ATTRIB
            | WatchMask::DELETE_SELF
            | WatchMask::MOVE_SELF
            | WatchMask::ONLYDIR;
        let added = inner.watches.as_mut().map(|watches| watches.add(path, mask));
        match added {
            Some(Ok(watch)) => {
                inner.by_watch.insert(watch, (path.to_path_buf(), Arc::clone(&directory)));
            }
            // A folder that does not exist must not take a slot: clients would determine how many
            // are used.
            _ if !path.is_dir() => return directory,
            Some(Err(error)) => {
                tracing::debug!(path = %path.display(), %error, "directory can't be watched");
            }
            None => {}
        }
        inner.by_path.insert(path.to_path_buf(), Arc::clone(&directory));
        directory
    }

    fn listen(&self, mut inotify: Inotify) {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match inotify.read_events_blocking(&mut buffer) {
                Ok(events) => events.for_each(|event| self.on_event(&event.wd, event.mask)),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return tracing::warn!(%error, "file changes are noticed by time from now on");
                }
            }
        }
    }

    fn on_event(&self, watch: &WatchDescriptor, mask: EventMask) {
        let mut inner = self.lock();
        if mask.contains(EventMask::Q_OVERFLOW) {
            // Events were lost: everything may have changed.
            return inner.by_path.values().for_each(|directory| directory.changed());
        }
        if let Some((_, directory)) = inner.by_watch.get(watch) {
            directory.changed();
        }
        let gone = EventMask::IGNORED | EventMask::MOVE_SELF | EventMask::DELETE_SELF;
        if mask.intersects(gone)
            && let Some((path, _)) = inner.by_watch.remove(watch)
        {
            // The path may lead to another directory now; the next look-up watches it again.
            inner.by_path.remove(&path);
            if mask.contains(EventMask::MOVE_SELF)
                && let Some(watches) = inner.watches.as_mut()
            {
                let _ = watches.remove(watch.clone());
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, WatcherState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn only_folders_that_are_there_are_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let watcher = Watcher::start();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let later = folder.path().join("later");
        for path in [&later, &folder.path().join("file")] {
            watcher.watch(path);
            assert!(watcher.known(path).is_none(), "{}", path.display());
        }
        std::fs::create_dir(&later).unwrap();
        let directory = watcher.watch(&later);
        assert!(Arc::ptr_eq(&directory, &watcher.known(&later).unwrap()));
    }

    #[test]
    fn without_inotify_it_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let watcher = Watcher { inner: Mutex::default() };
        watcher.watch(folder.path());
        assert!(watcher.known(folder.path()).is_some());
        watcher.watch(&folder.path().join("nothing"));
        assert!(watcher.known(&folder.path().join("nothing")).is_none());
    }
}
