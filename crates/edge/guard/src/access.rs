//! Which files this process cannot read or write, as sentences: which folder of the path denies
//! access, to whom, and how to grant it.

use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD};

use crate::user::{User, name_of};

/// The intended access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Open files in the folder.
    Enter,
    /// Read the file.
    Read,
    /// Write the file, or create it.
    Write,
    /// Create files in the folder.
    Fill,
}

/// Access is denied.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot {verb} {what} {path}: {closed} belongs to {owner} with mode {mode:04o} and is closed to \
     the user {user}, as whom this process serves. `{remedy}` opens it; started as root, a process \
     serves as the user of --user or machine.user",
    path = path.display(),
    closed = closed.display()
)]
pub struct Closed {
    what: String,
    verb: &'static str,
    path: PathBuf,
    /// The part of the path that denies access.
    closed: PathBuf,
    owner: String,
    mode: u32,
    user: String,
    remedy: String,
}

/// Checks the access to `path`, which is described by `what`, that this process will need. A
/// missing file or a wrong file type is not reported here.
pub fn check(what: &str, path: &Path, need: Need) -> Result<(), Box<Closed>> {
    let (target, access) = match need {
        // Something other than a folder is a fault of another kind, whatever its mode.
        Need::Enter if path.metadata().is_ok_and(|it| !it.is_dir()) => return Ok(()),
        Need::Enter => (path, Access::EXEC_OK),
        Need::Read => (path, Access::READ_OK),
        Need::Write if !is_missing(path) => (path, Access::WRITE_OK),
        Need::Write => (folder_of(path), Access::WRITE_OK | Access::EXEC_OK),
        Need::Fill => (path, Access::WRITE_OK | Access::EXEC_OK),
    };
    if may(target, access) {
        return Ok(());
    }
    // The first folder on the path that cannot be entered, else the target itself.
    let on_the_way = target.ancestors().skip(1).filter(|it| !it.as_os_str().is_empty());
    let shut = on_the_way.filter(|it| !may(it, Access::EXEC_OK)).last();
    let closed = shut.unwrap_or(target);
    let user = User::current().name;
    let shown = closed.metadata();
    let remedy = match (shut, need) {
        (Some(_), _) => format!("chmod o+x {}", closed.display()),
        (None, Need::Enter) => format!("chmod o+rx {}", closed.display()),
        (None, Need::Read) => format!("chmod o+r {}", closed.display()),
        (None, Need::Write | Need::Fill) => format!("chown {user} {}", closed.display()),
    };
    Err(Box::new(Closed {
        what: what.to_owned(),
        verb: if matches!(need, Need::Write | Need::Fill) { "write" } else { "read" },
        path: path.to_owned(),
        closed: closed.to_owned(),
        owner: shown.as_ref().map_or_else(|_| "somebody else".into(), |it| name_of(it.uid())),
        mode: shown.map_or(0, |it: Metadata| it.permissions().mode() & 0o7777),
        user,
        remedy,
    }))
}

/// Whether the kernel grants access; true if something other than mode bits denies it.
fn may(path: &Path, access: Access) -> bool {
    let answer = rustix::fs::accessat(CWD, path, access, AtFlags::EACCESS);
    !matches!(answer, Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM))
}

fn is_missing(path: &Path) -> bool {
    rustix::fs::accessat(CWD, path, Access::EXISTS, AtFlags::EACCESS)
        .is_err_and(|error| error == rustix::io::Errno::NOENT)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
