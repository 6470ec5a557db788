//! What a worker is about to write: small bytes gathered, large bytes shared.
//!
//! Heads and small bodies are copied into one buffer; large bodies are named by
//! reference to memory that the cache owns. Pipelined replies pile up in one
//! `Output` and leave with one vectored write. Reused, it allocates nothing.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::limits::{REPLY_PARTS_MAX, SCRATCH_BYTES_MAX};

/// Bytes that outlive the reply because somebody else keeps them: a cached
/// segment. The `Arc` is the pin: while a reply is being sent it cannot go.
///
/// Bytes once shared never change: the kernel may still hold references to the
/// pages of a [`SharedBytes::file`] after they count as sent.
pub trait SharedBytes: Send + Sync {
    /// The contiguous bytes number `chunk` of this object.
    fn chunk(&self, chunk: u32) -> &[u8];

    /// The memory file that holds the bytes instead, if one does, and where in
    /// it they begin: then they are sent without being copied, and `chunk`
    /// means nothing.
    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        None
    }
}

/// What one system call is to send.
pub(crate) enum Piece<'a> {
    /// Bytes in memory; `more` if a file follows at once.
    Memory { slices: &'a [IoSlice<'a>], more: bool },
    /// `bytes` bytes of a memory file from `offset`.
    File { file: BorrowedFd<'a>, offset: u64, bytes: usize },
}

enum Part {
    Inline { end: usize },
    Shared { owner: Arc<dyn SharedBytes>, chunk: u32, start: u32, end: u32 },
}

/// A queue of bytes to write, in order.
#[derive(Default)]
pub struct Output {
    inline: Vec<u8>,
    /// Sealed parts; inline bytes past the last sealed one come after them.
    parts: Vec<Part>,
    /// Parts written whole.
    parts_done: usize,
    /// Bytes written of the first part that is not done.
    part_offset: usize,
    /// Start, within `inline`, of the first inline byte not yet written.
    inline_start: usize,
    sealed_end: usize,
    bytes_left: u64,
}

impl Output {
    /// Appends by `write`, which may only push to the vector it gets.
    pub fn inline(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.inline.len();
        write(&mut self.inline);
        assert!(self.inline.len() >= before, "an output only grows");
        self.bytes_left += (self.inline.len() - before) as u64;
    }

    /// Appends a copy of `bytes`.
    pub fn copy(&mut self, bytes: &[u8]) {
        self.inline.extend_from_slice(bytes);
        self.bytes_left += bytes.len() as u64;
    }

    /// Appends bytes `start..end` of `owner`'s chunk number `chunk`, uncopied.
    pub fn share(&mut self, owner: Arc<dyn SharedBytes>, chunk: u32, start: u32, end: u32) {
        assert!(start <= end, "a range runs forward");
        if start == end {
            return;
        }
        self.seal();
        self.bytes_left += u64::from(end - start);
        self.parts.push(Part::Shared { owner, chunk, start, end });
    }

    /// Bytes not yet written.
    pub fn len(&self) -> u64 {
        self.bytes_left
    }

    /// Whether all is written.
    pub fn is_empty(&self) -> bool {
        self.bytes_left == 0
    }

    /// Calls `look` with the small bytes appended since the last `clear`.
    pub fn with_bytes<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        look(&self.inline[self.inline_start..])
    }

    /// Forgets everything, written or not, and keeps the memory for reuse.
    pub fn clear(&mut self) {
        self.parts.clear();
        self.inline.clear();
        self.inline.shrink_to(SCRATCH_BYTES_MAX);
        self.parts_done = 0;
        self.part_offset = 0;
        self.inline_start = 0;
        self.sealed_end = 0;
        self.bytes_left = 0;
    }

    /// Calls `write` once with the first bytes not yet written, at most
    /// `bytes_max` of them, and counts what it says it wrote. `Ok(true)` if
    /// that was all it was given.
    pub(crate) fn write_once(
        &mut self,
        bytes_max: usize,
        write: impl FnOnce(Piece<'_>) -> io::Result<usize>,
    ) -> io::Result<bool> {
        self.seal();
        let mut slices = [IoSlice::new(&[]); REPLY_PARTS_MAX];
        let mut count = 0;
        let mut offered = 0;
        let mut inline_at = self.inline_start;
        let mut skip = self.part_offset;
        let mut file = None;
        for part in self.parts[self.parts_done..].iter().take(REPLY_PARTS_MAX) {
            let bytes = match part {
                Part::Inline { end } => {
                    let bytes = &self.inline[inline_at..*end];
                    inline_at = *end;
                    bytes
                }
                Part::Shared { owner, chunk, start, end } => match owner.file() {
                    None => &owner.chunk(*chunk)[*start as usize..*end as usize],
                    Some((found, base)) => {
                        let offset = base + u64::from(*start) + skip as u64;
                        file = Some((found, offset, (end - start) as usize - skip));
                        break;
                    }
                },
            };
            let bytes = &bytes[skip..];
            let bytes = &bytes[..bytes.len().min(bytes_max - offered)];
            slices[count] = IoSlice::new(bytes);
            offered += bytes.len();
            skip = 0;
            count += 1;
            if offered == bytes_max {
                break;
            }
        }
        let piece = match file {
            Some((file, offset, bytes)) if count == 0 => {
                offered = bytes.min(bytes_max);
                Piece::File { file, offset, bytes: offered }
            }
            _ => Piece::Memory { slices: &slices[..count], more: file.is_some() },
        };
        let written = write(piece)?;
        assert!(written <= offered, "no more is written than was offered");
        self.advance(written);
        Ok(written == offered)
    }

    fn seal(&mut self) {
        if self.inline.len() > self.sealed_end {
            self.sealed_end = self.inline.len();
            self.parts.push(Part::Inline { end: self.sealed_end });
        }
    }

    fn advance(&mut self, mut written: usize) {
        self.bytes_left -= written as u64;
        while let Some(part) = self.parts.get(self.parts_done) {
            let (len, inline_end) = match part {
                Part::Inline { end } => (end - self.inline_start, Some(*end)),
                Part::Shared { start, end, .. } => ((end - start) as usize, None),
            };
            let left = len - self.part_offset;
            if written < left {
                self.part_offset += written;
                return;
            }
            written -= left;
            self.part_offset = 0;
            self.parts_done += 1;
            self.inline_start = inline_end.unwrap_or(self.inline_start);
        }
        assert_eq!(written, 0, "what was written belongs to a part");
        self.clear();
    }
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output").field("bytes_left", &self.bytes_left).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    struct Fixed(Vec<u8>);
    impl SharedBytes for Fixed {
        fn chunk(&self, _: u32) -> &[u8] {
            &self.0
        }
    }

    /// A memory file in which the alphabet begins at byte 1.
    struct Alphabet(std::fs::File);
    impl SharedBytes for Alphabet {
        fn chunk(&self, _: u32) -> &[u8] {
            unreachable!("it is a file")
        }
        fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
            Some((self.0.as_fd(), 1))
        }
    }

    fn bytes_of(piece: Piece<'_>) -> Vec<u8> {
        match piece {
            Piece::Memory { slices, .. } => {
                slices.iter().flat_map(|slice| slice.iter().copied()).collect()
            }
            Piece::File { file, offset, bytes } => {
                let mut all = vec![0; bytes];
                assert_eq!(rustix::io::pread(file, &mut all[..], offset), Ok(bytes));
                all
            }
        }
    }

    /// Writes `output` in bites of `bite` bytes and returns what came out.
    fn drain(output: &mut Output, bite: usize) -> Vec<u8> {
        let mut sink = Vec::new();
        while !output.is_empty() {
            output
                .write_once(usize::MAX, |piece| {
                    let all = bytes_of(piece);
                    let n = bite.min(all.len());
                    sink.extend_from_slice(&all[..n]);
                    Ok(n)
                })
                .unwrap();
        }
        sink
    }

    #[test]
    fn any_bite_size_gives_the_same_bytes() {
        for bite in 1..40 {
            let mut output = Output::default();
            output.copy(b"head one;");
            output.share(Arc::new(Fixed(b"0123456789".to_vec())), 0, 2, 7);
            output.copy(b"head two;");
            output.copy(b"more;");
            output.share(Arc::new(Fixed(b"abc".to_vec())), 0, 0, 3);
            output.share(Arc::new(Fixed(b"abc".to_vec())), 0, 1, 1);
            assert_eq!(drain(&mut output, bite), b"head one;23456head two;more;abc");
            assert!(output.is_empty());
        }
    }

    #[test]
    fn files_and_memory_interleave_in_any_bite_size() {
        for bite in 1..40 {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(b"_abcdefghijklmnopqrstuvwxyz").unwrap();
            let alphabet: Arc<dyn SharedBytes> = Arc::new(Alphabet(file));
            let mut output = Output::default();
            output.copy(b"head;");
            output.share(Arc::clone(&alphabet), 0, 3, 9);
            output.share(alphabet, 0, 20, 26);
            output.copy(b";tail");
            assert_eq!(drain(&mut output, bite), b"head;defghiuvwxyz;tail");
        }
    }

    #[test]
    fn more_parts_than_one_write_takes() {
        let mut output = Output::default();
        let body: Arc<dyn SharedBytes> = Arc::new(Fixed(b"x".to_vec()));
        for _ in 0..(3 * REPLY_PARTS_MAX) {
            output.share(Arc::clone(&body), 0, 0, 1);
        }
        assert_eq!(drain(&mut output, usize::MAX).len(), 3 * REPLY_PARTS_MAX);
    }

    #[test]
    fn appending_while_half_written_keeps_the_order() {
        let mut output = Output::default();
        output.copy(b"abcdef");
        output.write_once(usize::MAX, |_| Ok(2)).unwrap();
        output.copy(b"ghi");
        assert_eq!(drain(&mut output, 3), b"cdefghi");
    }
}
