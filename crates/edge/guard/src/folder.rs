//! Folders that are created for the serving user.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, lchown};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags};

use crate::user::User;

/// Mode of a created folder.
const MODE: u32 = 0o750;

impl User {
    /// Creates `folder`, if it is missing, with this user as its owner; atomically, since another
    /// process may do the same.
    pub fn make_folder(&self, folder: &Path) -> io::Result<()> {
        let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
            return Ok(());
        };
        if folder.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(parent)?;
        let mut fresh = OsString::from(".");
        fresh.push(name);
        fresh.push(format!(".{}", std::process::id()));
        let fresh = parent.join(fresh);
        DirBuilder::new().mode(MODE).create(&fresh)?;
        let given = self.give(&fresh, folder);
        if given.is_err() {
            // It is empty, and nothing refers to its temporary name.
            let _ = fs::remove_dir(&fresh);
        }
        match given {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            given => given,
        }
    }

    /// Sets the owner, and only then renames the folder to its final name.
    fn give(&self, fresh: &Path, folder: &Path) -> io::Result<()> {
        if rustix::process::geteuid().is_root() {
            lchown(fresh, Some(self.uid), Some(self.gid))?;
        }
        Ok(rustix::fs::renameat_with(CWD, fresh, CWD, folder, RenameFlags::NOREPLACE)?)
    }
}
