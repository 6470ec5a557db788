//! Finds the usual misconfigurations of direct dispatch at start and reports them as sentences.
//!
//! [`gather`] collects the facts, [`judge`] evaluates them and is pure; [`check`] does both.

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

/// The configured part of this machine, and what other machines report about themselves.
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
    /// The active dispatcher's hardware address, as it reports it; `None` if it is unknown, or is
    /// this machine.
    pub active: Option<MacAddr>,
    /// The other machines of the cluster that must be on the segment.
    pub peers: Vec<CheckedPeer>,
    /// Samples of clients' addresses; for a family without any, a distant Internet address is used.
    pub clients: Vec<IpAddr>,
    /// Timeout for answers of other machines; nothing else takes time.
    pub wait: Duration,
}

/// A machine's part in dispatching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatching {
    /// It is not a dispatcher.
    No,
    /// It is ready to take over.
    Standby,
    /// It holds the virtual addresses.
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
    /// The MTU of its device there, in bytes; 0 if unknown.
    pub mtu: u32,
}

/// Kinds of complaints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ComplaintKind {
    /// The device does not exist, or is not Ethernet.
    NoDevice,
    /// The device is switched off.
    DeviceDown,
    /// The device has no carrier.
    NoCarrier,
    /// A required virtual address is missing.
    VipMissing,
    /// A virtual address is on a device where it must not be.
    VipMisplaced,
    /// This node answers ARP for virtual addresses.
    AnswersArp,
    /// This node sends ARP requests with a virtual address as sender.
    AsksWithVip,
    /// The reverse path filter drops packets that dispatchers send to this node.
    StrictReversePath,
    /// This node has no route for replies to clients.
    NoRouteBack,
    /// Packets reach a packet program without their checksums.
    UnfinishedChecksums,
    /// A machine that is not the active dispatcher answers for a virtual
    /// address.
    WrongAnswerer,
    /// No machine answers for a virtual address.
    NoAnswerer,
    /// A machine of the cluster cannot be found on the segment.
    PeerNotFound,
    /// A machine of the cluster has another hardware address on the segment than it reports.
    PeerDiffers,
    /// Devices of the segment have different MTUs.
    MtuDiffers,
}

/// One complaint, for the operator. Its `Display` is the sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// What kind it is.
    pub fault: ComplaintKind,
    /// Whether it is only a suspicion: this machine cannot verify it, or it may be intended.
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

/// Finds what is wrong on this machine and its segment. Needs `CAP_NET_RAW`, and takes `input.wait`
/// if there are addresses to probe.
pub fn check(netif: &mut Netif, input: &CheckInput) -> Result<Vec<Complaint>, Error> {
    Ok(judge(input, &gather(netif, input)?))
}
