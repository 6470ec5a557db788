//! The path of this program, for starting it again: for the processes of `skep up` and a daemon's netguard.

use std::path::{Path, PathBuf};

/// This program's path, which `ps` then shows; if that file no longer exists, the executable of this process.
pub fn this_program() -> PathBuf {
    match std::env::current_exe() {
        Ok(path) if path.exists() => path,
        _ => Path::new("/proc/self/exe").to_owned(),
    }
}
