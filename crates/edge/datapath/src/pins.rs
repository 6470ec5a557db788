//! The folder in bpffs in which maps and links outlive the process.
//!
//! **Invariant:** reused maps have the shape that the programs were built for; a map of another
//! shape is replaced, never read.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use aya::maps::{MapData, MapInfo};
use aya_obj::Object;
use aya_obj::maps::PinningType;
use rustix::mount::{MountFlags, mount};

use crate::DatapathError;
use crate::error::chain;

/// Where the packet programs of one role of one process are pinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinPath {
    /// A folder in bpffs, such as `/sys/fs/bpf/skep/NAME/dispatch`. It must not be shared: two processes on
    /// one machine need one each.
    pub pins: PathBuf,
}

/// The conventional mount point of bpffs.
const BPFFS: &str = "/sys/fs/bpf";

/// `BPF_FS_MAGIC` of linux/magic.h.
const BPFFS_MAGIC: i64 = 0xcafe_4a11;

/// Mounts bpffs if it is not mounted.
pub(crate) fn ensure_bpffs() -> Result<(), DatapathError> {
    if is_bpffs(Path::new(BPFFS)) {
        return Ok(());
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("bpf", BPFFS, "bpf", flags, c"mode=0700")
        .map_err(|errno| DatapathError::NoBpffs { path: BPFFS.into(), error: errno.into() })
}

impl PinPath {
    /// Creates the folder.
    pub(crate) fn make(&self) -> Result<(), DatapathError> {
        if self.pins.starts_with(BPFFS) {
            ensure_bpffs()?;
        }
        if !self.pins.ancestors().find(|path| path.exists()).is_some_and(is_bpffs) {
            return Err(DatapathError::NotBpffs { path: self.pins.clone() });
        }
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.pins)
            .map_err(self.failed("make the folder"))
    }

    /// Unpins the maps whose shape differs from that of `object` with `sizes`; returns their names
    /// and handles, which keep their contents until dropped.
    pub(crate) fn unpin_misfits(
        &self,
        object: &Object,
        sizes: &[(&'static str, u32)],
    ) -> Result<Vec<(String, MapData)>, DatapathError> {
        let mut misfits = Vec::new();
        for (name, map) in &object.maps {
            let path = self.pins.join(name);
            if map.pinning() != PinningType::ByName || !path.exists() {
                continue;
            }
            let size = sizes.iter().find(|(sized, _)| sized == name);
            let entries_max = size.map_or(map.max_entries(), |(_, entries_max)| *entries_max);
            let old = MapData::from_pin(&path).map_err(|error| self.pin_error(name, error))?;
            let info = old.info().map_err(|error| self.pin_error(name, error))?;
            if !is_shaped(&info, map, entries_max) {
                fs::remove_file(&path).map_err(self.failed("unpin a map of"))?;
                misfits.push((name.clone(), old));
            }
        }
        Ok(misfits)
    }

    pub(crate) fn failed(&self, doing: &'static str) -> impl Fn(io::Error) -> DatapathError {
        let path = self.pins.clone();
        move |error| DatapathError::Pin { doing, path: path.clone(), error }
    }

    fn pin_error(&self, name: &str, error: aya::maps::MapError) -> DatapathError {
        let path = self.pins.join(name);
        let error = io::Error::other(chain(&error));
        DatapathError::Pin { doing: "read the pinned map", path, error }
    }
}

/// Whether the path is in a bpffs.
pub(crate) fn is_bpffs(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|found| found.f_type == BPFFS_MAGIC)
}

fn is_shaped(info: &MapInfo, map: &aya_obj::Map, entries_max: u32) -> bool {
    info.map_type().is_ok_and(|kind| kind as u32 == map.map_type())
        && info.key_size() == map.key_size()
        && info.value_size() == map.value_size()
        && info.max_entries() == entries_max
        && info.map_flags() == map.map_flags()
}
