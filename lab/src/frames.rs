//! Frames as on a wire: checksums complete, no longer than the MTU, and taken
//! also from XDP programs.
//!
//! A `veth` leaves checksums open and frames long, since nothing can happen to
//! them between two ends in one memory. An XDP program that sends such a frame
//! on breaks it: nobody completes it then. And a frame that XDP sends into a
//! `veth` is dropped unless the other end runs an XDP program itself
//! (`drivers/net/veth.c`).

use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::process;

use rustix::fs::{MemfdFlags, memfd_create};

/// A program that passes every frame (`bpf/pass.c`).
const PASS: &[u8] = include_bytes!("../../bpf/objects/pass.o");

/// `ETHTOOL_STXCSUM` of `linux/ethtool.h`: what `ethtool -K DEVICE tx` sets.
const SET_TX_CHECKSUM: u32 = 0x17;

/// `SIOCETHTOOL` of `linux/sockios.h`.
const ETHTOOL: u64 = 0x8946;

/// `struct ethtool_value` of `linux/ethtool.h`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// The passing program as a file for `ip`, which is gone with it.
pub(crate) struct PassProgram(File);

impl PassProgram {
    pub(crate) fn new() -> io::Result<Self> {
        let mut file = File::from(memfd_create(c"pass.o", MemfdFlags::CLOEXEC)?);
        file.write_all(PASS)?;
        Ok(Self(file))
    }

    /// The line for `ip -batch` that attaches it.
    pub(crate) fn attach(&self, device: &str) -> String {
        let (pid, file) = (process::id(), self.0.as_raw_fd());
        format!("link set dev {device} xdp obj /proc/{pid}/fd/{file} sec xdp\n")
    }
}

/// Has checksums completed before frames leave by `device`, a device of this
/// thread's network; segmentation goes with it.
#[expect(unsafe_code, reason = "there is no safe form of this ioctl")]
pub(crate) fn complete_checksums(device: &str) -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let mut value = Value { command: SET_TX_CHECKSUM, data: 0 };
    // SAFETY: `ifreq` is plain data for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays zero: it ends the name.
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: SIOCETHTOOL reads the name and, with this command, reads and
    // writes one `ethtool_value` behind the pointer; both outlive the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), ETHTOOL as _, &mut request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
