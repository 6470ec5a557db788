//! The one handle through which devices, addresses and routes are reached.

use crate::error::Error;
use crate::netlink::Netlink;

/// The network of this machine. It is that of the namespace in which the
/// calling thread was when it opened it; use it from there only, since settings
/// and offloads are looked up in the caller's namespace.
///
/// Every call waits for the kernel, which answers at once.
#[derive(Debug)]
pub struct Netif {
    pub(crate) netlink: Netlink,
}

impl Netif {
    /// Opens it; needs no privilege. Changes need `CAP_NET_ADMIN`.
    pub fn open() -> Result<Self, Error> {
        Ok(Self { netlink: Netlink::open()? })
    }
}
