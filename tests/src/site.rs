//! A folder of files for one test.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::content;

/// A user who owns nothing.
pub const NOBODY: u32 = 65_534;

/// Who serves where root starts Skep: the user `skep` if there is one, else `nobody`.
pub fn server() -> u32 {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let own = passwd.lines().find_map(|line| line.strip_prefix("skep:")?.split(':').nth(1));
    own.and_then(|uid| uid.parse().ok()).unwrap_or(NOBODY)
}

/// A temporary folder; gone with the test.
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
    /// An empty folder, which the user who serves can read and write: that of the test,
    /// or, as root serves nobody, `nobody`.
    pub fn new() -> Self {
        let site = Self::guarded();
        if rustix::process::geteuid().is_root() {
            let owner = Some(server());
            std::os::unix::fs::chown(site.root(), owner, owner).expect("root gives it away");
        }
        site
    }

    /// An empty folder that the user who serves can read only.
    pub fn guarded() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("skep-test-")
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir();
        Self { dir: dir.expect("a temporary folder") }
    }

    /// Adds a file, and the folders on its way.
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

    /// Writes a file anew, in place.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("make folders");
        fs::write(path, bytes).expect("write a file");
    }

    /// Puts a new file in the place of the old one in one step, as careful
    /// deployments do.
    pub fn replace(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let fresh = format!("{name}.new");
        self.write(&fresh, bytes);
        fs::rename(self.path(&fresh), self.path(name)).expect("rename a file");
    }

    /// Cuts a file to `len` bytes.
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

    /// Path of a file of the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        self.dir.path()
    }
}
