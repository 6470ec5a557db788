//! Offloads of devices, by the ioctls of ethtool(8).

use std::io;
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};

use crate::device::Device;
use crate::error::{Error, NET_ADMIN};

const ETHTOOL_GTXCSUM: u32 = 0x16;
#[cfg(test)]
const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_GGRO: u32 = 0x2b;

/// Work that a device does for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offloads {
    /// Packets leave the kernel without checksums, and the device fills them in. A veth does not: a reader of
    /// raw frames at its other end sees wrong ones.
    pub tx_checksum: bool,
    /// Received packets are merged before they reach the network stack.
    pub receive_joining: bool,
}

/// Returns the offloads of `device`; `None` if it does not support the query, such as `lo`.
pub fn offloads(device: &Device) -> Result<Option<Offloads>, Error> {
    let ask = |command| {
        let refused = |cause| {
            Error::refused(format!("read the offloads of {}", device.name), NET_ADMIN, cause)
        };
        match ethtool(&device.name, command, 0) {
            Ok(value) => Ok(Some(value != 0)),
            Err(cause) if cause.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
            Err(cause) => Err(refused(cause)),
        }
    };
    let (tx_checksum, receive_joining) = (ask(ETHTOOL_GTXCSUM)?, ask(ETHTOOL_GGRO)?);
    Ok(tx_checksum
        .zip(receive_joining)
        .map(|(tx_checksum, receive_joining)| Offloads { tx_checksum, receive_joining }))
}

/// Has the checksums of packets sent by `device` computed by the kernel (`false`) or the device.
#[cfg(test)]
pub(crate) fn set_tx_checksum(device: &Device, is_on: bool) -> Result<(), Error> {
    let switched = ethtool(&device.name, ETHTOOL_STXCSUM, u32::from(is_on));
    switched.map(drop).map_err(|cause| {
        Error::refused(format!("set the tx checksum offload of {}", device.name), NET_ADMIN, cause)
    })
}

/// Layout of `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

#[expect(unsafe_code, reason = "the ioctl takes pointers; justified in place")]
fn ethtool(name: &str, command: u32, data: u32) -> io::Result<u32> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    let mut value = Value { command, data };
    // SAFETY: all zeros is a valid `ifreq`: an empty name and a null pointer.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte must stay zero to terminate the name.
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the name is terminated within its array, and `value` outlives the call and is what each of the
    // three commands reads and writes.
    let status = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &mut request) };
    if status == 0 { Ok(value.data) } else { Err(io::Error::last_os_error()) }
}
