//! A log that nobody reads: standard error is a full pipe.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

use crate::Site;

/// See the module. Writes succeed until [`Self::fill`].
pub struct UnreadLog {
    path: PathBuf,
    pipe: File,
    _folder: Site,
}

impl UnreadLog {
    /// Makes an empty pipe.
    pub fn new() -> Self {
        let folder = Site::guarded();
        let path = folder.path("log");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let pipe = options.open(&path).expect("both of its ends are this process");
        Self { path, pipe, _folder: folder }
    }

    /// Fills the pipe: from now on writes to it block for ever.
    pub fn fill(&mut self) {
        while self.pipe.write(&[b'\n'; 512]).is_ok() {}
    }

    /// Returns arguments of `sh` that make it execute the program named after them, with this pipe as
    /// standard error.
    pub fn arguments(&self) -> [String; 2] {
        ["-c".to_owned(), format!("exec \"$0\" \"$@\" 2> '{}'", self.path.display())]
    }
}

impl Default for UnreadLog {
    fn default() -> Self {
        Self::new()
    }
}
