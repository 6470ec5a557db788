//! Files with the content of a pattern.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use skep_workload::Pattern;

const CHUNK_BYTES: usize = 4096;

/// Writes a file of `len` bytes of a pattern.
pub fn write_pattern(pattern: Pattern, path: &Path, len: u64) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let (mut at, mut chunk) = (0, [0; CHUNK_BYTES]);
    while at < len {
        let count = (len - at).min(CHUNK_BYTES as u64) as usize;
        pattern.fill(at, &mut chunk[..count]);
        file.write_all(&chunk[..count])?;
        at += count as u64;
    }
    file.flush()
}
