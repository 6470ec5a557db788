//! Real frames: with complete checksums, no longer than the MTU, and accepted
//! also from XDP programs.
//!
//! A `veth` leaves checksums incomplete and frames longer than the MTU, since both ends share
//! one memory. An XDP program that forwards such a frame corrupts it: nothing completes the
//! checksum then. And a frame that XDP sends into a
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
pub(crate) fn complete_checksums(device: &str) -> io::Result<()> {
    ethtool(device, Value { command: SET_TX_CHECKSUM, data: 0 }).map(drop)
}

#[expect(unsafe_code, reason = "there is no safe form of this ioctl")]
fn ethtool(device: &str, mut value: Value) -> io::Result<u32> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: `ifreq` is plain data for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays zero: it ends the name.
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: SIOCETHTOOL reads the name and, with commands of one number,
    // reads and writes one `ethtool_value` behind the pointer; both outlive
    // the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), ETHTOOL as _, &mut request) } {
        0 => Ok(value.data),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::{Bed, Frames, Topology};

    /// `ETHTOOL_GTXCSUM`.
    const GET_TX_CHECKSUM: u32 = 0x16;

    #[test]
    fn machines_complete_their_checksums_where_frames_are_as_on_a_wire() {
        if !rustix::process::geteuid().is_root() {
            let _ = writeln!(io::stderr(), "SKIPPED: machines_complete_their_checksums needs root");
            return;
        }
        for (frames, offloaded) in [(Frames::Wire, 0), (Frames::Large, 1)] {
            let bed = Bed::new(&Topology { frames, ..Topology::default() }).unwrap();
            for machine in bed.machines() {
                let value = Value { command: GET_TX_CHECKSUM, data: 7 };
                let found = machine.run(|| ethtool(machine.device(), value)).unwrap();
                assert_eq!(found.unwrap(), offloaded);
            }
        }
        assert!(complete_checksums("no-such-device-with-such-a-name").is_err());
    }
}
