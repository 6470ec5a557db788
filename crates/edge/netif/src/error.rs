//! Errors of kernel calls, as sentences for operators.

use std::io;
use std::net::IpAddr;

/// Why an operation on devices or addresses failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process lacks a capability.
    #[error(
        "cannot {action}: needs {capability}, which this process does not have. Start it as \
         root, or give it the capability (systemd: `AmbientCapabilities={capability}`)"
    )]
    Privilege {
        action: String,
        /// The missing capability.
        capability: &'static str,
    },
    /// There is no device with this name or address.
    #[error(
        "no network device {wanted}: this machine has {found}. Name one of these, or create the \
         device first (`ip link` shows them)"
    )]
    NoDevice {
        /// The name or address.
        wanted: String,
        /// The existing devices.
        found: String,
    },
    /// The name is not a valid device name.
    #[error(
        "{name:?} cannot be a network device: expected up to 15 characters without `/`, `:` and \
         spaces"
    )]
    NotADeviceName {
        /// The name.
        name: String,
    },
    /// The device is not an Ethernet device, or has no hardware address.
    #[error(
        "cannot {action}: expected an Ethernet device, found one without a hardware address. \
         Direct dispatch needs an Ethernet segment"
    )]
    NotEthernet { action: String },
    /// The device does not support IPv6 addresses.
    #[error(
        "cannot {action}: IPv6 is switched off there. Switch it on: \
         sysctl -w net.ipv6.conf.{device}.disable_ipv6=0"
    )]
    Ipv6Off {
        action: String,
        /// The device's name.
        device: String,
    },
    /// The address cannot be a virtual address.
    #[error(
        "{address} cannot be a virtual address: expected an address of one host that is neither \
         unspecified, loopback, link-local, broadcast nor multicast"
    )]
    NotAVip {
        /// The address.
        address: IpAddr,
    },
    /// Any other error of the kernel.
    #[error("cannot {action}: {cause}")]
    Kernel {
        action: String,
        /// The kernel's error.
        cause: io::Error,
    },
    /// The kernel's answer is malformed.
    #[error("cannot {action}: the kernel's answer was not understood ({detail})")]
    Answer {
        /// The query.
        action: String,
        /// What is wrong with the answer.
        detail: String,
    },
}

/// The capability to change devices and addresses.
pub(crate) const NET_ADMIN: &str = "CAP_NET_ADMIN";
/// The capability to send and receive frames.
pub(crate) const NET_RAW: &str = "CAP_NET_RAW";

impl Error {
    /// The error for a refusal of `action` with `cause`; states `capability` if privileges are missing.
    pub(crate) fn refused(
        action: impl Into<String>,
        capability: &'static str,
        cause: impl Into<io::Error>,
    ) -> Self {
        let (action, cause) = (action.into(), cause.into());
        // Not EACCES, with which the kernel reports prohibited routes and disabled IPv6.
        match cause.raw_os_error() {
            Some(libc::EPERM) => Self::Privilege { action, capability },
            _ => Self::Kernel { action, cause },
        }
    }

    /// The kernel's error number, if the kernel refused the operation.
    pub(crate) fn errno(&self) -> Option<i32> {
        match self {
            Self::Kernel { cause, .. } => cause.raw_os_error(),
            _ => None,
        }
    }
}
