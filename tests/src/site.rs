//! A folder of files for one test.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::content;

/// A user that owns nothing.
pub const NOBODY: u32 = 65_534;

/// Returns the user that serves if root starts Skep: `skep` if it exists, or else `nobody`.
pub fn server() -> u32 {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let own = passwd.lines().find_map(|line| line.strip_prefix("skep:")?.split(':').nth(1));
    own.and_then(|uid| uid.parse().ok()).unwrap_or(NOBODY)
}

/// A temporary folder; removed with the test.
#[derive(Debug)]
pub struct Site {
    dir: TempDir,
}

impl Default for Site {
    fn default() -> Self {
        Self::new()
    }
}

impl Site {
    /// Makes an empty folder that the serving user can read and write: the user of the test, or, if that is
    /// root, the unprivileged user.
    pub fn new() -> Self {
        let site = Self::guarded();
        if rustix::process::geteuid().is_root() {
            let owner = Some(server());
            std::os::unix::fs::chown(site.root(), owner, owner).expect("root gives it away");
        }
        site
    }

    /// Makes an empty folder that the serving user can only read.
    pub fn guarded() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("skep-test-")
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir();
        Self { dir: dir.expect("a temporary folder") }
    }

    /// Adds a file and its parent folders.
    #[must_use]
    pub fn with(self, name: &str, bytes: impl AsRef<[u8]>) -> Self {
        self.write(name, bytes);
        self
    }

    /// Adds a file of `len` bytes of [`content::version`] 1.
    #[must_use]
    pub fn with_large(self, name: &str, len: usize) -> Self {
        self.with(name, content::version(1, len))
    }

    /// Writes a file in place.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("make folders");
        fs::write(path, bytes).expect("write a file");
    }

    /// Replaces a file atomically by a new one, as careful deployments do.
    pub fn replace(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let fresh = format!("{name}.new");
        self.write(&fresh, bytes);
        fs::rename(self.path(&fresh), self.path(name)).expect("rename a file");
    }

    /// Truncates a file to `len` bytes.
    pub fn truncate(&self, name: &str, len: u64) {
        let file = fs::OpenOptions::new().write(true).open(self.path(name));
        file.and_then(|file| file.set_len(len)).expect("truncate a file");
    }

    /// Deletes a file.
    pub fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).expect("remove a file");
    }

    /// Makes a symbolic link.
    pub fn link(&self, name: &str, target: impl AsRef<Path>) {
        std::os::unix::fs::symlink(target, self.path(name)).expect("make a link");
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the path of the folder.
    pub fn root(&self) -> &Path {
        self.dir.path()
    }
}
