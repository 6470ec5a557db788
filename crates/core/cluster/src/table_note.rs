//! Log messages of the table publisher.

use std::fmt;
use std::net::SocketAddr;

use skep_wire::message::Name;
use skep_wire::steer::NODES_MAX;

/// A note for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableNote {
    /// The first heartbeat of a node was received.
    Came(Name),
    /// A dead node is alive again.
    Back(Name),
    /// A node reports that it is stopping.
    Leaving(Name),
    /// A node is dead: its heartbeats have stopped.
    Dead {
        name: Name,
        /// Shortest time of silence, in milliseconds.
        ms: u64,
    },
    /// A node is not in the config.
    Unplanned(Name),
    /// A node does not listen at the address of a service that it is planned for.
    NotListening { name: Name, address: SocketAddr },
    /// No index is left for a node.
    NoIndex(Name),
}

impl TableNote {
    /// Whether an operator should be alerted.
    pub fn is_trouble(&self) -> bool {
        !matches!(self, Self::Came(_) | Self::Back(_) | Self::Leaving(_))
    }
}

impl fmt::Display for TableNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Came(name) => write!(f, "heartbeat from node {name}"),
            Self::Back(name) => write!(f, "heartbeats from node {name} again"),
            Self::Leaving(name) => write!(f, "node {name} is about to stop: no new flows there"),
            Self::Dead { name, ms } => {
                write!(f, "no heartbeat from node {name} for {ms} ms: removed")
            }
            Self::Unplanned(name) => write!(
                f,
                "received heartbeats of node {name}, which is not in this dispatcher's config: \
                 give all machines the same config"
            ),
            Self::NotListening { name, address } => write!(
                f,
                "node {name} does not listen at {address}, although this config assigns it to that \
                 service: it gets no connections there until it is restarted with this config"
            ),
            Self::NoIndex(name) => write!(
                f,
                "no index in the table is free for node {name} (at most {NODES_MAX}): it gets no \
                 connections; remove nodes that are not used any more"
            ),
        }
    }
}
