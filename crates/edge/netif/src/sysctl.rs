//! The three IPv4 settings that determine which machine answers ARP for a virtual address (Linux,
//! `Documentation/networking/ip-sysctl.rst`).
//!
//! Each exists for every device and for `all`; the larger value is in force. IPv6 needs none of them: there a
//! device answers for its own addresses only.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

use crate::error::{Error, NET_ADMIN};
use crate::limits::DEVICE_NAME_BYTES_MAX;

/// The pseudo device whose setting applies to every device.
pub(crate) const ALL: &str = "all";

/// One of the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Knob {
    /// `arp_ignore`: 0 answers ARP for any address of the machine, 1 for those of the receiving
    /// device.
    ArpIgnore,
    /// `arp_announce`: 0 sends ARP requests with any address of the machine as sender, 2 with the
    /// best of the device.
    ArpAnnounce,
    /// `rp_filter`: 1 drops packets that arrive by a device other than that of the route back, 2 only those
    /// whose source is not reachable at all.
    RpFilter,
}

impl Knob {
    /// Its name for operators, in the form of `sysctl`.
    pub(crate) fn name(self, device: &str) -> String {
        format!("net.ipv4.conf.{device}.{}", self.file())
    }

    fn file(self) -> &'static str {
        match self {
            Self::ArpIgnore => "arp_ignore",
            Self::ArpAnnounce => "arp_announce",
            Self::RpFilter => "rp_filter",
        }
    }

    /// The only function that maps a device's name to a path below /proc/sys.
    fn path(self, device: &str) -> Result<String, Error> {
        if !is_device_name(device) {
            return Err(Error::NotADeviceName { name: device.to_owned() });
        }
        Ok(format!("/proc/sys/net/ipv4/conf/{device}/{}", self.file()))
    }
}

/// The kernel's rule for valid names (`dev_valid_name` of net/core/dev.c), for ASCII.
fn is_device_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b':';
    (1..=DEVICE_NAME_BYTES_MAX).contains(&name.len())
        && name != "."
        && name != ".."
        && name.bytes().all(is_plain)
}

/// Returns the value for `device`; `None` if there is no such device.
pub(crate) fn read(knob: Knob, device: &str) -> Result<Option<i32>, Error> {
    let refused = |cause| Error::refused(format!("read {}", knob.name(device)), NET_ADMIN, cause);
    match fs::read_to_string(knob.path(device)?) {
        Ok(text) => text
            .trim()
            .parse()
            .map(Some)
            .map_err(|_| refused(io::Error::other(format!("it holds {text:?}, no number")))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(refused(error)),
    }
}

/// The value in force for `device`.
pub(crate) fn in_force(knob: Knob, device: &str) -> Result<i32, Error> {
    let (all, own) = (read(knob, ALL)?, read(knob, device)?);
    Ok(all.unwrap_or(0).max(own.unwrap_or(0)))
}

pub(crate) fn write(knob: Knob, device: &str, value: i32) -> Result<(), Error> {
    let action = format!("set {} = {value}", knob.name(device));
    match fs::write(knob.path(device)?, value.to_string()) {
        // Files report missing privileges by EACCES.
        Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => {
            Err(Error::Privilege { action, capability: NET_ADMIN })
        }
        written => written.map_err(|cause| Error::refused(action, NET_ADMIN, cause)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_the_folder_of_devices() {
        for good in ["all", "default", "lo", "eth0", "eth0.100", "br-12ab34cd56ef", "..."] {
            assert!(Knob::RpFilter.path(good).is_ok(), "{good}");
        }
        let long = "x".repeat(DEVICE_NAME_BYTES_MAX + 1);
        for bad in
            ["", ".", "..", "../../../kernel", "a/b", "/", "a b", "a\n", "a\0", "eth0:1", &long]
        {
            let refused = [read(Knob::ArpIgnore, bad).map(drop), write(Knob::ArpIgnore, bad, 1)];
            let by_name = |it| matches!(it, Err(Error::NotADeviceName { .. }));
            assert!(refused.into_iter().all(by_name), "{bad:?}");
        }
    }
}
