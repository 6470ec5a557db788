//! Folders that are created for the serving user.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::fs::{fchown, mkdirat, open, openat, renameat_with, unlinkat};
use rustix::io::Errno;

use crate::user::User;

/// Mode of a created folder.
const MODE: Mode = Mode::from_raw_mode(0o750);

/// Opens a folder, and does not follow links.
const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

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
        // Through a descriptor, so that changes on the path have no effect.
        let parent =
            open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        match mkdirat(&parent, &fresh, MODE) {
            // Left by a process that was killed here: in a container all have the same number.
            Err(Errno::EXIST) => {
                unlinkat(&parent, &fresh, AtFlags::REMOVEDIR)?;
                mkdirat(&parent, &fresh, MODE)?;
            }
            made => made?,
        }
        let given = self.give(&parent, &fresh, name);
        if given.is_err() {
            // Empty, and under a name that nobody looks for.
            let _ = unlinkat(&parent, &fresh, AtFlags::REMOVEDIR);
        }
        match given {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            given => given,
        }
    }

    /// Changes the owner of the new folder, then renames it to its final name.
    fn give(&self, parent: &OwnedFd, fresh: &OsStr, name: &OsStr) -> io::Result<()> {
        if rustix::process::geteuid().is_root() {
            let made = openat(parent, fresh, FOLDER, Mode::empty())?;
            fchown(&made, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)))?;
        }
        Ok(renameat_with(parent, fresh, parent, name, RenameFlags::NOREPLACE)?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_folder_is_given_to_its_user_and_what_stands_in_its_place_is_not() {
        let parent = tempfile::tempdir().unwrap();
        let user = match rustix::process::geteuid().is_root() {
            true => User { name: "s".into(), uid: 70_000, gid: 70_000, groups: vec![] },
            false => User::current(),
        };
        let folder = parent.path().join("a/state");
        fs::create_dir_all(parent.path().join(format!("a/.state.{}", std::process::id()))).unwrap();
        user.make_folder(&folder).unwrap();
        user.make_folder(&folder).unwrap();
        let made = fs::metadata(&folder).unwrap();
        assert_eq!((made.uid(), made.gid(), made.mode() & 0o7777), (user.uid, user.gid, 0o750));
        assert_eq!(fs::read_dir(folder.parent().unwrap()).unwrap().count(), 1);
        // As who owns the folder above could put it there.
        let other = parent.path().join("other");
        fs::write(&other, "").unwrap();
        fs::hard_link(&other, parent.path().join("fresh")).unwrap();
        if rustix::process::geteuid().is_root() {
            let parent =
                open(parent.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
            user.give(&parent, "fresh".as_ref(), "name".as_ref()).unwrap_err();
        }
        assert_eq!(fs::metadata(&other).unwrap().uid(), rustix::process::geteuid().as_raw());
    }
}
