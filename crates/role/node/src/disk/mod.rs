//! System calls on files: open inside a root, stat, read.
//!
//! [`Wait::No`] is for workers: a call either completes at once or fails with
//! [`DiskError::WouldBlock`]. The same call is then made with [`Wait::Yes`] on a thread that
//! may wait for a disk.

pub(crate) mod pool;
pub(crate) mod watch;

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::{Errno, ReadWriteFlags};
use skep_config::Symlinks;
pub(crate) use skep_segments::DiskError;
use skep_serve::unix_ms;
pub(crate) use skep_wire::cache::part::FileVersion;

use crate::limits::{OPEN_TRIES_MAX, UNSETTLED_COARSE_MS, UNSETTLED_MS};

/// Whether a call may wait for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Answer from the kernel's caches, or fail.
    No,
    Yes,
}

/// Distinguishes the states of a file: the version, and attributes that show that the path leads to
/// another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    /// The version, equal on every machine that has the same copy.
    pub(crate) version: FileVersion,
    device: u64,
    inode: u64,
    ctime_ns: i128,
}

impl FileStamp {
    /// Whether another change of the file would show. A change in the same tick of the file
    /// system's clock would not, so bytes read before the tick is over may mix two states ("racily
    /// clean" in Git).
    pub(crate) fn is_settled(&self) -> bool {
        self.settles_in_ms() == 0
    }

    /// Time until then, in milliseconds.
    pub(crate) fn settles_in_ms(&self) -> u64 {
        settles_in_ms(self.version.mtime_ns, unix_ms())
    }
}

/// A time in the future counts as long past: the next write sets another time.
fn settles_in_ms(mtime_ns: i128, now_unix_ms: u64) -> u64 {
    let is_coarse = mtime_ns % 1_000_000_000 == 0;
    let tick_ms = if is_coarse { UNSETTLED_COARSE_MS } else { UNSETTLED_MS };
    let age_ms = i128::from(now_unix_ms) - mtime_ns.div_euclid(1_000_000);
    let left_ms = i128::from(tick_ms) - age_ms;
    match age_ms.unsigned_abs() < u128::from(tick_ms) {
        true => u64::try_from(left_ms).unwrap_or(0),
        false => 0,
    }
}

/// The kind of file at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// A regular file.
    File(FileStamp),
    Directory,
    /// A device, socket or pipe: never served.
    Other,
}

impl FileKind {
    fn of(stat: &Stat) -> Self {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Self::File(FileStamp {
                version: FileVersion {
                    mtime_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
                    bytes: stat.st_size as u64,
                },
                device: stat.st_dev,
                inode: stat.st_ino,
                ctime_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
            }),
            FileType::Directory => Self::Directory,
            _ => Self::Other,
        }
    }
}

fn nanoseconds(seconds: i64, nanoseconds: u64) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds)
}

/// The identity of the folder at a path, and its last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FolderStamp {
    /// Time at which an entry was last added or removed, in nanoseconds since 1970.
    pub(crate) mtime_ns: i128,
    device: u64,
    inode: u64,
}

impl FolderStamp {
    /// The stamp of an open folder.
    pub(crate) fn of(folder: &File) -> Result<Self, DiskError> {
        Ok(Self::read(&rustix::fs::fstat(folder)?))
    }

    /// Whether this is the same folder, possibly changed.
    pub(crate) fn is_same_folder(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    fn read(stat: &Stat) -> Self {
        let mtime_ns = nanoseconds(stat.st_mtime, stat.st_mtime_nsec);
        Self { mtime_ns, device: stat.st_dev, inode: stat.st_ino }
    }
}

/// A root directory, opened for one look-up. It is opened each time, so that a root that is a
/// symbolic link can be switched (deployments do that).
#[derive(Debug)]
pub(crate) struct Root {
    directory: OwnedFd,
    resolve: ResolveFlags,
}

impl Root {
    /// Opens `path`, which may be any path that the operator configured.
    pub(crate) fn open(path: &Path, symlinks: Symlinks) -> Result<Self, DiskError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())?;
        let resolve = match symlinks {
            Symlinks::Beneath => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
            Symlinks::Refuse => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
            Symlinks::Follow => ResolveFlags::NO_MAGICLINKS,
        };
        Ok(Self { directory, resolve })
    }

    /// Opens the file or directory at `relative` for reading.
    pub(crate) fn open_at(
        &self,
        relative: &[u8],
        wait: Wait,
    ) -> Result<(File, FileKind), DiskError> {
        // NONBLOCK: opening a pipe must not wait for its writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let cached = if wait == Wait::No { ResolveFlags::CACHED } else { ResolveFlags::empty() };
        self.open_as(relative, flags, cached)
    }

    /// The kind of file that [`Self::open_at`] would open, without opening anything but files and
    /// directories. Fails for files outside the root and for unreadable ones.
    pub(crate) fn look_at(&self, relative: &[u8]) -> Result<FileKind, DiskError> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        match self.open_as(relative, flags, ResolveFlags::empty())?.1 {
            FileKind::Other => Ok(FileKind::Other),
            FileKind::File(_) | FileKind::Directory => Ok(self.open_at(relative, Wait::Yes)?.1),
        }
    }

    fn open_as(
        &self,
        relative: &[u8],
        flags: OFlags,
        resolve: ResolveFlags,
    ) -> Result<(File, FileKind), DiskError> {
        let path = relative_path(relative);
        let resolve = self.resolve | resolve;
        // openat2(2) also returns EAGAIN if anything was renamed anywhere while a `..` was
        // resolved.
        let may_wait = !resolve.contains(ResolveFlags::CACHED);
        let mut tries = if may_wait { OPEN_TRIES_MAX } else { 1 };
        let fd = loop {
            tries -= 1;
            match rustix::fs::openat2(&self.directory, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN) if tries > 0 => {}
                opened => break opened?,
            }
        };
        let kind = FileKind::of(&rustix::fs::fstat(&fd)?);
        Ok((File::from(fd), kind))
    }

    /// Describes the file at `relative`, following links even out of the root. For comparison with
    /// a stamp only: the result must not be disclosed.
    pub(crate) fn describe(&self, relative: &[u8]) -> Result<FileKind, DiskError> {
        let stat = rustix::fs::statat(&self.directory, relative_path(relative), AtFlags::empty())?;
        Ok(FileKind::of(&stat))
    }

    /// The same for a folder (or its replacement).
    pub(crate) fn folder(&self, relative: &[u8]) -> Result<FolderStamp, DiskError> {
        let stat = rustix::fs::statat(&self.directory, relative_path(relative), AtFlags::empty())?;
        Ok(FolderStamp::read(&stat))
    }
}

fn relative_path(relative: &[u8]) -> &Path {
    let relative = if relative.is_empty() { b"." } else { relative };
    Path::new(std::ffi::OsStr::from_bytes(relative))
}

/// Describes an open file.
pub(crate) fn describe(file: &File) -> Result<FileKind, DiskError> {
    Ok(FileKind::of(&rustix::fs::fstat(file)?))
}

/// Fills `buffer` from `offset`. [`DiskError::Changed`] if the file ends first. With [`Wait::No`],
/// returns the number of bytes read before it would have had to wait.
pub(crate) fn read_at(
    file: &File,
    buffer: &mut [u8],
    offset: u64,
    wait: Wait,
) -> Result<usize, DiskError> {
    let flags = match wait {
        Wait::No => ReadWriteFlags::NOWAIT,
        Wait::Yes => ReadWriteFlags::empty(),
    };
    let mut done = 0;
    while done < buffer.len() {
        let mut slices = [IoSliceMut::new(&mut buffer[done..])];
        match rustix::io::preadv2(file, &mut slices, offset + done as u64, flags) {
            Ok(0) => return Err(DiskError::Changed),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            // Some file systems (network, FUSE) do not support NOWAIT.
            Err(Errno::AGAIN | Errno::OPNOTSUPP) if wait == Wait::No => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(done)
}

/// Checks at start-up that `root` is a readable directory.
pub(crate) fn check_root(root: &Path) -> io::Result<()> {
    std::fs::read_dir(root).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_within_the_tick_settles_when_it_is_over() {
        const NOW_MS: u64 = 1_800_000_000_700;
        let after = |mtime_ms: u64| settles_in_ms(i128::from(mtime_ms) * 1_000_000 + 7, NOW_MS);
        assert_eq!(after(NOW_MS), 100);
        assert_eq!(after(NOW_MS - 1), 99);
        assert_eq!(after(NOW_MS - 99), 1);
        assert_eq!([after(NOW_MS - 100), after(NOW_MS - 700), after(0)], [0; 3]);
        // Clocks differ a little, or the time was set.
        assert_eq!([after(NOW_MS + 1), after(NOW_MS + 99)], [101, 199]);
        assert_eq!([after(NOW_MS + 100), after(NOW_MS + 1_000_000)], [0; 2]);
        // In whole seconds.
        let coarse = |age_ms: u64| settles_in_ms(i128::from(NOW_MS - age_ms) * 1_000_000, NOW_MS);
        assert_eq!([coarse(700), coarse(1_700)], [1_300, 300]);
        assert_eq!([coarse(2_700), coarse(1_000_000_700)], [0; 2]);
    }
}
