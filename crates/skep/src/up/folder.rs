//! Where clusters of `skep up` keep their config and sockets, so that
//! `skep status` finds them: one folder for each user, one in it for each
//! cluster.
//!
//! ```text
//!  $XDG_RUNTIME_DIR/skep or /tmp/skep-UID     0700, ours, else refused
//!  |- lock          held while clusters come and go
//!  |- ports/30123   locked by whoever uses the port
//!  `- up-XXXXXX/    one cluster, 0700
//!     |- lock       locked as long as its `skep up` lives
//!     |- skep.toml
//!     `- NAME.sock  control socket of a process
//! ```

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::process::getuid;
use tempfile::TempDir;

/// Begins the name of a cluster's folder.
const PREFIX: &str = "up-";
const CONFIG: &str = "skep.toml";
const LOCK: &str = "lock";

/// The folder of a cluster; gone when dropped.
pub(super) struct ClusterFolder {
    dir: TempDir,
    /// Locked: tells others that this cluster lives.
    _lock: File,
}

impl ClusterFolder {
    /// Makes one below `base`, and takes away those of clusters that died.
    pub(super) fn make(base: &Path) -> anyhow::Result<Self> {
        let _turn = take_turn(base)?;
        sweep(base);
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(base);
        let dir = dir.with_context(|| format!("cannot make a folder in {}", base.display()))?;
        let lock = File::create(dir.path().join(LOCK)).context("cannot make a lock")?;
        lock.try_lock().context("cannot lock a new folder")?;
        Ok(Self { dir, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn config(&self) -> PathBuf {
        self.path().join(CONFIG)
    }
}

/// This user's folder; made if it isn't there.
pub(super) fn base() -> anyhow::Result<PathBuf> {
    let base = base_path();
    match DirBuilder::new().mode(0o700).create(&base) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("cannot make {}", base.display()))
        }
        _ => check_private(&base).map(|()| base),
    }
}

/// Folders of the clusters of this user that run, the newest first.
pub(crate) fn running() -> Vec<PathBuf> {
    let base = base_path();
    if check_private(&base).is_err() {
        return Vec::new();
    }
    let age = |folder: &PathBuf| fs::metadata(folder.join(CONFIG)).and_then(|it| it.modified()).ok();
    let mut folders: Vec<_> = clusters(&base).into_iter().filter(|it| is_alive(it)).collect();
    folders.sort_by_key(age);
    folders.reverse();
    folders
}

fn base_path() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(runtime) if runtime.is_dir() => runtime.join("skep"),
        _ => PathBuf::from(format!("/tmp/skep-{}", getuid().as_raw())),
    }
}

/// Anybody may make things in /tmp: what is not ours alone is not trusted.
fn check_private(base: &Path) -> anyhow::Result<()> {
    let it = fs::symlink_metadata(base).with_context(|| format!("cannot read {}", base.display()))?;
    if !it.is_dir() || it.uid() != getuid().as_raw() || it.mode() & 0o077 != 0 {
        bail!("{} is not a folder of this user alone (mode 0700): remove it", base.display());
    }
    Ok(())
}

/// Waits until no other `skep up` makes or sweeps folders.
fn take_turn(base: &Path) -> anyhow::Result<File> {
    let file = File::create(base.join(LOCK)).context("cannot make a lock")?;
    file.lock().context("cannot wait for a lock")?;
    Ok(file)
}

/// Removes what clusters left that could not clean up.
fn sweep(base: &Path) {
    for dead in clusters(base).into_iter().filter(|folder| !is_alive(folder)) {
        // What can't be removed is in nobody's way.
        let _ = fs::remove_dir_all(dead);
    }
}

fn clusters(base: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    let is_cluster =
        |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(PREFIX);
    entries.filter(is_cluster).map(|entry| entry.path()).collect()
}

fn is_alive(folder: &Path) -> bool {
    File::open(folder.join(LOCK)).is_ok_and(|lock| lock.try_lock_shared().is_err())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_cluster_that_died_is_swept_and_one_that_lives_is_not() {
        let base = tempfile::tempdir().unwrap();
        let alive = ClusterFolder::make(base.path()).unwrap();
        assert!(is_alive(alive.path()));
        assert_eq!(fs::metadata(alive.path()).unwrap().mode() & 0o777, 0o700);
        // As after kill -9: files stay, locks don't.
        let dead = base.path().join("up-dead");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join(LOCK), "").unwrap();
        fs::write(dead.join(CONFIG), "").unwrap();
        let other = base.path().join("ports");
        fs::create_dir(&other).unwrap();

        let second = ClusterFolder::make(base.path()).unwrap();
        assert!(!dead.exists() && other.exists());
        assert!(is_alive(alive.path()) && is_alive(second.path()));
        let path = alive.path().to_owned();
        drop(alive);
        assert!(!path.exists());
    }

    #[test]
    fn a_folder_that_others_can_enter_is_not_trusted() {
        let base = tempfile::tempdir().unwrap();
        check_private(base.path()).unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(base.path(), open).unwrap();
        assert!(check_private(base.path()).is_err());
        let link = tempfile::tempdir().unwrap();
        let path = link.path().join("link");
        std::os::unix::fs::symlink("/root", &path).unwrap();
        assert!(check_private(&path).is_err());
    }
}
