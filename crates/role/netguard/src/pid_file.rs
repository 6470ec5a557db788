//! `NAME.pid` in netguard's folder: which process is the netguard of NAME.
//!
//! It is the last process that wrote the file. An earlier one may still run for a daemon that
//! is gone (see `linger`), and changes nothing once it finds another process's number. There is no
//! lock: a netguard that hangs must not prevent a new one from starting.

use std::fs;
use std::path::{Path, PathBuf};

/// Removed on drop, unless another process has written it since.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Makes this process the netguard of that name. If the file cannot be written, for example
    /// because the disk is full, netguard starts nevertheless.
    pub(crate) fn write(path: &Path) -> Self {
        if let Err(error) = fs::write(path, own_number()) {
            let path = path.display();
            tracing::warn!(%error, "cannot write {path}: another netguard of this name stays, if there is one");
        }
        Self { path: path.to_owned() }
    }

    /// Whether another process has become the netguard of that name. A missing file, or one
    /// being written, names none.
    pub(crate) fn is_replaced(&self) -> bool {
        fs::read_to_string(&self.path).is_ok_and(|text| !text.is_empty() && text != own_number())
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if !self.is_replaced() {
            // The file may already be gone.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn own_number() -> String {
    format!("{}\n", std::process::id())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_last_writer_is_the_one_and_only_its_end_removes_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gate-1.pid");
        fs::write(&path, "1\n").unwrap();
        let file = PidFile::write(&path);
        assert_eq!(fs::read_to_string(&path).unwrap(), own_number());
        assert!(!file.is_replaced());
        // Another process is just writing it.
        fs::write(&path, "").unwrap();
        assert!(!file.is_replaced());
        fs::write(&path, "1\n").unwrap();
        assert!(file.is_replaced());
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
        let file = PidFile::write(&path);
        fs::remove_file(&path).unwrap();
        assert!(!file.is_replaced());
        drop(PidFile::write(&path));
        assert!(!path.exists());
        drop(file);
    }
}
