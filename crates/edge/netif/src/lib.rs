//! Devices, virtual addresses and their ownership on the segment: the kernel network functions of
//! direct dispatch.
//!
//! - [`Netif`]: devices, routes; adds virtual addresses to the active dispatcher's device
//!   ([`Netif::claim`]) and to nodes ([`Netif::hold`]), and removes them.
//! - [`announce`], [`probe`], [`survey`], [`ClaimWatch`]: announcements, probes and claims of
//!   addresses on the segment, by ARP and IPv6 neighbour discovery.
//! - [`provoke_rst`]: makes clients of a dead machine receive an RST.
//! - [`check`]: finds the usual misconfigurations of direct dispatch, as sentences.
//!
//! All calls block briefly and there are no background tasks. The documentation of each call names the
//! capabilities that it needs; without them it fails with [`Error::Privilege`].
//!
//! Invariants: only the addresses, settings and devices that the caller names are changed; nothing
//! is sent but announcements and probes.

mod check;
mod claims;
mod device;
mod error;
mod frame;
mod hold;
mod limits;
mod links;
mod mac;
mod netif;
mod netlink;
mod offload;
mod packet;
mod provoke_rst;
mod route;
mod sysctl;
#[cfg(test)]
mod tests;
mod vip;

pub use check::{
    CheckInput, CheckedPeer, Complaint, ComplaintKind, Dispatching, Facts, check, gather, judge,
};
pub use claims::{ClaimWatch, announce, probe, survey};
pub use device::{Address, Device, DeviceIndex, DeviceKind, Xdp};
pub use error::Error;
pub use frame::Claim;
pub use hold::Record;
pub use links::LinkWatch;
pub use mac::MacAddr;
pub use netif::Netif;
#[cfg(test)]
pub(crate) use offload::set_tx_checksum;
pub use offload::{Offloads, offloads};
pub use provoke_rst::{ProvokedClients, provoke_rst};
pub use route::Route;
