//! What can go wrong between us and the kernel, as sentences for operators.

use std::io;
use std::net::IpAddr;

/// Why something about devices or addresses could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process lacks a capability.
    #[error(
        "cannot {action}: needs {capability}, which this process does not have. Start it as \
         root, or give it the capability (systemd: `AmbientCapabilities={capability}`)"
    )]
    Privilege {
        /// What was to be done.
        action: String,
        /// What it takes.
        capability: &'static str,
    },
    /// No device of this name, or with this address.
    #[error(
        "no network device {wanted}: this machine has {found}. Name one of these, or create the \
         device first (`ip link` shows them)"
    )]
    NoDevice {
        /// What was looked for.
        wanted: String,
        /// What there is.
        found: String,
    },
    /// No device can have this name.
    #[error(
        "{name:?} cannot be a network device: expected up to 15 characters without `/`, `:` and \
         spaces"
    )]
    NotADeviceName {
        /// What was given.
        name: String,
    },
    /// The device is no Ethernet, or has no hardware address.
    #[error(
        "cannot {action}: expected an Ethernet device, found one without a hardware address. \
         Direct dispatch needs an Ethernet segment"
    )]
    NotEthernet {
        /// What was to be done.
        action: String,
    },
    /// The device takes no IPv6 addresses.
    #[error(
        "cannot {action}: IPv6 is switched off there. Switch it on: \
         sysctl -w net.ipv6.conf.{device}.disable_ipv6=0"
    )]
    Ipv6Off {
        /// What was to be done.
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
        /// What was given.
        address: IpAddr,
    },
    /// Anything else the kernel says.
    #[error("cannot {action}: {cause}")]
    Kernel {
        /// What was to be done.
        action: String,
        /// What the kernel said.
        cause: io::Error,
    },
    /// An answer of the kernel that we do not understand.
    #[error("cannot {action}: the kernel's answer was not understood ({detail})")]
    Answer {
        /// What was asked.
        action: String,
        /// What was wrong with the answer.
        detail: String,
    },
}

/// What changing devices and addresses takes.
pub(crate) const NET_ADMIN: &str = "CAP_NET_ADMIN";
/// What sending and receiving frames takes.
pub(crate) const NET_RAW: &str = "CAP_NET_RAW";

impl Error {
    /// The kernel refused `action` with `cause`; missing rights name `capability`.
    pub(crate) fn refused(
        action: impl Into<String>,
        capability: &'static str,
        cause: impl Into<io::Error>,
    ) -> Self {
        let (action, cause) = (action.into(), cause.into());
        // Not EACCES, by which routing says "prohibited" and IPv6 "switched off".
        match cause.raw_os_error() {
            Some(libc::EPERM) => Self::Privilege { action, capability },
            _ => Self::Kernel { action, cause },
        }
    }

    /// The kernel's error number, if it was the kernel that refused.
    pub(crate) fn errno(&self) -> Option<i32> {
        match self {
            Self::Kernel { cause, .. } => cause.raw_os_error(),
            _ => None,
        }
    }
}
