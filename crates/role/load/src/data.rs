//! Writes the files of a workload into a folder, if its file system has room for them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use skep_workload::Workload;

use crate::limits::{CHUNK_BYTES, ROOM_LEFT_PERCENT};

/// The files written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenData {
    pub files: u64,
    pub bytes: u64,
}

/// The files could not be written.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// Nothing was written.
    #[error("{}: {files} files of {bytes} bytes need {needed} bytes, and the file system has {free} free and {inodes} inodes: choose a smaller --scale, or another folder", folder.display())]
    NoRoom {
        folder: PathBuf,
        files: u64,
        /// Size of the files themselves.
        bytes: u64,
        /// Size in whole blocks.
        needed: u64,
        free: u64,
        inodes: u64,
    },
    /// Nothing was written.
    #[error("{}: expected an empty folder or one that `skep bench data` has written, found other files", .0.display())]
    Foreign(PathBuf),
    /// Part of it may have been written.
    #[error("cannot write {}: {error}", path.display())]
    Unwritable { path: PathBuf, error: io::Error },
}

/// Marks a folder as created by this program.
const MARK: &str = ".skep-bench";

/// Writes all files of a workload below `folder`; `progress` is called with the number of bytes so far.
///
/// # Errors
/// There is no room, which is determined before anything is written; the folder contains other files; or it
/// cannot be written to.
pub fn write_data(
    workload: &Workload,
    folder: &Path,
    mut progress: impl FnMut(u64),
) -> Result<WrittenData, DataError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| DataError::Unwritable { path, error }
    };
    check_folder(folder)?;
    check_room(workload, folder)?;
    fs::create_dir_all(folder).map_err(failed(folder))?;
    let mark = folder.join(MARK);
    fs::write(&mark, format!("{}\n", workload.kind().name())).map_err(failed(&mark))?;
    let (mut bytes, mut chunk) = (0, vec![0; CHUNK_BYTES]);
    for (file, &size) in workload.sizes().iter().enumerate() {
        let path = folder.join(&workload.path(file)[1..]);
        let mut write = |chunk: &mut [u8]| -> io::Result<()> {
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            let mut out = File::create(&path)?;
            let mut at = 0;
            while at < size {
                let part = &mut chunk[..(size - at).min(CHUNK_BYTES as u64) as usize];
                workload.pattern(file).fill(at, part);
                out.write_all(part)?;
                at += part.len() as u64;
                progress(bytes + at);
            }
            Ok(())
        };
        write(&mut chunk).map_err(failed(&path))?;
        bytes += size;
    }
    Ok(WrittenData { files: workload.sizes().len() as u64, bytes })
}

fn check_folder(folder: &Path) -> Result<(), DataError> {
    let mut entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(DataError::Unwritable { path: folder.to_owned(), error }),
    };
    match entries.next().is_none() || folder.join(MARK).is_file() {
        true => Ok(()),
        false => Err(DataError::Foreign(folder.to_owned())),
    }
}

/// Checks the room on the file system that contains `folder`, or will contain it.
fn check_room(workload: &Workload, folder: &Path) -> Result<(), DataError> {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let there = absolute.ancestors().find(|it| it.exists()).unwrap_or(Path::new("/"));
    let stat = rustix::fs::statvfs(there)
        .map_err(|error| DataError::Unwritable { path: there.to_owned(), error: error.into() })?;
    let block = stat.f_frsize.max(1);
    let needed: u64 = workload.sizes().iter().map(|size| size.div_ceil(block) * block).sum();
    let free = stat.f_bavail.saturating_mul(block);
    let files = workload.sizes().len() as u64;
    let left = stat.f_blocks.saturating_mul(block) / 100 * ROOM_LEFT_PERCENT;
    // File systems without inodes report 0 of 0.
    let has_inodes = stat.f_files == 0 || stat.f_favail >= files;
    if needed.saturating_add(left) <= free && has_inodes {
        return Ok(());
    }
    let bytes = workload.sizes().iter().sum();
    let folder = folder.to_owned();
    Err(DataError::NoRoom { folder, files, bytes, needed, free, inodes: stat.f_favail })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use skep_workload::WorkloadKind;

    use super::*;

    fn workload(kind: WorkloadKind, scale: f64) -> Workload {
        Workload::new(kind, scale, 1).unwrap()
    }

    #[test]
    fn files_have_their_bytes_and_can_be_written_again() {
        let folder = tempfile::TempDir::new().unwrap();
        let site = workload(WorkloadKind::WorldCup, 0.002);
        for _ in 0..2 {
            let mut last = 0;
            let written = write_data(&site, folder.path(), |bytes| last = bytes).unwrap();
            assert_eq!((written.files, written.bytes), (35, last));
        }
        for (file, &size) in site.sizes().iter().enumerate() {
            let found = fs::read(folder.path().join(&site.path(file)[1..])).unwrap();
            assert_eq!(found.len() as u64, size);
            assert_eq!(site.pattern(file).first_wrong(0, &found), None);
        }
    }

    #[test]
    fn what_has_no_room_or_another_owner_is_refused_before_anything_is_written() {
        let folder = tempfile::TempDir::new().unwrap();
        let new = folder.path().join("new");
        let large = workload(WorkloadKind::DataIntensive, 1_000.0);
        let error = write_data(&large, &new, |_| ()).unwrap_err();
        assert!(matches!(error, DataError::NoRoom { .. }), "{error}");
        assert!(!new.exists());
        fs::write(folder.path().join("mine"), "x").unwrap();
        let error = write_data(&workload(WorkloadKind::Surge, 0.01), folder.path(), |_| ());
        assert!(matches!(error, Err(DataError::Foreign(_))), "{error:?}");
    }
}
