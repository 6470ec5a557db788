//! What a node announces for its partition while the folder changes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use skep_config::{BackendConfig, ContentPlacement, SiteConfig};
use tempfile::TempDir;

use crate::backend::partition::Walker;
use crate::disk::watch::Watcher;
use crate::model::announced::Announced;
use crate::model::site::SiteSet;

/// A walked folder.
struct Walked {
    folder: TempDir,
    sites: SiteSet,
    announced: Arc<Announced>,
    watcher: Arc<Watcher>,
    walker: Option<Walker>,
}

impl Walked {
    fn start(files: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        files.iter().for_each(|file| write(folder.path(), file));
        let (announced, watcher) = (Arc::default(), Watcher::start());
        let sites = sites(folder.path(), ContentPlacement::Partition);
        let mut walked = Self { folder, sites, announced, watcher, walker: None };
        walked.walk();
        walked
    }

    fn walk(&mut self) {
        let walker = Walker::start(&self.sites, &self.announced, &self.watcher, 100).unwrap();
        self.walker = Some(walker);
    }

    fn has(&self, relative: &str) -> bool {
        let route = self.sites.routes().next().unwrap();
        self.announced.find(route.part_head_name(relative.as_bytes())).is_some()
    }

    /// Waits until exactly these places are announced.
    #[track_caller]
    fn wait_for(&self, all: &[&str]) {
        let began = Instant::now();
        let is_all = || {
            all.iter().all(|relative| self.has(relative))
                && self.announced.names().len() == all.len()
        };
        while !is_all() {
            assert!(began.elapsed() < Duration::from_secs(60), "{all:?} are not announced");
            std::thread::yield_now();
        }
    }
}

fn sites(root: &Path, content: ContentPlacement) -> SiteSet {
    let backend = BackendConfig { root: Some(root.into()), content, ..BackendConfig::default() };
    SiteSet::new(&[SiteConfig::of(backend)], &Arc::default()).unwrap()
}

fn write(root: &Path, relative: &str) {
    let path = root.join(relative);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, relative).unwrap();
}

#[test]
fn files_and_folders_are_announced_as_they_would_be_served() {
    let walked = Walked::start(&["a", "b/c", "b/d/e", ".hidden", ".git/x", "b/.x"]);
    let root = walked.folder.path();
    walked.wait_for(&["a", "b", "b/c", "b/d", "b/d/e"]);
    std::os::unix::fs::symlink("b", root.join("link")).unwrap();
    std::os::unix::fs::symlink("/etc", root.join("out")).unwrap();
    std::os::unix::fs::symlink("nowhere", root.join("dangling")).unwrap();
    std::os::unix::fs::symlink("../..", root.join("b/d/up")).unwrap();
    fs::create_dir(root.join(".well-known")).unwrap();
    write(root, ".well-known/x");
    let links = ["link", "link/c", "link/d", "link/d/e", ".well-known", ".well-known/x"];
    walked.wait_for(&[&["a", "b", "b/c", "b/d", "b/d/e"][..], &links].concat());
}

#[test]
fn what_is_moved_or_removed_is_withdrawn_with_all_that_is_in_it() {
    let walked = Walked::start(&["a/b/c", "a/b/d", "a-b", "x/b/y"]);
    let root = walked.folder.path();
    walked.wait_for(&["a", "a/b", "a/b/c", "a/b/d", "a-b", "x", "x/b", "x/b/y"]);
    fs::rename(root.join("a"), root.join("z")).unwrap();
    walked.wait_for(&["z", "z/b", "z/b/c", "z/b/d", "a-b", "x", "x/b", "x/b/y"]);
    // Another folder of the same name, with different contents.
    fs::rename(root.join("z"), root.join("old")).unwrap();
    fs::rename(root.join("x"), root.join("z")).unwrap();
    fs::remove_dir_all(root.join("old")).unwrap();
    walked.wait_for(&["z", "z/b", "z/b/y", "a-b"]);
    // A file in place of a folder, and a folder in place of a file.
    fs::remove_dir_all(root.join("z")).unwrap();
    fs::remove_file(root.join("a-b")).unwrap();
    write(root, "z");
    write(root, "a-b/c");
    walked.wait_for(&["z", "a-b", "a-b/c"]);
    fs::remove_dir_all(root).unwrap();
    walked.wait_for(&[]);
    write(root, "back/again");
    walked.wait_for(&["back", "back/again"]);
}

#[test]
fn a_site_that_is_no_part_any_more_is_withdrawn() {
    let mut walked = Walked::start(&["a", "b/c"]);
    walked.wait_for(&["a", "b", "b/c"]);
    walked.walk();
    walked.wait_for(&["a", "b", "b/c"]);
    walked.sites = sites(walked.folder.path(), ContentPlacement::Local);
    walked.walk();
    walked.wait_for(&[]);
}
