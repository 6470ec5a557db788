//! Determines which users could change or replace a file.

use std::fs::{self, DirBuilder, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::user::{User, name_of};

/// Mode of a created folder: any user may traverse it, as far as its parents permit, and no other
/// user may list or write it.
const FOLDER_MODE: u32 = 0o711;

/// A sticky folder: any user may create files, and none may change another's.
const STICKY: u32 = 0o1000;

/// A file that cannot be trusted.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// Another user could change it.
    #[error(
        "{what} {path} is not safe from others: {at} belongs to {owner} with mode {mode:04o}, and \
         must be {wanted}",
        path = path.display(),
        at = at.display()
    )]
    Exposed {
        what: &'static str,
        path: PathBuf,
        /// The part of its path that can be changed.
        at: PathBuf,
        /// Its owner.
        owner: String,
        mode: u32,
        /// The required state.
        wanted: String,
    },
    /// The file cannot be created or inspected.
    #[error("cannot use {what} {path}: {error}", path = path.display())]
    Io { what: &'static str, path: PathBuf, error: io::Error },
}

/// Creates the folder `path` if it is missing; only root and the user of this process may change
/// it.
pub fn make_own_folder(what: &'static str, path: &Path) -> Result<(), TrustError> {
    let made = DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path);
    made.map_err(|error| TrustError::Io { what, path: path.to_owned(), error })?;
    let own = rustix::process::geteuid().as_raw();
    let wanted = |is_last| {
        let root = if is_last { "" } else { "root's or " };
        format!("{root}{}'s, and writable for nobody else", User::current().name)
    };
    refuse_if(what, path, wanted, |it, is_last| {
        let is_ours = it.uid() == own || (!is_last && it.uid() == 0);
        !is_ours || is_open_to(it, 0o022, is_last)
    })
}

/// Checks that `user` cannot change the file `path`. Root and the user of this process always can.
pub fn check_unchangeable(what: &'static str, path: &Path, user: &User) -> Result<(), TrustError> {
    if user.uid == 0 || user.uid == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let wanted = |_| format!("another user's than {0}'s, and not writable for {0}", user.name);
    refuse_if(what, path, wanted, |it, is_last| {
        let is_theirs = user.gid == it.gid() || user.groups.contains(&it.gid());
        let by_mode = if is_theirs { 0o022 } else { 0o002 };
        it.uid() == user.uid || is_open_to(it, by_mode, is_last)
    })
}

/// In a sticky folder, entries can be renamed or removed only by their owners.
fn is_open_to(it: &Metadata, bits: u32, is_last: bool) -> bool {
    it.mode() & bits != 0 && (is_last || it.mode() & STICKY == 0)
}

/// Evaluates `is_open` for the file itself and then for each folder of its path; `wanted` gives the message
/// for the first that is open.
fn refuse_if(
    what: &'static str,
    path: &Path,
    wanted: impl Fn(bool) -> String,
    is_open: impl Fn(&Metadata, bool) -> bool,
) -> Result<(), TrustError> {
    let failed = |error| TrustError::Io { what, path: path.to_owned(), error };
    // Symbolic links are resolved first: the file that they name counts.
    let real = fs::canonicalize(path).map_err(failed)?;
    for (place, at) in real.ancestors().enumerate() {
        let it = match fs::metadata(at) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => continue,
            it => it.map_err(failed)?,
        };
        if is_open(&it, place == 0) {
            return Err(TrustError::Exposed {
                what,
                path: path.to_owned(),
                at: at.to_owned(),
                owner: name_of(it.uid()),
                mode: it.mode() & 0o7777,
                wanted: wanted(place == 0),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_folder_is_made_and_one_that_others_can_write_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("a/own");
        let make = || make_own_folder("the folder", &folder);
        make().unwrap();
        make().unwrap();
        for (at, mode) in [(&*folder, 0o733), (&*folder, 0o1733), (parent.path(), 0o770)] {
            set_mode(at, mode);
            let text = make().unwrap_err().to_string();
            assert!(text.contains(&format!("{mode:04o}")), "{text}");
            assert!(text.contains(at.to_str().unwrap()), "{text}");
            set_mode(at, 0o755);
        }
        // Like /tmp.
        set_mode(parent.path(), 0o1777);
        make().unwrap();
    }

    #[test]
    fn a_file_is_told_from_one_that_a_user_can_change() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("skep.toml");
        fs::write(&file, "").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let gid = fs::metadata(&file).unwrap().gid();
        let stranger = User { name: "s".into(), uid: 70_000, gid: 70_000, groups: vec![] };
        let friend = User { groups: vec![gid], ..stranger.clone() };
        let check = |user| check_unchangeable("config", &link, user).is_ok();
        for (mode, expected) in [(0o644, [true, true]), (0o664, [true, false]), (0o666, [false; 2])]
        {
            set_mode(&file, mode);
            assert_eq!([check(&stranger), check(&friend)], expected, "{mode:o}");
        }
        set_mode(&file, 0o600);
        set_mode(folder.path(), 0o770);
        assert_eq!([check(&stranger), check(&friend)], [true, false]);
        let own = User { uid: rustix::process::geteuid().as_raw(), ..friend.clone() };
        assert!(check(&own));
    }
}
