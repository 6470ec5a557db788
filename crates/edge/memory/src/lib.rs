//! Memory files, on huge pages if the kernel supports them.
//!
//! `sendfile` passes the pages of a memory file to a socket uncopied. The remaining cost is one
//! reference per page; with 2 MiB pages a 541 KB body takes a few instead of 133
//! (`skep-bench bodies` measures it).
//!
//! The only unsafe code of the node: a mapping is created, advised and removed within one function,
//! and no reference into it ever exists.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

use rustix::fs::{MemfdFlags, memfd_create};

/// Size and alignment of a huge page, in bytes (x86-64 and arm64 with 4 KiB
/// base pages).
pub const HUGE_PAGE_BYTES: u64 = 2 * 1024 * 1024;

/// `MADV_COLLAPSE` of Linux 6.1; independent of the system's settings of transparent huge pages,
/// and unprivileged.
const MADV_COLLAPSE: i32 = 25;

/// A memory file of `bytes` bytes, all zero, private to this process. Its memory is allocated as it
/// is written.
pub fn memory_file(bytes: u64) -> io::Result<File> {
    let file = File::from(memfd_create(c"skep-segments", MemfdFlags::CLOEXEC)?);
    rustix::fs::ftruncate(&file, bytes)?;
    Ok(file)
}

/// Moves `file`, whose length is a multiple of [`HUGE_PAGE_BYTES`], to huge pages. Call it before
/// the file is filled, since empty pages are cheap to replace. Allocates all of its memory now.
/// After an error the file remains usable.
#[expect(unsafe_code, reason = "see the module; each call is justified in place")]
pub fn use_huge_pages(file: &File, bytes: u64) -> io::Result<()> {
    assert!(bytes > 0 && bytes.is_multiple_of(HUGE_PAGE_BYTES), "{bytes} bytes");
    let len = bytes as usize;
    let huge = HUGE_PAGE_BYTES as usize;
    let (reserve, anonymous) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice.
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
            // SAFETY: within the mapping, which is writable. A collapse wants
            // at least one page to be there.
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
    use std::os::unix::fs::FileExt;

    #[test]
    fn bytes_stay_what_they_are_on_either_kind_of_page() {
        let bytes = 2 * HUGE_PAGE_BYTES;
        let file = memory_file(bytes).unwrap();
        let huge = use_huge_pages(&file, bytes);
        eprintln!("huge pages: {huge:?}");
        file.write_all_at(b"hello", HUGE_PAGE_BYTES - 2).unwrap();
        let mut read = [0; 7];
        file.read_exact_at(&mut read, HUGE_PAGE_BYTES - 3).unwrap();
        assert_eq!(&read, b"\0hello\0");
        assert_eq!(file.metadata().unwrap().len(), bytes);
    }
}
