//! What operators of direct dispatch get wrong, found at start and told in
//! sentences.
//!
//! [`gather`] looks, [`judge`] decides and is pure; [`check`] does both.

mod facts;
mod judge;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::error::Error;
use crate::mac::MacAddr;
use crate::netif::Netif;

pub use facts::{Facts, gather};
pub use judge::judge;

/// What this machine is meant to be, and what others say of themselves.
#[derive(Clone, Debug)]
pub struct CheckInput {
    /// Name of the device on the segment of dispatchers and nodes.
    pub device: String,
    /// The virtual addresses.
    pub vips: Vec<IpAddr>,
    /// Whether this machine is a node.
    pub is_node: bool,
    /// Whether it is a dispatcher.
    pub dispatching: Dispatching,
    /// The active dispatcher's hardware address, as it says itself; none if
    /// it is not known, or is this machine.
    pub active: Option<MacAddr>,
    /// The other machines of the cluster that must be on the segment.
    pub peers: Vec<CheckedPeer>,
    /// Samples of clients' addresses; if there is none of a family, an address
    /// far away in the Internet stands for all.
    pub clients: Vec<IpAddr>,
    /// How long to wait for answers of others; nothing but this takes time.
    pub wait: Duration,
}

/// A machine's part in dispatching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatching {
    /// None.
    No,
    /// It is ready to take over.
    Standby,
    /// It has the virtual addresses.
    Active,
}

/// Another machine of the cluster, as it describes itself.
#[derive(Clone, Debug)]
pub struct CheckedPeer {
    pub name: String,
    /// Its own address on the segment.
    pub address: IpAddr,
    /// The hardware address of its device there.
    pub mac: MacAddr,
    /// The MTU of its device there, in bytes; 0 if it is not known.
    pub mtu: u32,
}

/// Kinds of complaints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ComplaintKind {
    /// The device does not exist, or is no Ethernet.
    NoDevice,
    /// The device is switched off.
    DeviceDown,
    /// Nobody is at the other end of the device's cable.
    NoCarrier,
    /// A virtual address is missing where it must be.
    VipMissing,
    /// A virtual address is where it must not be.
    VipMisplaced,
    /// This node answers ARP for virtual addresses.
    AnswersArp,
    /// This node asks ARP with virtual addresses as sender.
    AsksWithVip,
    /// The reverse path filter drops what dispatchers send to this node.
    StrictReversePath,
    /// Replies to clients have no way out of this node.
    NoRouteBack,
    /// Packets reach a packet program without their checksums.
    UnfinishedChecksums,
    /// A machine that is not the active dispatcher answers for a virtual
    /// address.
    WrongAnswerer,
    /// Nobody answers for a virtual address.
    NoAnswerer,
    /// A machine of the cluster cannot be found on the segment.
    PeerNotFound,
    /// A machine of the cluster is found under another hardware address than
    /// it says.
    PeerDiffers,
    /// Devices of the segment disagree about the size of packets.
    MtuDiffers,
}

/// One thing that is wrong, for the operator. Its display is the sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// What kind it is.
    pub fault: ComplaintKind,
    /// Whether it is only suspected: this machine cannot see it, or it may be
    /// meant so.
    pub is_doubt: bool,
    pub place: String,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, expected, found, remedy, .. } = self;
        write!(f, "{place}: expected {expected}, found {found}. {remedy}")
    }
}

/// What is wrong on this machine and its segment. Needs `CAP_NET_RAW`, and
/// takes `input.wait` if there are addresses to ask for.
pub fn check(netif: &mut Netif, input: &CheckInput) -> Result<Vec<Complaint>, Error> {
    Ok(judge(input, &gather(netif, input)?))
}
