//! Memory files, in large folios if the kernel supports them.
//!
//! `sendfile` passes the pages of a memory file to a socket without copying. The remaining cost is one
//! reference per folio: a 541 KB body takes a few dozen folios of up to 64 KiB instead of 133 pages
//! (`skep-bench bodies` measures it). Larger folios would waste memory: a socket that holds one byte of a
//! folio keeps all of it until the client acknowledges the byte, even when the file is gone.
//!
//! The only unsafe code of the node is here: a mapping is created, advised and removed within one function,
//! and no reference into it ever exists; and one call of the allocator ([`return_unused`]).

mod allocator;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::ptr;

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};

pub use allocator::return_unused;

/// Size and alignment of a huge page, in bytes (x86-64 and arm64 with 4 KiB
/// base pages).
const HUGE_PAGE_BYTES: u64 = 2 * 1024 * 1024;

/// A base page, in bytes.
const PAGE_BYTES: u64 = 4 * 1024;

/// Distance between the pages that are punched out of a huge page, in bytes. Folios are aligned to their
/// size, a power of two: between two such pages there is room for one of half this size.
const HOLES_EVERY_BYTES: u64 = 2 * FOLIO_BYTES_MAX;

/// The size of the largest folio of a memory file, in bytes: what one byte in the queue of a socket keeps
/// allocated.
pub const FOLIO_BYTES_MAX: u64 = 64 * 1024;

/// `MADV_COLLAPSE` of Linux 6.1; independent of the system's settings of transparent huge pages,
/// and unprivileged.
const MADV_COLLAPSE: i32 = 25;

/// A memory file of `bytes` bytes, all zero, private to this process. If its length is a multiple
/// of 2 MiB, it has folios of up to [`FOLIO_BYTES_MAX`] where the kernel can make them, and its
/// memory is allocated now; otherwise it has base pages, allocated as they are written.
pub fn memory_file(bytes: u64) -> io::Result<File> {
    if bytes > 0 && bytes.is_multiple_of(HUGE_PAGE_BYTES) {
        let file = empty_file(bytes)?;
        if collapse(&file, bytes).and_then(|()| split(&file, bytes)).is_ok() {
            return Ok(file);
        }
        // A file with base pages also works, at a slightly higher cost. The first file may have huge pages,
        // so it is not used.
    }
    empty_file(bytes)
}

fn empty_file(bytes: u64) -> io::Result<File> {
    let file = File::from(memfd_create(c"skep-segments", MemfdFlags::CLOEXEC)?);
    rustix::fs::ftruncate(&file, bytes)?;
    Ok(file)
}

/// Splits the huge pages of `file`, which is empty and not mapped, by punching pages out of them. The rest
/// stays in folios as large as fit between the holes (since Linux 6.16; older kernels leave base pages).
///
/// Some huge page may be left. The kernel reports it: it reclaims no memory from a folio that it cannot
/// split.
fn split(file: &File, bytes: u64) -> io::Result<()> {
    for at in (0..bytes).step_by(HOLES_EVERY_BYTES as usize) {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(file, punch, at, PAGE_BYTES)?;
    }
    let holes_bytes = bytes / HOLES_EVERY_BYTES * PAGE_BYTES;
    match file.metadata()?.blocks() * 512 <= bytes - holes_bytes {
        true => Ok(()),
        false => Err(io::ErrorKind::ResourceBusy.into()),
    }
}

/// Moves `file`, whose length is a multiple of [`HUGE_PAGE_BYTES`], to huge pages while it is empty and its
/// pages are cheap to replace. Allocates all of its memory.
#[expect(unsafe_code, reason = "see the module; each call is justified in place")]
fn collapse(file: &File, bytes: u64) -> io::Result<()> {
    let len = bytes as usize;
    let huge = HUGE_PAGE_BYTES as usize;
    let (reserve, anonymous) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address that the kernel chooses.
    let room = unsafe { libc::mmap(ptr::null_mut(), len + huge, reserve, anonymous, -1, 0) };
    if room == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let aligned = room.wrapping_byte_add(room.align_offset(huge));
    let shared = libc::MAP_SHARED | libc::MAP_FIXED;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: `aligned..aligned + len` lies within `room`, which is ours and
    // which nothing points to.
    let mapped = unsafe { libc::mmap(aligned, len, access, shared, file.as_raw_fd(), 0) };
    let mut result = Ok(());
    if mapped == libc::MAP_FAILED {
        result = Err(io::Error::last_os_error());
    } else {
        for at in (0..len).step_by(huge) {
            // SAFETY: within the mapping, which is writable. Collapsing requires at least one present page.
            unsafe { mapped.cast::<u8>().add(at).write_volatile(0) };
        }
        // SAFETY: the range is a mapping of ours; the advice changes no bytes.
        if unsafe { libc::madvise(mapped, len, MADV_COLLAPSE) } != 0 {
            result = Err(io::Error::last_os_error());
        }
    }
    // SAFETY: unmaps what the first call mapped, the file's mapping included;
    // no reference into it was ever made.
    unsafe { libc::munmap(room, len + huge) };
    result
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::FileExt;

    #[test]
    fn bytes_stay_what_they_are_in_either_kind_of_folio() {
        for bytes in [2 * HUGE_PAGE_BYTES, 2 * HUGE_PAGE_BYTES - 1] {
            let file = memory_file(bytes).unwrap();
            file.write_all_at(b"hello", HUGE_PAGE_BYTES - 2).unwrap();
            let mut read = [0; 7];
            file.read_exact_at(&mut read, HUGE_PAGE_BYTES - 3).unwrap();
            assert_eq!(&read, b"\0hello\0");
            assert_eq!(file.metadata().unwrap().len(), bytes);
        }
    }

    #[test]
    fn what_is_not_split_is_found_out() {
        let file = empty_file(HUGE_PAGE_BYTES).unwrap();
        if collapse(&file, HUGE_PAGE_BYTES).is_err() {
            return eprintln!("skipped: no huge pages to be had");
        }
        // A reference from the queue of a socket prevents splitting.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut at = HUGE_PAGE_BYTES / 2;
        assert_eq!(rustix::fs::sendfile(&sender, &file, Some(&mut at), 1), Ok(1));
        assert!(split(&file, HUGE_PAGE_BYTES).is_err());
        // Nor does `memory_file` return a file with such a page.
        let file = memory_file(HUGE_PAGE_BYTES).unwrap();
        let holes_bytes = HUGE_PAGE_BYTES / HOLES_EVERY_BYTES * PAGE_BYTES;
        assert!(file.metadata().unwrap().blocks() * 512 <= HUGE_PAGE_BYTES - holes_bytes);
    }
}
