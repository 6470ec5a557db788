//! The ways to attach a program to a device.

use std::fmt;

/// How a program is to be attached to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The first that works of native XDP, generic XDP and tc; the mode already in use, if it is XDP.
    Auto,
    /// In the driver, before the kernel allocates a packet buffer for the frame.
    XdpNative,
    /// After the buffer is allocated, with any driver.
    XdpGeneric,
    /// At tc's ingress (tcx), beside foreign programs.
    Tc,
}

/// How a program is attached to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attached {
    /// See [`How::XdpNative`].
    XdpNative,
    /// See [`How::XdpGeneric`].
    XdpGeneric,
    /// See [`How::Tc`].
    Tc,
}

impl fmt::Display for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::XdpNative => "native XDP",
            Self::XdpGeneric => "generic XDP",
            Self::Tc => "tc",
        })
    }
}

impl Attached {
    /// All ways, best first.
    pub(crate) const ALL: [Self; 3] = [Self::XdpNative, Self::XdpGeneric, Self::Tc];

    /// Name of the pin of a link attached in this way.
    pub(crate) fn pin_name(self) -> &'static str {
        match self {
            Self::XdpNative => "link-xdp-native",
            Self::XdpGeneric => "link-xdp-generic",
            Self::Tc => "link-tc",
        }
    }
}
