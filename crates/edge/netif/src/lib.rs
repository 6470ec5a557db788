//! Devices, virtual addresses and who answers for them: what direct dispatch
//! needs of the kernel's network.
//!
//! - [`Netif`]: devices, routes; puts virtual addresses on the active
//!   dispatcher's device ([`Netif::claim`]) and on nodes ([`Netif::hold`]), and
//!   takes them away again.
//! - [`announce`], [`probe`], [`survey`], [`ClaimWatch`]: the segment's talk of
//!   who has an address, by ARP and IPv6 neighbour discovery.
//! - [`provoke_rst`]: makes clients of a machine that has died get an RST.
//! - [`check`]: what operators of direct dispatch get wrong, as sentences.
//!
//! Everything blocks briefly and nothing runs on its own. What a call needs of
//! capabilities its doc says; without them it fails with [`Error::Privilege`].
//!
//! Invariants: no address, setting or device is changed that the caller did not
//! name; nothing is sent but announcements and questions.

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
pub use offload::{Offloads, offloads, set_tx_checksum};
pub use provoke_rst::{ProvokedClients, provoke_rst};
pub use route::Route;
