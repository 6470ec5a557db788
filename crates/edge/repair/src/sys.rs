//! The calls for which rustix has no safe form: socket options by number, and the length of the send queue.
//!
//! **Invariant:** all unsafe code of this crate is here, and works on bytes.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, socklen_t};

/// Reads an option of IPPROTO_TCP; returns the number of bytes that the kernel wrote.
#[expect(unsafe_code, reason = "no safe call for it in rustix")]
pub(crate) fn read_option(
    fd: BorrowedFd<'_>,
    option: c_int,
    value: &mut [u8],
) -> io::Result<usize> {
    let mut bytes = socklen_t::try_from(value.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the kernel writes at most `bytes` bytes, as many as `value` has; both outlive the call.
    let result = unsafe {
        let (value, bytes) = (value.as_mut_ptr().cast(), &raw mut bytes);
        libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, option, value, bytes)
    };
    if result == 0 {
        Ok((bytes as usize).min(value.len()))
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Sets an option of IPPROTO_TCP.
#[expect(unsafe_code, reason = "no safe call for it in rustix")]
pub(crate) fn set_option(fd: BorrowedFd<'_>, option: c_int, value: &[u8]) -> io::Result<()> {
    let bytes = socklen_t::try_from(value.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the kernel reads `bytes` bytes, as many as `value` has, which outlives the call.
    let result = unsafe {
        let value = value.as_ptr().cast();
        libc::setsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, option, value, bytes)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Bytes that were written and are not acknowledged yet, whether sent or not (`SIOCOUTQ`, tcp(7)).
#[expect(unsafe_code, reason = "no safe call for it in rustix")]
pub(crate) fn send_queue_bytes(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut bytes: c_int = 0;
    // SAFETY: the kernel writes one `int`, which outlives the call. SIOCOUTQ and TIOCOUTQ have the same
    // number.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u32::try_from(bytes).unwrap_or(u32::MAX))
}
