//! The actions of a dispatcher, and the messages for its log.

use std::fmt;
use std::net::IpAddr;

use skep_wire::message::{Mac, Name};

/// Actions to perform, in order of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailoverAction {
    /// Send `Failover::heartbeat` to all dispatchers and nodes, now.
    SendHeartbeat,
    /// Probe whether a machine outside the cluster holds a virtual address (RFC 5227, 2.1.1), and
    /// call `Failover::conflict` if so.
    Probe,
    /// Persist, for a restart, that epochs up to `last` may have been used, without delaying other
    /// actions; then call `Failover::epochs_persisted`, or `Failover::epochs_not_persisted`.
    PersistEpochs {
        /// The last epoch of the block.
        last: u64,
    },
    /// Take the virtual addresses; tables are published in this epoch from now on.
    Claim {
        /// The epoch of the new term.
        epoch: u64,
    },
    /// Announce the virtual addresses to the network (gratuitous ARP,
    /// unsolicited neighbour advertisements).
    Announce,
    /// Release the virtual addresses.
    StepDown { why: StepDownReason },
    /// Write this to the log.
    Log(FailoverNote),
}

/// Why a dispatcher steps down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepDownReason {
    /// Another dispatcher of the cluster is active by a better claim.
    Outranked { epoch: u64 },
    /// The store has named another leader for too long.
    Lease {
        /// The leader's epoch in the store.
        epoch: u64,
    },
    /// A machine outside the cluster holds a virtual address.
    AddressConflict(AddressConflict),
    /// This machine cannot steer, and another dispatcher may be able to.
    Hindered,
    /// This process is stopping.
    Stopping,
}

/// A conflict over a virtual address: a machine outside the cluster holds it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressConflict {
    /// The virtual address.
    pub address: IpAddr,
    /// MAC address of the other machine.
    pub mac: Mac,
}

/// A note for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailoverNote {
    /// Heartbeats of a dispatcher are received for the first time, or again.
    Heard(Name),
    /// Heartbeats of an active dispatcher have stopped.
    Silent {
        /// Its name, if its own heartbeats were ever received.
        name: Option<Name>,
        /// How long it has been silent, in milliseconds.
        ms: u64,
    },
    /// The active dispatcher has stepped down.
    LetGo(Name),
    /// This dispatcher takes over.
    Claimed {
        /// Its new epoch.
        epoch: u64,
        /// Why it takes over.
        cause: TakeoverReason,
    },
    /// This dispatcher stays active although another one is active, too.
    Stays {
        /// The other dispatcher.
        name: Name,
        epoch: u64,
    },
    /// This dispatcher steps down.
    SteppedDown(StepDownReason),
    /// A machine outside the cluster holds an address that this dispatcher was about to claim, or
    /// has.
    InUse {
        /// The other machine, and the address.
        conflict: AddressConflict,
        /// Whether this dispatcher defends the address.
        is_defended: bool,
    },
}

/// Why a dispatcher takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeoverReason {
    /// No dispatcher is active.
    Vacancy,
    /// The active one has a lower priority, and this one has `preempt` set.
    Priority,
    /// It is active already, but epochs later than its own were seen.
    LaterEpoch,
}

impl FailoverNote {
    /// Whether an operator should be alerted.
    pub fn is_trouble(&self) -> bool {
        matches!(
            self,
            Self::Silent { .. } | Self::Stays { .. } | Self::InUse { .. } | Self::SteppedDown(_)
        )
    }
}

impl fmt::Display for StepDownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outranked { epoch } => {
                write!(f, "another dispatcher is active with epoch {epoch}")
            }
            Self::Lease { epoch } => {
                write!(f, "the store names another dispatcher, with epoch {epoch}")
            }
            Self::AddressConflict(conflict) => write!(f, "{conflict}"),
            Self::Hindered => f.write_str(
                "this machine cannot hold the virtual addresses or apply the table (see the errors \
                 above), and a standby is available",
            ),
            Self::Stopping => f.write_str("this process stops"),
        }
    }
}

impl fmt::Display for AddressConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.mac;
        let address = self.address;
        write!(
            f,
            "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}, a machine outside this cluster, \
             holds the virtual address {address}"
        )
    }
}

impl fmt::Display for FailoverNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Heard(name) => write!(f, "heartbeat from dispatcher {name}"),
            Self::Silent { name: Some(name), ms } => {
                write!(f, "no heartbeat from active dispatcher {name} for {ms} ms")
            }
            Self::Silent { name: None, ms } => {
                write!(
                    f,
                    "no machine has received heartbeats from the active dispatcher for {ms} ms"
                )
            }
            Self::LetGo(name) => write!(f, "dispatcher {name} is not active any more"),
            Self::Claimed { epoch, cause } => write!(f, "active with epoch {epoch}: {cause}"),
            Self::Stays { name, epoch } => {
                write!(f, "dispatcher {name} is active, too, with epoch {epoch}: it will step down")
            }
            Self::SteppedDown(why) => write!(f, "not active any more: {why}"),
            Self::InUse { conflict, is_defended: true } => {
                write!(f, "{conflict}, too: give each cluster its own; keeping it for now")
            }
            Self::InUse { conflict, is_defended: false } => {
                write!(f, "{conflict}: not taking it; give each cluster its own")
            }
        }
    }
}

impl fmt::Display for TakeoverReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vacancy => "no other dispatcher is",
            Self::Priority => "its priority is higher, and direct.preempt is on",
            Self::LaterEpoch => "there were later epochs than its own",
        })
    }
}
