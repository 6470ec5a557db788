//! Hardware addresses of Ethernet.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The hardware address of an Ethernet device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// Broadcast: all machines on the segment.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// The unspecified address, as in probes.
    pub const UNKNOWN: Self = Self([0; 6]);

    /// Whether it can be the address of one machine: neither multicast (lowest bit of the first byte) nor all
    /// zeros.
    pub fn is_single(self) -> bool {
        self.0[0] & 1 == 0 && self != Self::UNKNOWN
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<&[u8]> for MacAddr {
    type Error = std::array::TryFromSliceError;

    fn try_from(bytes: &[u8]) -> Result<Self, Self::Error> {
        Ok(Self(bytes.try_into()?))
    }
}
