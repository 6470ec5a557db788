//! The network devices of this namespace and their XDP programs, read by rtnetlink(7).
//!
//! Names under /sys/class/net may be those of another namespace; names from netlink are not.

use std::io;

use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::DatapathError;
use crate::limits::{DEVICES_NAMED_MAX, NETLINK_BYTES};

/// A network device.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// Hardware address; zero if it has none.
    pub(crate) mac: [u8; 6],
    /// ID of its XDP program.
    pub(crate) xdp: Option<u32>,
}

impl Device {
    /// Finds a device by its name.
    pub(crate) fn named(name: &str) -> Result<Self, DatapathError> {
        let mut devices = devices().map_err(DatapathError::Devices)?;
        match devices.iter().position(|device| device.name == name) {
            Some(at) => Ok(devices.swap_remove(at)),
            None => Err(DatapathError::NoSuchDevice {
                device: name.to_owned(),
                devices: named(devices),
            }),
        }
    }

    /// Describes the owner of its XDP program, for messages.
    pub(crate) fn xdp_owner(&self) -> String {
        let Some(number) = self.xdp else { return "which has gone by now".to_owned() };
        let program =
            aya::programs::loaded_programs().flatten().find(|program| program.id() == number);
        match program.as_ref().and_then(|program| program.name_as_str()) {
            Some(name) => format!("`{name}` (program {number})"),
            None => format!("program {number}"),
        }
    }
}

fn named(devices: Vec<Device>) -> Vec<String> {
    let mut names: Vec<_> = devices.into_iter().map(|device| device.name).collect();
    names.sort();
    let more = names.len().saturating_sub(DEVICES_NAMED_MAX);
    names.truncate(DEVICES_NAMED_MAX);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    names
}

/// Requests all links. Messages are `nlmsghdr`, then `ifinfomsg`, then attributes; numbers are in
/// native byte order.
fn devices() -> io::Result<Vec<Device>> {
    const REQUEST_AND_DUMP: u16 = 0x301;
    let socket = net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        // Protocol 0 of netlink is NETLINK_ROUTE, which includes links.
        None,
    )?;
    let mut request = Vec::with_capacity(HEADER_BYTES + LINK_BYTES);
    request.extend_from_slice(&((HEADER_BYTES + LINK_BYTES) as u32).to_ne_bytes());
    request.extend_from_slice(&libc::RTM_GETLINK.to_ne_bytes());
    request.extend_from_slice(&REQUEST_AND_DUMP.to_ne_bytes());
    request.resize(HEADER_BYTES + LINK_BYTES, 0);
    net::send(&socket, &request, SendFlags::empty())?;
    let mut devices = Vec::new();
    let mut buffer = vec![0; NETLINK_BYTES];
    loop {
        let (_, bytes) = net::recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        if read_messages(&buffer[..bytes], &mut devices)? {
            return Ok(devices);
        }
    }
}

const HEADER_BYTES: usize = 16;
const LINK_BYTES: usize = 16;

/// Whether this was the last message.
fn read_messages(mut bytes: &[u8], devices: &mut Vec<Device>) -> io::Result<bool> {
    const NLMSG_ERROR: u16 = 2;
    const NLMSG_DONE: u16 = 3;
    while bytes.len() >= HEADER_BYTES {
        let length = word(bytes, 0).unwrap_or(0) as usize;
        let message = bytes.get(HEADER_BYTES..length).ok_or(io::ErrorKind::InvalidData)?;
        match half(bytes, 4) {
            Some(NLMSG_DONE) => return Ok(true),
            Some(NLMSG_ERROR) => {
                let errno = word(message, 0).unwrap_or(0) as i32;
                return Err(io::Error::from_raw_os_error(-errno));
            }
            Some(libc::RTM_NEWLINK) => devices.extend(read_device(message)),
            _ => {}
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Ok(false)
}

fn read_device(message: &[u8]) -> Option<Device> {
    let mut device = Device { index: word(message, 4)?, ..Device::default() };
    for (kind, value) in attributes(message.get(LINK_BYTES..)?) {
        match kind {
            libc::IFLA_IFNAME => {
                let name = value.split(|byte| *byte == 0).next()?;
                device.name = String::from_utf8_lossy(name).into_owned();
            }
            libc::IFLA_ADDRESS => device.mac = value.try_into().unwrap_or_default(),
            libc::IFLA_XDP => device.xdp = xdp_program(value),
            _ => {}
        }
    }
    Some(device)
}

fn xdp_program(nested: &[u8]) -> Option<u32> {
    const IFLA_XDP_PROG_ID: u16 = 4;
    const IFLA_XDP_HW_PROG_ID: u16 = 7;
    attributes(nested)
        .filter(|(kind, _)| (IFLA_XDP_PROG_ID..=IFLA_XDP_HW_PROG_ID).contains(kind))
        .find_map(|(_, value)| word(value, 0).filter(|number| *number != 0))
}

/// `rtattr`s: length and kind in 2 bytes each, then the value, in steps of 4.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    const KIND_MASK: u16 = 0x3fff;
    std::iter::from_fn(move || {
        let length = usize::from(half(bytes, 0)?);
        let kind = half(bytes, 2)? & KIND_MASK;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    #[test]
    fn every_namespace_has_a_loopback_device() {
        let device = Device::named("lo").unwrap();
        assert_eq!((device.index, device.name.as_str()), (1, "lo"));
    }

    #[test]
    fn a_device_that_is_not_there_is_told_with_those_that_are() {
        let error = Device::named("nosuch0").unwrap_err().to_string();
        assert!(error.contains("no network device nosuch0 here; there are "), "{error}");
        assert!(error.contains("lo"), "{error}");
    }

    #[test]
    fn lengths_that_lie_end_the_reading() {
        let mut devices = Vec::new();
        for length in [0_u32, 15, 4096] {
            let mut message = [0; 32];
            message[..4].copy_from_slice(&length.to_ne_bytes());
            assert!(read_messages(&message, &mut devices).is_err(), "{length}");
        }
        assert_eq!(attributes(&[3, 0, 1, 0, 9]).count(), 0);
        assert_eq!(attributes(&[200, 0, 1, 0, 9]).count(), 0);
        assert!(devices.is_empty());
    }
}
