//! A TUN device (`Documentation/networking/tuntap.rst` of the kernel): packets that are routed into it
//! are read from its file, and what is written there comes out of it.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::io::{Errno, read, write};

/// A device that goes with its file.
pub(super) struct Tun(File);

impl Tun {
    /// Makes a device in the network of this thread. It has no addresses and is down.
    #[expect(unsafe_code, reason = "there is no safe form of this ioctl")]
    pub(super) fn open(device: &str) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let file = options.open("/dev/net/tun")?;
        // SAFETY: `ifreq` is plain data for which all zeroes is a value.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        // The last byte stays zero: it ends the name.
        for (to, from) in request.ifr_name.iter_mut().zip(device.bytes().take(libc::IFNAMSIZ - 1)) {
            *to = from as libc::c_char;
        }
        // Packets alone, without a header of the device's own.
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one `ifreq`, which outlives the call.
        match unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &mut request) } {
            0 => Ok(Self(file)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The length of the next packet; `None` if there is none now.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match read(&self.0, buffer) {
            Ok(count) => Ok(Some(count)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn write(&self, packet: &[u8]) -> io::Result<()> {
        write(&self.0, packet).map(drop).map_err(io::Error::from)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
