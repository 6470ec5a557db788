//! The file of the unix socket.
//!
//! Invariants: only the owner and group can ever connect, even between two system calls; a socket
//! with a live listener is never removed.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Mode of the file: owner and group may connect.
const MODE: u32 = 0o660;

/// Mode of the file's folder, if it has to be created.
const FOLDER_MODE: u32 = 0o750;

/// The file of a listening socket; removed when dropped.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode, which identify it.
    identity: (u64, u64),
}

/// Why the socket could not be opened.
#[derive(Debug)]
pub(crate) enum SocketError {
    /// A process accepts connections on it.
    InUse,
    /// Another file has that name.
    NotASocket,
    /// The kernel's error.
    Io(io::Error),
}

impl From<io::Error> for SocketError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Listens on a socket at `path`. The folder is created if missing; the socket of a dead process is
/// replaced.
pub(crate) fn listen(path: &Path) -> Result<(UnixListener, SocketFile), SocketError> {
    make_folder(path)?;
    if !is_free(path)? {
        return Err(SocketError::InUse);
    }
    // Created under another name, since the mode can only be set afterwards.
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(format!(".{}", std::process::id()));
    let fresh = PathBuf::from(fresh);
    remove(&fresh)?;
    let listener = UnixListener::bind(&fresh)?;
    let named = fs::set_permissions(&fresh, Permissions::from_mode(MODE))
        .and_then(|()| fs::rename(&fresh, path))
        .and_then(|()| fs::symlink_metadata(path));
    let identity = match named {
        Ok(metadata) => identity(&metadata),
        Err(error) => {
            let _ = remove(&fresh);
            return Err(error.into());
        }
    };
    listener.set_nonblocking(true)?;
    Ok((listener, SocketFile { path: path.to_owned(), identity }))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another process may have replaced it.
        let is_ours =
            fs::symlink_metadata(&self.path).is_ok_and(|it| identity(&it) == self.identity);
        if is_ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn make_folder(path: &Path) -> io::Result<()> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else {
        return Ok(());
    };
    if folder.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE))
}

/// Whether there is nothing at `path`, or a socket without a listener.
fn is_free(path: &Path) -> Result<bool, SocketError> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error.into()),
    };
    if !metadata.file_type().is_socket() {
        return Err(SocketError::NotASocket);
    }
    match UnixStream::connect(path) {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(true),
        // The queue of its listener is full.
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_socket_is_for_owner_and_group_and_goes_with_its_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made/n.sock");
        let (_listener, file) = listen(&path).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (MODE, FOLDER_MODE));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_in_use_stays_and_a_dead_one_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n.sock");
        let (listener, file) = listen(&path).unwrap();
        assert!(matches!(listen(&path), Err(SocketError::InUse)));
        UnixStream::connect(&path).unwrap();
        drop(listener);
        assert!(path.exists());
        let (_second, second_file) = listen(&path).unwrap();
        drop(file);
        assert!(path.exists(), "the first one's end takes the second one's socket");
        drop(second_file);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_is_never_mistaken_for_a_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        fs::write(&path, "data").unwrap();
        assert!(matches!(listen(&path), Err(SocketError::NotASocket)));
        assert_eq!(fs::read_to_string(&path).unwrap(), "data");
    }
}
