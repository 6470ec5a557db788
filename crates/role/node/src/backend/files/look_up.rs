//! Look-up of a path on this node's disk.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use skep_directory::PurgeTable;
use skep_http::negotiate::Encoding;

use crate::disk::{DiskError, FileKind, FileStamp, Root, Wait};
use crate::limits::PATH_BYTES_MAX;
use crate::model::object::{Object, ObjectSource, Variants};
use crate::model::route::{FolderBackend, Route};

/// The result of a look-up of a normalised path.
pub(crate) enum FoundFile {
    /// A file, and the open plain file.
    File(Variants, File),
    /// A directory asked for without its slash.
    NeedsSlash,
    /// A directory without an index file.
    Directory,
}

/// Looks up a normalised path on the disk. `known`: the purges known before; the files are read
/// after them.
pub(crate) fn look_up(
    route: &Route,
    path: &[u8],
    wait: Wait,
    known: &PurgeTable,
) -> Result<FoundFile, DiskError> {
    let relative = path.strip_prefix(b"/").unwrap_or(path);
    let folder = route.folder().ok_or(DiskError::NotFound)?;
    if !folder.shows(path) || relative.len() > PATH_BYTES_MAX {
        return Err(DiskError::NotFound);
    }
    let root = route.open_root()?;
    if relative.is_empty() || relative.ends_with(b"/") {
        return look_up_index((route, folder), &root, relative, wait, known);
    }
    match root.open_at(relative, wait)? {
        (file, FileKind::File(stamp)) => {
            found_file((route, folder), &root, relative, (file, stamp), wait, known)
        }
        (_, FileKind::Directory) => Ok(FoundFile::NeedsSlash),
        (_, FileKind::Other) => Err(DiskError::Forbidden),
    }
}

fn look_up_index(
    (route, folder): (&Route, &FolderBackend),
    root: &Root,
    relative: &[u8],
    wait: Wait,
    known: &PurgeTable,
) -> Result<FoundFile, DiskError> {
    for name in &folder.index_files {
        let index = [relative, name.as_bytes()].concat();
        if !route.answers_for(&index, relative) {
            continue;
        }
        match root.open_at(&index, wait) {
            Ok((file, FileKind::File(stamp))) => {
                return found_file((route, folder), root, &index, (file, stamp), wait, known);
            }
            Ok(_) | Err(DiskError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    match root.open_at(relative, wait)? {
        (_, FileKind::Directory) if folder.listing => Ok(FoundFile::Directory),
        // The existence of an unlisted directory is not revealed.
        _ => Err(DiskError::NotFound),
    }
}

fn found_file(
    (route, folder): (&Route, &FolderBackend),
    root: &Root,
    relative: &[u8],
    (file, stamp): (File, FileStamp),
    wait: Wait,
    known: &PurgeTable,
) -> Result<FoundFile, DiskError> {
    let mut siblings: [Option<(Vec<u8>, FileStamp)>; 3] = [const { None }; 3];
    if folder.precompressed {
        for (sibling, suffix) in siblings.iter_mut().zip([".br", ".zst", ".gz"]) {
            let name = [relative, suffix.as_bytes()].concat();
            *sibling = match root.open_at(&name, wait) {
                Ok((_, FileKind::File(stamp))) => Some((name, stamp)),
                Err(DiskError::WouldBlock) => return Err(DiskError::WouldBlock),
                _ => None,
            };
        }
    }
    let varies = siblings.iter().any(Option::is_some);
    let names = siblings.iter().flatten().map(|(name, _)| name.as_slice());
    let purged = route.purged_files(known, names.chain([relative]));
    let [br, zstd, gzip] = siblings;
    let object = |own: &[u8], encoding, stamp: FileStamp| {
        let source = ObjectSource::File { relative: own.into(), stamp };
        let version = (stamp.version, purged);
        Arc::new(Object::new(route, (own, relative), encoding, varies, version, source))
    };
    let encoded = |sibling: Option<(Vec<u8>, FileStamp)>, encoding| {
        sibling.map(|(name, stamp)| object(&name, Some(encoding), stamp))
    };
    let variants = Variants {
        plain: object(relative, None, stamp),
        br: encoded(br, Encoding::Br),
        zstd: encoded(zstd, Encoding::Zstd),
        gzip: encoded(gzip, Encoding::Gzip),
    };
    Ok(FoundFile::File(variants, file))
}

/// The directory that contains a path's file, for watching.
pub(crate) fn parent(folder: &FolderBackend, path: &[u8]) -> std::path::PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let end = path.iter().rposition(|&b| b == b'/').unwrap_or(0);
    let relative = path[..end].strip_prefix(b"/").unwrap_or(&path[..end]);
    folder.root.join(Path::new(std::ffi::OsStr::from_bytes(relative)))
}
