//! The thread that walks this node's partitions and announces their files and folders.
//!
//! A folder is read again when the kernel reports a change, or when a periodic check finds another
//! folder or another modification time. The new listing is compared with the previous one; new
//! folders are walked, removed folders are dropped with all their contents.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use hashbrown::HashMap;
use rustix::fs::FileType;
use skep_serve::{monotonic_ms, unix_ms};
use skep_wire::cache::SegmentName;

use crate::disk::watch::{Directory, Watcher};
use crate::disk::{FileKind, FolderStamp, Root, Wait};
use crate::limits::{PART_ENTRIES_MAX, PART_TICK_MS, PART_UNSETTLED_MS, PATH_BYTES_MAX};
use crate::model::announced::{Announced, AnnouncedPath, WalkTerm};
use crate::model::route::{FolderBackend, Route};
use crate::model::site::SiteSet;

/// Walks the partitions of a config until it is dropped.
#[derive(Debug)]
pub(crate) struct Walker {
    /// Disconnects when the walker is dropped, which ends the thread.
    _alive: SyncSender<Infallible>,
}

impl Walker {
    /// Starts to walk the partitions in `sites`. Announcements of other sites are withdrawn.
    pub(crate) fn start(
        sites: &SiteSet,
        announced: &Arc<Announced>,
        watcher: &Arc<Watcher>,
        interval_ms: u64,
    ) -> std::io::Result<Self> {
        let (alive, ended) = sync_channel(0);
        let parts =
            sites.routes().filter(|route| route.is_partition()).map(Part::new).collect::<Vec<_>>();
        let mut walk = Walk {
            term: announced.begin(),
            announced: Arc::clone(announced),
            watcher: Arc::clone(watcher),
            left: PART_ENTRIES_MAX,
            has_skipped: false,
        };
        if parts.is_empty() {
            announced.settle(walk.term, true);
        } else {
            let thread = std::thread::Builder::new().name("skep-parts".into());
            thread.spawn(move || walk.run(parts, interval_ms, &ended))?;
        }
        Ok(Self { _alive: alive })
    }
}

/// A route of which this node stores a part, and the folders found there.
struct Part {
    route: Arc<Route>,
    /// Folders by their path below the root, without a slash at the end. A folder's name followed
    /// by a slash is the prefix of all paths in it.
    folders: BTreeMap<Vec<u8>, Folder>,
    /// Folders that could not be read; retried periodically.
    unread: Vec<Vec<u8>>,
}

/// A folder as of the last read.
struct Folder {
    watched: Arc<Directory>,
    generation: u64,
    stamp: FolderStamp,
    /// Whether a change after the read would show in the modification time.
    is_settled: bool,
    /// The announced entries, and whether each is a folder.
    entries: HashMap<Box<[u8]>, bool>,
}

/// The state shared by all parts.
struct Walk {
    announced: Arc<Announced>,
    watcher: Arc<Watcher>,
    term: WalkTerm,
    /// Entries that may still be announced.
    left: usize,
    /// Whether some entries were not announced: coordinators must not answer that no node has them.
    has_skipped: bool,
}

impl Walk {
    fn run(&mut self, mut parts: Vec<Part>, interval_ms: u64, ended: &Receiver<Infallible>) {
        for part in &mut parts {
            part.visit(self, Vec::new());
        }
        self.announced.settle(self.term, !self.has_skipped);
        let pause = Duration::from_millis((interval_ms / 2).clamp(1, PART_TICK_MS));
        let mut looked_ms = monotonic_ms();
        // Ends as soon as the walker is dropped.
        while ended.recv_timeout(pause) != Err(RecvTimeoutError::Disconnected) {
            let is_by_time = monotonic_ms().saturating_sub(looked_ms) >= interval_ms / 2;
            if is_by_time {
                looked_ms = monotonic_ms();
            }
            let doubted = self.announced.take_doubted();
            for part in &mut parts {
                let mut changed = part.changed(is_by_time);
                changed.extend(if is_by_time { part.take_unread() } else { Vec::new() });
                let own = doubted.iter().filter(|(_, place)| place.route == part.route.short_key);
                changed.extend(own.map(|(_, place)| parent(&place.relative).to_vec()));
                changed.into_iter().for_each(|folder| part.visit(self, folder));
            }
            self.announced.tell_again(doubted.into_iter().map(|(name, _)| name));
        }
    }
}

impl Part {
    fn new(route: &Arc<Route>) -> Self {
        Self { route: Arc::clone(route), folders: BTreeMap::new(), unread: Vec::new() }
    }

    fn folder(&self) -> &FolderBackend {
        #[expect(clippy::expect_used, reason = "the walker takes partitions, which are folders")]
        self.route.folder().expect("a partition is a folder")
    }

    /// Folders that may have changed since they were read.
    fn changed(&self, is_by_time: bool) -> Vec<Vec<u8>> {
        let root = is_by_time.then(|| self.route.open_root());
        let is_changed = |(path, folder): &(&Vec<u8>, &Folder)| {
            folder.watched.generation() != folder.generation
                || root.as_ref().is_some_and(|root| {
                    let stamp = root.as_ref().ok().and_then(|root| root.folder(path).ok());
                    !folder.is_settled || stamp != Some(folder.stamp)
                })
        };
        self.folders.iter().filter(is_changed).map(|(path, _)| path.clone()).collect()
    }

    /// Takes the folders that could not be read and are still relevant: the root, and folders in
    /// one that was read.
    fn take_unread(&mut self) -> Vec<Vec<u8>> {
        let mut unread = std::mem::take(&mut self.unread);
        unread.sort();
        unread.dedup();
        unread.retain(|path| {
            let name = path.strip_prefix(parent(path)).unwrap_or(path);
            let name = name.strip_prefix(b"/").unwrap_or(name);
            let around = self.folders.get(parent(path));
            path.is_empty() || around.is_some_and(|it| it.entries.get(name) == Some(&true))
        });
        unread
    }

    /// Reads the folder at `path`, and its new entries.
    fn visit(&mut self, walk: &mut Walk, path: Vec<u8>) {
        let mut waiting = vec![path];
        while let Some(path) = waiting.pop() {
            // Watched before it is read, so that changes in between are noticed.
            let watched = walk.watcher.watch(&self.on_disk(&path));
            let generation = watched.generation();
            let Some(read) = self.read(walk, &path) else {
                self.forget(walk, &path);
                self.unread.push(path);
                continue;
            };
            let known = self.folders.get(&path);
            if known.is_some_and(|known| !known.stamp.is_same_folder(&read.stamp)) {
                self.forget(walk, &path);
            }
            let before = self.folders.remove(&path).map(|known| known.entries).unwrap_or_default();
            let entries = self.compare(walk, &path, before, read.entries, &mut waiting);
            let changed_ms = u64::try_from(read.stamp.mtime_ns / 1_000_000).unwrap_or(0);
            let is_settled = changed_ms + PART_UNSETTLED_MS < unix_ms();
            let folder = Folder { watched, generation, stamp: read.stamp, is_settled, entries };
            self.folders.insert(path, folder);
        }
    }

    /// Announces new entries and withdraws removed ones; new folders are appended to `waiting`.
    /// Returns the entries announced by this call.
    fn compare(
        &mut self,
        walk: &mut Walk,
        path: &[u8],
        before: HashMap<Box<[u8]>, bool>,
        mut now: HashMap<Box<[u8]>, bool>,
        waiting: &mut Vec<Vec<u8>>,
    ) -> HashMap<Box<[u8]>, bool> {
        for (name, is_folder) in &before {
            let is_now = now.get(name);
            if is_now.is_none() {
                self.withdraw(walk, &joined(path, name));
            }
            if *is_folder && is_now != Some(&true) {
                self.forget(walk, &joined(path, name));
            }
        }
        let mut new = Vec::new();
        now.retain(|name, is_folder| {
            let is_new = !before.contains_key(name);
            if is_new && !walk.take_entry() {
                return false;
            }
            let relative = joined(path, name);
            if *is_folder && before.get(name) != Some(&true) {
                waiting.push(relative.clone());
            }
            if is_new {
                new.push(self.announcement(relative));
            }
            true
        });
        walk.announced.add(walk.term, new.into_iter());
        now
    }

    /// Removes a folder and all its contents. (Its own entry is withdrawn with the folder that
    /// contains it.)
    fn forget(&mut self, walk: &mut Walk, path: &[u8]) {
        let inside = if path.is_empty() { Vec::new() } else { [path, b"/"].concat() };
        let within = |it: &Vec<u8>| it == path || it.starts_with(&inside);
        let from = self.folders.range(path.to_vec()..);
        // Paths such as `a-b` sort between `a` and `a/b`.
        let around = from.take_while(|(it, _)| it.starts_with(path));
        let gone: Vec<_> = around.filter(|(it, _)| within(it)).map(|(it, _)| it.clone()).collect();
        for path in gone {
            let Some(folder) = self.folders.remove(&path) else { continue };
            folder.entries.keys().for_each(|name| self.withdraw(walk, &joined(&path, name)));
        }
    }

    fn withdraw(&self, walk: &mut Walk, relative: &[u8]) {
        walk.left += 1;
        walk.announced.remove(walk.term, std::iter::once(self.route.part_head_name(relative)));
    }

    fn announcement(&self, relative: Vec<u8>) -> (SegmentName, AnnouncedPath) {
        (
            self.route.part_head_name(&relative),
            AnnouncedPath { route: self.route.short_key, relative: relative.into() },
        )
    }

    fn on_disk(&self, path: &[u8]) -> PathBuf {
        let root = &self.folder().root;
        if path.is_empty() {
            return root.clone();
        }
        root.join(Path::new(std::ffi::OsStr::from_bytes(path)))
    }

    /// The entries of a folder that would be served; `None`: the folder itself would not be served,
    /// or is not a folder.
    fn read(&self, walk: &mut Walk, path: &[u8]) -> Option<Read> {
        let root = self.route.open_root().ok()?;
        let (folder, kind) = root.open_at(path, Wait::Yes).ok()?;
        let stamp = FolderStamp::of(&folder).ok().filter(|_| kind == FileKind::Directory)?;
        let mut entries = HashMap::new();
        for entry in rustix::fs::Dir::read_from(&folder).ok()? {
            let entry = entry.ok()?;
            let name = entry.file_name().to_bytes();
            if entries.len() >= PART_ENTRIES_MAX {
                walk.skip();
                break;
            }
            if let Some(is_folder) = self.kind_of(&root, path, name, entry.file_type()) {
                entries.insert(Box::from(name), is_folder);
            }
        }
        Some(Read { stamp, entries })
    }

    /// Whether an entry is a folder; `None`: the entry would not be served.
    fn kind_of(&self, root: &Root, path: &[u8], name: &[u8], kind: FileType) -> Option<bool> {
        let relative = joined(path, name);
        if matches!(name, b"." | b"..") || relative.len() > PATH_BYTES_MAX {
            return None;
        }
        let is_folder = match kind {
            FileType::RegularFile => false,
            FileType::Directory => true,
            FileType::Symlink | FileType::Unknown => {
                let (file, kind) = root.open_at(&relative, Wait::Yes).ok()?;
                match kind {
                    FileKind::File(_) => false,
                    FileKind::Directory if self.leads_back(path, &file) => return None,
                    FileKind::Directory => true,
                    FileKind::Other => return None,
                }
            }
            _ => return None,
        };
        let end: &[u8] = if is_folder { b"/" } else { b"" };
        let shown = [b"/", &*relative, end].concat();
        self.folder().shows(&shown).then_some(is_folder)
    }

    /// Whether a link in the folder at `path` leads to a folder that contains it: the walk would
    /// never end.
    fn leads_back(&self, path: &[u8], linked: &std::fs::File) -> bool {
        let Ok(stamp) = FolderStamp::of(linked) else { return true };
        let Ok(root) = self.route.open_root() else { return true };
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let ends = slashes.map(|(at, _)| at).chain([0, path.len()]);
        let mut around = ends.map(|end| &path[..end]);
        around.any(|path| root.folder(path).is_ok_and(|it| it.is_same_folder(&stamp)))
    }
}

impl Walk {
    /// Whether another entry may be announced.
    fn take_entry(&mut self) -> bool {
        if self.left == 0 {
            self.skip();
            return false;
        }
        self.left -= 1;
        true
    }

    /// Records that an entry is not announced.
    fn skip(&mut self) {
        if !std::mem::replace(&mut self.has_skipped, true) {
            tracing::warn!(
                "this node announces its first {PART_ENTRIES_MAX} files and folders only: other \
                 nodes ask it for all paths that no node has announced"
            );
            self.announced.has_more(self.term);
        }
    }
}

/// The contents of a folder, just read.
struct Read {
    stamp: FolderStamp,
    entries: HashMap<Box<[u8]>, bool>,
}

fn joined(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

fn parent(relative: &[u8]) -> &[u8] {
    let end = relative.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    &relative[..end]
}
