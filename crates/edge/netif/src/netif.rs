//! The handle for devices, addresses and routes.

use crate::error::Error;
use crate::netlink::Netlink;

/// A handle to the network of this machine, that of the calling thread's namespace at the time of opening. It
/// must be used in that namespace only, since settings and offloads are looked up in the caller's.
///
/// Every call waits for the kernel, which answers immediately.
#[derive(Debug)]
pub struct Netif {
    pub(crate) netlink: Netlink,
}

impl Netif {
    /// Opens the handle; needs no privilege. Changes need `CAP_NET_ADMIN`.
    pub fn open() -> Result<Self, Error> {
        Ok(Self { netlink: Netlink::open()? })
    }
}
