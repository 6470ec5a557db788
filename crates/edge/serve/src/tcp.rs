//! The kernel's information on a TCP connection.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::pace::Taken;

/// Offsets within `struct tcp_info` (linux/tcp.h), in bytes. The kernel only ever appends to it, and fills as
/// much of it as fits the buffer.
const SEGMENT_BYTES: usize = 16;
const ACKED_BYTES: usize = 120;
const INFO_BYTES: usize = 128;

/// Aligned as in the kernel.
#[repr(C, align(8))]
struct Info([u8; INFO_BYTES]);

/// Returns how many of the sent bytes the peer of `socket` has acknowledged.
///
/// # Errors
/// The kernel's error: the socket is not TCP.
pub(crate) fn taken(socket: &impl AsFd) -> io::Result<Taken> {
    let info = info(socket)?;
    Ok(Taken {
        acked_bytes: u64::from_ne_bytes(info.array(ACKED_BYTES)),
        segment_bytes: u32::from_ne_bytes(info.array(SEGMENT_BYTES)).into(),
    })
}

impl Info {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|byte| self.0[at + byte])
    }
}

#[expect(unsafe_code, reason = "no safe call for it in rustix or socket2")]
fn info(socket: &impl AsFd) -> io::Result<Info> {
    let mut info = Info([0; INFO_BYTES]);
    let mut bytes = INFO_BYTES as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes to `info`, and both outlive the call; any bytes are a
    // valid `Info`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut bytes,
        )
    };
    if result == 0 { Ok(info) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn what_was_acknowledged_is_told_to_the_byte() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        let before = taken(&ours).unwrap();
        assert!(before.segment_bytes > 0, "{before:?}");
        ours.write_all(&[7; 10_000]).unwrap();
        theirs.read_exact(&mut [0; 10_000]).unwrap();
        // A reply acknowledges all data before it.
        theirs.write_all(b"x").unwrap();
        ours.read_exact(&mut [0]).unwrap();
        assert_eq!(taken(&ours).unwrap().acked_bytes - before.acked_bytes, 10_000);
    }

    #[test]
    fn what_is_no_tcp_is_an_error() {
        assert!(taken(&std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
