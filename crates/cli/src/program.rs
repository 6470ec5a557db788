//! The path of this program, to start it again: for the processes of `skep up` and for a daemon's
//! netguard.

use std::path::{Path, PathBuf};

/// This program, by the name that `ps` shows; by what it was started from if
/// there is no such file any more.
pub fn this_program() -> PathBuf {
    match std::env::current_exe() {
        Ok(path) if path.exists() => path,
        _ => Path::new("/proc/self/exe").to_owned(),
    }
}
