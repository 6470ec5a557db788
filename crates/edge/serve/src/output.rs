//! Output of a worker: few bytes are copied, many are shared.
//!
//! Heads and small bodies are copied into one buffer; large bodies are referenced in the cache's memory.
//! Pipelined replies accumulate in one `Output` and are sent with one vectored write. A reused `Output`
//! allocates nothing.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::limits::{REPLY_PARTS_MAX, SCRATCH_BYTES_MAX};

/// Bytes that outlive the reply because another owner keeps them, such as a cached segment. The `Arc` is the
/// pin: the segment cannot be freed while a reply is sent.
///
/// Shared bytes never change: the kernel may still hold references to the pages of a [`SharedBytes::file`]
/// after they were sent.
pub trait SharedBytes: Send + Sync {
    /// The contiguous bytes of this object's chunk number `chunk`, as far as they are available.
    fn chunk(&self, chunk: u32) -> &[u8];

    /// The location of the bytes if they are in a memory file: they are then sent without copying, and
    /// `chunk` is ignored.
    fn file(&self) -> Option<FilePart<'_>> {
        None
    }
}

/// The part of a memory file that holds the bytes of one object.
#[derive(Clone, Copy, Debug)]
pub struct FilePart<'a> {
    /// The file, which also contains the bytes of other objects.
    pub file: BorrowedFd<'a>,
    /// Offset of the object's bytes.
    pub offset: u64,
    /// The number of available bytes.
    pub bytes: u32,
}

/// Available bytes that an owner keeps: the shared input of an output. It never exceeds its owner's bytes;
/// bytes after it belong to other objects, or to none.
#[derive(Clone)]
pub struct SharedSlice {
    owner: Arc<dyn SharedBytes>,
    chunk: u32,
    start: u32,
    end: u32,
}

impl SharedSlice {
    /// Returns the bytes `range` of `owner`'s chunk number `chunk`, or of its file; `None` if not all of them
    /// are available.
    pub fn of(owner: Arc<dyn SharedBytes>, chunk: u32, range: Range<u32>) -> Option<Self> {
        let Range { start, end } = range;
        let is_there = start <= end && end <= there(&*owner, chunk);
        is_there.then_some(Self { owner, chunk, start, end })
    }

    /// Returns all available bytes of `owner`'s chunk number `chunk`, or of its file.
    pub fn whole(owner: Arc<dyn SharedBytes>, chunk: u32) -> Self {
        let there = there(&*owner, chunk);
        Self { owner, chunk, start: 0, end: there }
    }

    /// Length in bytes.
    pub fn len(&self) -> u32 {
        self.end - self.start
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The bytes to send, without the first `skip`.
    fn rest(&self, skip: usize) -> Rest<'_> {
        let Self { owner, chunk, start, end } = self;
        let Some(part) = owner.file() else {
            return Rest::Memory(&owner.chunk(*chunk)[*start as usize..*end as usize][skip..]);
        };
        assert!(*end <= part.bytes, "what was there stays");
        let offset = part.offset + u64::from(*start) + skip as u64;
        Rest::File { file: part.file, offset, bytes: self.len() as usize - skip }
    }
}

impl std::fmt::Debug for SharedSlice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedSlice({}: {}..{})", self.chunk, self.start, self.end)
    }
}

/// The number of available bytes of a chunk.
fn there(owner: &dyn SharedBytes, chunk: u32) -> u32 {
    let in_memory = || u32::try_from(owner.chunk(chunk).len()).unwrap_or(u32::MAX);
    owner.file().map_or_else(in_memory, |part| part.bytes)
}

/// The remainder of a slice.
enum Rest<'a> {
    Memory(&'a [u8]),
    File { file: BorrowedFd<'a>, offset: u64, bytes: usize },
}

/// The input of one system call.
pub(crate) enum Piece<'a> {
    /// Bytes in memory; `more` if bytes of a file follow immediately.
    Memory { slices: &'a [IoSlice<'a>], more: bool },
    /// `bytes` bytes of a memory file from `offset`.
    File { file: BorrowedFd<'a>, offset: u64, bytes: usize },
}

enum Part {
    Inline { end: usize },
    Shared(SharedSlice),
}

/// A queue of bytes to write, in order.
#[derive(Default)]
pub struct Output {
    inline: Vec<u8>,
    /// Completed parts; inline bytes after the last of them follow these parts.
    parts: Vec<Part>,
    /// Number of parts that were written completely.
    parts_done: usize,
    /// Number of bytes written of the first part that is not complete.
    part_offset: usize,
    /// Offset in `inline` of the first inline byte not yet written.
    inline_start: usize,
    sealed_end: usize,
    bytes_left: u64,
}

impl Output {
    /// Appends the bytes that `write` pushes to the vector that it gets; it must do nothing else with it.
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

    /// Appends the bytes of `slice` without copying.
    pub fn share(&mut self, slice: SharedSlice) {
        if slice.is_empty() {
            return;
        }
        self.seal();
        self.bytes_left += u64::from(slice.len());
        self.parts.push(Part::Shared(slice));
    }

    /// Removes the shared bytes that were appended last and are not yet written; returns their number.
    pub fn take_back(&mut self) -> u64 {
        self.seal();
        let before = self.bytes_left;
        while self.parts.len() > self.parts_done
            && let Some(Part::Shared(slice)) = self.parts.last()
        {
            let is_begun = self.parts.len() == self.parts_done + 1;
            let written = if is_begun { std::mem::take(&mut self.part_offset) } else { 0 };
            self.bytes_left -= u64::from(slice.len()) - written as u64;
            self.parts.pop();
        }
        let taken_back = before - self.bytes_left;
        if self.is_empty() {
            self.clear();
        }
        taken_back
    }

    /// Replaces shared bytes by copies, so that no memory of other owners is referenced.
    pub fn own(&mut self) -> io::Result<()> {
        let mut own = Vec::with_capacity(self.bytes_left as usize);
        while !self.is_empty() {
            self.write_once(usize::MAX, |piece| match piece {
                Piece::Memory { slices, .. } => {
                    slices.iter().for_each(|slice| own.extend_from_slice(slice));
                    Ok(slices.iter().map(|slice| slice.len()).sum())
                }
                Piece::File { file, offset, bytes } => {
                    let before = own.len();
                    own.resize(before + bytes, 0);
                    let read = rustix::io::pread(file, &mut own[before..], offset)?;
                    own.truncate(before + read);
                    if read > 0 { Ok(read) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
                }
            })?;
        }
        self.copy(&own);
        Ok(())
    }

    /// The number of bytes not yet written.
    pub fn len(&self) -> u64 {
        self.bytes_left
    }

    /// Whether everything was written.
    pub fn is_empty(&self) -> bool {
        self.bytes_left == 0
    }

    /// Calls `look` with the inline bytes that are not yet written.
    pub fn with_bytes<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        look(&self.inline[self.inline_start..])
    }

    /// Whether it has allocated memory: a new one has none.
    pub fn has_memory(&self) -> bool {
        self.inline.capacity() + self.parts.capacity() > 0
    }

    /// Clears the output, written or not, and keeps its memory for reuse.
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

    /// Calls `write` once with the first bytes not yet written, at most `bytes_max` of them, and advances by
    /// the number that it returns. Returns `Ok(true)` if it wrote all of them.
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
                    &bytes[skip..]
                }
                Part::Shared(slice) => match slice.rest(skip) {
                    Rest::Memory(bytes) => bytes,
                    Rest::File { file: found, offset, bytes } => {
                        file = Some((found, offset, bytes));
                        break;
                    }
                },
            };
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
                Part::Shared(slice) => (slice.len() as usize, None),
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

    /// A memory file that has the alphabet from byte 1 on.
    struct Alphabet(std::fs::File);
    impl SharedBytes for Alphabet {
        fn chunk(&self, _: u32) -> &[u8] {
            unreachable!("it is a file")
        }
        fn file(&self) -> Option<FilePart<'_>> {
            Some(FilePart { file: self.0.as_fd(), offset: 1, bytes: 26 })
        }
    }

    fn slice(owner: &Arc<dyn SharedBytes>, start: u32, end: u32) -> SharedSlice {
        SharedSlice::of(Arc::clone(owner), 0, start..end).unwrap()
    }

    fn fixed(bytes: &[u8]) -> Arc<dyn SharedBytes> {
        Arc::new(Fixed(bytes.to_vec()))
    }

    fn alphabet() -> Arc<dyn SharedBytes> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"_abcdefghijklmnopqrstuvwxyz_").unwrap();
        Arc::new(Alphabet(file))
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

    /// Writes `output` in pieces of `bite` bytes, and returns the bytes written.
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
            output.share(slice(&fixed(b"0123456789"), 2, 7));
            output.copy(b"head two;");
            output.copy(b"more;");
            output.share(slice(&fixed(b"abc"), 0, 3));
            output.share(slice(&fixed(b"abc"), 1, 1));
            assert_eq!(drain(&mut output, bite), b"head one;23456head two;more;abc");
            assert!(output.is_empty());
        }
    }

    #[test]
    fn files_and_memory_interleave_in_any_bite_size() {
        for bite in 1..40 {
            let alphabet = alphabet();
            let mut output = Output::default();
            output.copy(b"head;");
            output.share(slice(&alphabet, 3, 9));
            output.share(slice(&alphabet, 20, 26));
            output.copy(b";tail");
            assert_eq!(drain(&mut output, bite), b"head;defghiuvwxyz;tail");
        }
    }

    #[test]
    #[expect(clippy::reversed_empty_ranges, reason = "it is to be refused")]
    fn there_is_no_slice_of_more_than_there_is() {
        for owner in [fixed(b"abcdefghijklmnopqrstuvwxyz"), alphabet()] {
            let of = |range| SharedSlice::of(Arc::clone(&owner), 0, range).map(|it| it.len());
            assert_eq!([of(0..26), of(25..26), of(26..26)], [Some(26), Some(1), Some(0)]);
            assert_eq!([of(0..27), of(27..27), of(26..30), of(7..6)], [None; 4]);
        }
    }

    #[test]
    fn what_is_shared_can_be_taken_back_or_owned_wherever_it_was_interrupted() {
        let all = b"head;23456abcdef";
        for sent in 0..all.len() {
            for is_owned in [true, false] {
                let mut output = Output::default();
                output.copy(b"head;");
                let body = fixed(b"0123456789");
                output.share(slice(&body, 2, 7));
                output.share(slice(&fixed(b"abcdef"), 0, 6));
                let mut sink = Vec::new();
                while sink.len() < sent {
                    let mut bite = |bytes: Vec<u8>| {
                        let some = bytes.len().min(sent - sink.len());
                        sink.extend_from_slice(&bytes[..some]);
                        Ok(some)
                    };
                    output.write_once(usize::MAX, |piece| bite(bytes_of(piece))).unwrap();
                }
                let taken = match is_owned {
                    true => output.own().map(|()| 0).unwrap(),
                    false => output.take_back(),
                };
                assert_eq!(Arc::strong_count(&body), 1, "nothing of it is held");
                sink.extend(drain(&mut output, 3));
                assert_eq!(sink, all[..all.len() - taken as usize], "{sent}");
                assert!(is_owned || taken as usize == all.len() - sent.max(5));
            }
        }
    }

    #[test]
    fn more_parts_than_one_write_takes() {
        let mut output = Output::default();
        let body = fixed(b"x");
        for _ in 0..(3 * REPLY_PARTS_MAX) {
            output.share(slice(&body, 0, 1));
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
