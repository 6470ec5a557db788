//! Determines which users could change or replace a file.

use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::user::{User, name_of};

/// Mode of a created folder: any user may traverse it, as far as its parents permit, and no other
/// user may list or write it.
const FOLDER_MODE: u32 = 0o711;

/// A sticky folder: any user may create files, and none may change another's.
const STICKY: u32 = 0o1000;

/// Links on a path, at most (path_resolution(7)).
const LINKS_MAX: usize = 40;

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
    /// Its path contains a link or is relative, so that others may control which file it names.
    #[error("{what} {path} must be given by its real path {real}, without links", path = path.display(), real = real.display())]
    Linked { what: &'static str, path: PathBuf, real: PathBuf },
    /// It cannot be created or inspected.
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
        format!("{root}{}'s, and writable by nobody else", User::current().name)
    };
    check_each_component(what, path, wanted, |it, is_last| {
        let is_ours = it.uid() == own || (!is_last && it.uid() == 0);
        !is_ours || is_open_to(it, 0o022, is_last)
    })
}

/// Checks that `user` can change neither the file `path` nor what this path names, so that it can be opened by it afterwards.
/// Root and the user of this process always could. The path must be the result of [`fs::canonicalize`]: the owner of a folder can
/// redirect the links in it at any time.
pub fn check_unchangeable(what: &'static str, path: &Path, user: &User) -> Result<(), TrustError> {
    let failed = |error| TrustError::Io { what, path: path.to_owned(), error };
    let real = fs::canonicalize(path).map_err(failed)?;
    if real != path {
        return Err(TrustError::Linked { what, path: path.to_owned(), real });
    }
    if user.uid == 0 || user.uid == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let wanted = |_| format!("not owned by {0}, and not writable for {0}", user.name);
    check_each_component(what, path, wanted, |it, is_last| {
        let is_theirs = user.gid == it.gid() || user.groups.contains(&it.gid());
        let by_mode = if is_theirs { 0o022 } else { 0o002 };
        it.uid() == user.uid || is_open_to(it, by_mode, is_last)
    })
}

/// In a sticky folder only the owner of an entry can rename it. The mode of a link has no meaning.
fn is_open_to(it: &Metadata, bits: u32, is_last: bool) -> bool {
    !it.is_symlink() && it.mode() & bits != 0 && (is_last || it.mode() & STICKY == 0)
}

/// `is_open` is evaluated for all that decides what the path names: for the file itself, for each folder of its path, and for links
/// on it with the folders of theirs. `wanted` gives the message for the first that is open.
fn check_each_component(
    what: &'static str,
    path: &Path,
    wanted: impl Fn(bool) -> String,
    is_open: impl Fn(&Metadata, bool) -> bool,
) -> Result<(), TrustError> {
    let failed = |error| TrustError::Io { what, path: path.to_owned(), error };
    for resolved in paths_through_links(path).map_err(failed)? {
        for (place, at) in resolved.ancestors().enumerate() {
            let it = fs::symlink_metadata(at).map_err(failed)?;
            let is_last = place == 0 && !it.is_symlink();
            if is_open(&it, is_last) {
                return Err(TrustError::Exposed {
                    what,
                    path: path.to_owned(),
                    at: at.to_owned(),
                    owner: name_of(it.uid()),
                    mode: it.mode() & 0o7777,
                    wanted: wanted(is_last),
                });
            }
        }
    }
    Ok(())
}

/// The path, and the paths that result from resolving its links one by one; the last one contains none.
fn paths_through_links(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = vec![std::path::absolute(path)?];
    while let Some(next) = paths.last().and_then(|path| resolve_first_link(path)) {
        if paths.len() > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        paths.push(next);
    }
    Ok(paths)
}

fn resolve_first_link(path: &Path) -> Option<PathBuf> {
    let link = path.ancestors().filter(|at| at.is_symlink()).last()?;
    let (folder, rest) = (link.parent()?, path.strip_prefix(link).ok()?);
    let target = folder.join(fs::read_link(link).ok()?);
    // Not with a slash at its end, if the link is all there is.
    Some(if rest == Path::new("") { target } else { target.join(rest) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn stranger() -> User {
        User { name: "s".into(), uid: 70_000, gid: 70_000, groups: vec![] }
    }

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
        let file = fs::canonicalize(folder.path()).unwrap().join("skep.toml");
        fs::write(&file, "").unwrap();
        let gid = fs::metadata(&file).unwrap().gid();
        let friend = User { groups: vec![gid], ..stranger() };
        let stranger = stranger();
        let check = |user| check_unchangeable("config", &file, user).is_ok();
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

    #[test]
    fn a_file_is_named_by_its_real_path_whoever_can_have_a_link_lead_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let folder = fs::canonicalize(folder.path()).unwrap();
        let [safe, open] = ["safe", "open"].map(|name| folder.join(name));
        for made in [&safe, &open] {
            fs::create_dir_all(made).unwrap();
            set_mode(made, 0o755);
        }
        let file = safe.join("skep.toml");
        fs::write(&file, "").unwrap();
        set_mode(&open, 0o777);
        let links = [open.join("link"), open.join("folder/skep.toml"), safe.join("link")];
        symlink(&file, &links[0]).unwrap();
        symlink(&safe, open.join("folder")).unwrap();
        symlink(&file, &links[2]).unwrap();
        for link in &links {
            let error = check_unchangeable("config", link, &stranger()).unwrap_err();
            assert!(matches!(&error, TrustError::Linked { real, .. } if *real == file), "{error}");
            check_unchangeable("config", &fs::canonicalize(link).unwrap(), &stranger()).unwrap();
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_behind_a_link_that_others_can_have_lead_elsewhere_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let [links, more, place] = ["links", "more", "place"].map(|name| parent.path().join(name));
        for folder in [&links, &more, &place] {
            DirBuilder::new().mode(0o755).create(folder).unwrap();
        }
        symlink("../more/second", links.join("first")).unwrap();
        symlink(&place, more.join("second")).unwrap();
        let make = || make_own_folder("the folder", &links.join("first/own"));
        make().unwrap();
        for folder in [&links, &more, &place] {
            set_mode(folder, 0o777);
            let text = make().unwrap_err().to_string();
            let name = folder.file_name().unwrap().to_str().unwrap();
            assert!(
                text.contains(&format!("{name} belongs to")) && text.contains("0777"),
                "{text}"
            );
            set_mode(folder, 0o1777);
            make().unwrap();
            set_mode(folder, 0o755);
        }
    }
}
