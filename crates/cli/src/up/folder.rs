//! The folder in which clusters of `skep up` keep their config and sockets, so that `skep status`
//! finds them: one folder for each user, one in it for each cluster.
//!
//! ```text
//!  $XDG_RUNTIME_DIR/skep or /tmp/skep-UID     0700, ours, else refused
//!  |- lock          held while clusters come and go
//!  `- up-XXXXXX/    one cluster, 0700
//!     |- lock       locked as long as its `skep up` lives
//!     |- skep.toml, key
//!     |- guard/     netguard's, in direct dispatch
//!     `- state/     the processes': NAME.sock, the control socket of each
//! ```
//!
//! For root the first folder has mode 0711 and a cluster's 0750, with the group of the serving user: that
//! user can access `state/`, which it owns, and the files that it reads, and can change nothing else.
//!
//! Invariant: the last cluster that ends removes everything.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::process::{geteuid, getuid};
use skep_config::Config;
use skep_guard::User;
use tempfile::TempDir;

/// The prefix of the name of a cluster's folder.
const PREFIX: &str = "up-";
const CONFIG: &str = "skep.toml";
const LOCK: &str = "lock";

/// The lock for creating and removing clusters: no other process of this user does either meanwhile.
pub(super) struct Turn {
    base: PathBuf,
    _lock: File,
}

/// The folder of a cluster; removed on drop.
pub(super) struct ClusterFolder {
    base: PathBuf,
    dir: Option<TempDir>,
    path: PathBuf,
    /// Locked as long as the cluster runs.
    _lock: File,
}

impl Turn {
    /// Waits for this user's lock.
    pub(super) fn take() -> anyhow::Result<Self> {
        Self::take_in(&base_path())
    }

    fn take_in(base: &Path) -> anyhow::Result<Self> {
        loop {
            match DirBuilder::new().mode(base_mode()).create(base) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(error).with_context(|| format!("cannot make {}", base.display()));
                }
                _ => {}
            }
            // The last cluster may remove the folder at any moment.
            if !check_private(base)? {
                continue;
            }
            let path = base.join(LOCK);
            let lock = match File::create(&path) {
                Ok(lock) => lock,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error).context("cannot make a lock"),
            };
            lock.lock().context("cannot wait for a lock")?;
            if is_still(&lock, &path) {
                return Ok(Self { base: base.to_owned(), _lock: lock });
            }
        }
    }

    /// Creates a folder for a cluster whose processes serve as `user`, after removing those of dead clusters.
    pub(super) fn make_folder(&self, user: &User) -> anyhow::Result<ClusterFolder> {
        self.sweep();
        let dir = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(&self.base);
        let dir =
            dir.with_context(|| format!("cannot make a folder in {}", self.base.display()))?;
        let path = dir.path().to_owned();
        open_to(&path, user).with_context(|| format!("cannot make {}", path.display()))?;
        let lock = File::create(path.join(LOCK)).context("cannot make a lock")?;
        lock.try_lock().context("cannot lock a new folder")?;
        Ok(ClusterFolder { base: self.base.clone(), dir: Some(dir), path, _lock: lock })
    }

    /// The configs of the running clusters.
    pub(super) fn running_configs(&self) -> Vec<Config> {
        let running = clusters(&self.base).into_iter().filter(|folder| is_alive(folder));
        running.filter_map(|folder| read_config(&folder)).collect()
    }

    /// Removes the user's folder if it contains no cluster.
    fn leave_if_empty(&self) {
        if clusters(&self.base).is_empty() {
            let _ = fs::remove_file(self.base.join(LOCK));
            // Fails, as it should, if the folder contains anything else.
            let _ = fs::remove_dir(&self.base);
        }
    }

    /// Removes the folders of clusters that could not clean up.
    fn sweep(&self) {
        for dead in clusters(&self.base).into_iter().filter(|folder| !is_alive(folder)) {
            // A folder that can't be removed does no harm.
            let _ = fs::remove_dir_all(dead);
        }
    }
}

impl ClusterFolder {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn config(&self) -> PathBuf {
        self.path.join(CONFIG)
    }
}

/// Gives `user` access to a cluster's folder, and creates the folder in it that `user` owns.
fn open_to(folder: &Path, user: &User) -> io::Result<()> {
    if geteuid().is_root() {
        chown(folder, None, Some(user.gid))?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o750))?;
    }
    user.make_folder(&state_of(folder))
}

/// The state folder within a cluster's folder.
pub(crate) fn state_of(folder: &Path) -> PathBuf {
    folder.join("state")
}

impl Drop for ClusterFolder {
    fn drop(&mut self) {
        let turn = Turn::take_in(&self.base);
        // Removes the folder.
        drop(self.dir.take());
        if let Ok(turn) = turn {
            turn.leave_if_empty();
        }
    }
}

/// The folders of this user's running clusters, the newest first.
pub(crate) fn running() -> Vec<PathBuf> {
    let base = base_path();
    if !check_private(&base).unwrap_or(false) {
        return Vec::new();
    }
    // A `skep up` killed by SIGKILL could not clean up: this is done now. Its lock was released, and its
    // processes have ended.
    if clusters(&base).iter().any(|folder| !is_alive(folder))
        && let Ok(turn) = Turn::take_in(&base)
    {
        turn.sweep();
        turn.leave_if_empty();
    }
    let age =
        |folder: &PathBuf| fs::metadata(folder.join(CONFIG)).and_then(|it| it.modified()).ok();
    let mut folders: Vec<_> = clusters(&base).into_iter().filter(|it| is_alive(it)).collect();
    folders.sort_by_key(age);
    folders.reverse();
    folders
}

fn base_path() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(runtime) if is_usable(&runtime) => runtime.join("skep"),
        _ => PathBuf::from(format!("/tmp/skep-{}", getuid().as_raw())),
    }
}

/// Whether `runtime` can be used. Root's folder must let the serving user pass, and belong to root alone,
/// which it does not after `sudo -E`.
fn is_usable(runtime: &Path) -> bool {
    let is_root = geteuid().is_root();
    let is_ours = |it: fs::Metadata| it.uid() == 0 && it.mode() & 0o023 == 0o001;
    runtime.is_dir() && (!is_root || fs::metadata(runtime).is_ok_and(is_ours))
}

/// The mode of the folder of all clusters.
fn base_mode() -> u32 {
    if geteuid().is_root() { 0o711 } else { 0o700 }
}

/// Checks that `base` belongs to this user, since any user may create files in /tmp: a folder that others can
/// change is not trusted. Returns `false` if it does not exist.
fn check_private(base: &Path) -> anyhow::Result<bool> {
    let it = match fs::symlink_metadata(base) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        it => it.with_context(|| format!("cannot read {}", base.display()))?,
    };
    if !it.is_dir() || it.uid() != getuid().as_raw() || it.mode() & 0o777 & !base_mode() != 0 {
        let (base, mode) = (base.display(), base_mode());
        bail!("{base} is not a folder of this user alone (mode {mode:04o}): remove it");
    }
    Ok(true)
}

/// Whether `path` still names the opened file.
fn is_still(file: &File, path: &Path) -> bool {
    let identity = |it: fs::Metadata| (it.dev(), it.ino());
    let opened = file.metadata().map(identity).ok();
    opened.is_some() && opened == fs::symlink_metadata(path).map(identity).ok()
}

fn clusters(base: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    let is_cluster = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(PREFIX);
    entries.filter(is_cluster).map(|entry| entry.path()).collect()
}

fn is_alive(folder: &Path) -> bool {
    File::open(folder.join(LOCK)).is_ok_and(|lock| lock.try_lock_shared().is_err())
}

fn read_config(folder: &Path) -> Option<Config> {
    let text = fs::read_to_string(folder.join(CONFIG)).ok()?;
    Config::parse(CONFIG, &text).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use skep_config::{BackendConfig, NodeConfig, SiteConfig};

    use super::*;

    #[test]
    fn a_cluster_that_died_is_swept_and_one_that_lives_is_not() {
        let parent = tempfile::tempdir().unwrap();
        let base = parent.path().join("skep-0");
        let user = User::current();
        let make = || Turn::take_in(&base).unwrap().make_folder(&user).unwrap();
        let alive = make();
        let node = NodeConfig {
            name: "n".into(),
            address: ([127, 0, 0, 1], 1).into(),
            ..NodeConfig::default()
        };
        let site =
            SiteConfig::of(BackendConfig { root: Some("/srv".into()), ..BackendConfig::default() });
        let config = Config { nodes: vec![node], sites: vec![site], ..Config::default() };
        fs::write(alive.config(), config.to_toml()).unwrap();
        let expected = if geteuid().is_root() { 0o750 } else { 0o700 };
        assert_eq!(fs::metadata(alive.path()).unwrap().mode() & 0o777, expected);
        assert_eq!(fs::metadata(state_of(alive.path())).unwrap().mode() & 0o777, 0o750);
        // As after kill -9: files remain, locks don't.
        let dead = base.join("up-dead");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join(LOCK), "").unwrap();
        fs::write(dead.join(CONFIG), "").unwrap();

        let second = make();
        assert!(!dead.exists());
        assert!(is_alive(alive.path()) && is_alive(second.path()));
        assert_eq!(Turn::take_in(&base).unwrap().running_configs(), [config]);
        drop(alive);
        assert_eq!(clusters(&base), [second.path()]);
        drop(second);
        assert!(!base.exists());
    }

    #[test]
    fn many_may_come_and_go_at_once() {
        let parent = tempfile::tempdir().unwrap();
        let base = parent.path().join("skep-0");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let user = User::current();
                        let folder = Turn::take_in(&base).unwrap().make_folder(&user).unwrap();
                        assert!(is_alive(folder.path()));
                    }
                });
            }
        });
        assert!(!base.exists());
    }

    #[test]
    fn a_folder_that_others_can_enter_is_not_trusted() {
        let base = tempfile::tempdir().unwrap();
        let set_mode = |mode| {
            fs::set_permissions(base.path(), fs::Permissions::from_mode(mode)).unwrap();
        };
        set_mode(0o700);
        assert!(check_private(base.path()).unwrap());
        set_mode(0o750);
        assert!(Turn::take_in(base.path()).is_err());
        let link = tempfile::tempdir().unwrap();
        let path = link.path().join("link");
        std::os::unix::fs::symlink("/root", &path).unwrap();
        assert!(check_private(&path).is_err());
    }
}
