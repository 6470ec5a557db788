//! The actions of a dispatcher, and the messages for its log.

use std::fmt;
use std::net::IpAddr;

use skep_wire::message::{Mac, Name};

/// Actions to perform, in order of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailoverAction {
    /// Send `Failover::heartbeat` to all dispatchers and nodes, now.
    SendHeartbeat,
    /// Ask the network whether a machine outside the cluster holds a virtual address (RFC 5227,
    /// 2.1.1), and call `Failover::conflict` if so.
    Probe,
    /// Persist for a restart that epochs up to `last` may have been used, without delaying other
    /// actions; then call `Failover::epochs_persisted`, or `Failover::epochs_not_persisted`.
    PersistEpochs {
        /// The last one.
        last: u64,
    },
    /// Take the virtual addresses; tables are made in this epoch from now on.
    Claim {
        /// Of this term.
        epoch: u64,
    },
    /// Announce the virtual addresses to the network (gratuitous ARP,
    /// unsolicited neighbour advertisements).
    Announce,
    /// Let the virtual addresses go.
    StepDown { why: StepDownReason },
    /// Write this to the log.
    Log(FailoverNote),
}

/// Why a dispatcher steps down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepDownReason {
    /// Another dispatcher of the cluster is active by a better claim.
    Outranked { epoch: u64 },
    /// The store has reported another leader for long.
    Lease {
        /// The epoch that it has there.
        epoch: u64,
    },
    /// A machine that is not of the cluster holds a virtual address.
    AddressConflict(AddressConflict),
    /// This machine cannot steer, and another dispatcher may.
    Hindered,
    /// This process stops.
    Stopping,
}

/// A conflict over a virtual address: a machine outside the cluster holds it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressConflict {
    /// The virtual address.
    pub address: IpAddr,
    /// Of the other machine.
    pub mac: Mac,
}

/// Something for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailoverNote {
    /// Heartbeats of a dispatcher arrive (again).
    Heard(Name),
    /// Heartbeats of an active dispatcher have stopped.
    Silent {
        /// Its name, if its own heartbeats were ever received.
        name: Option<Name>,
        /// For how long.
        ms: u64,
    },
    /// The active dispatcher let go.
    LetGo(Name),
    /// This one takes over.
    Claimed {
        /// Its new epoch.
        epoch: u64,
        /// What for.
        cause: TakeoverReason,
    },
    /// This one stays active although another one is, too.
    Stays {
        /// The other.
        name: Name,
        epoch: u64,
    },
    /// This one stops being active.
    SteppedDown(StepDownReason),
    /// A machine outside the cluster holds an address that this one wanted, or has.
    InUse {
        /// Which machine, and which address.
        conflict: AddressConflict,
        /// Whether this one defends the address.
        is_defended: bool,
    },
}

/// Why a dispatcher takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeoverReason {
    /// No dispatcher is active.
    Vacancy,
    /// The active one has a lower priority, and this one is asked to preempt.
    Priority,
    /// Already active, it sees epochs later than its own.
    LaterEpoch,
}

impl FailoverNote {
    /// Whether an operator should look at it.
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
