//! Operators' questions to all nodes, and their orders about servers of pools.
//!
//! ```text
//!   node --- Relay: an operator's question or order ---> coordinator
//!   node <-- Ask -------------------------------------- coordinator --> all other nodes
//!   node --- Status ----------------------------------> coordinator
//!   node <-- Relayed: each node's answer, RelayEnd ---- coordinator
//!   node <-> ServerOrders: all known orders ----------- coordinator
//! ```
//!
//! Orders that were executed are sent to all nodes and coordinators linked since, and are merged
//! there (`core/directory`, `OrderTable`), in any order of arrival.

use serde::{Deserialize, Serialize};
use skep_units::{DISPATCHER_NUMBER_BITS, ServerAddress};

use crate::limits::{ORDER_AHEAD_MS_MAX, STATUS_BYTES_MAX};
use crate::machine::Name;

/// The number of an order: later orders have greater numbers, whichever operator gives them.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct OrderStamp(pub u64);

impl OrderStamp {
    /// The stamp of an order that has not been numbered yet.
    pub const NONE: Self = Self(0);

    /// Returns the stamp that follows `newest`, assigned at `unix_ms` (milliseconds since 1970) by
    /// the process with this number: two processes never assign the same stamp.
    #[must_use]
    pub fn after(newest: Self, unix_ms: u64, number: u16) -> Self {
        let time = unix_ms.max((newest.0 >> DISPATCHER_NUMBER_BITS) + 1);
        Self(time << DISPATCHER_NUMBER_BITS | u64::from(number))
    }

    /// Whether it is further ahead of `unix_ms` than clocks may differ: such an order is refused,
    /// since it would override all later ones.
    pub fn is_ahead_of(self, unix_ms: u64) -> bool {
        self.0 >> DISPATCHER_NUMBER_BITS > unix_ms.saturating_add(ORDER_AHEAD_MS_MAX)
    }

    fn is_sound(self) -> bool {
        // So that there is a following stamp for longer than machines last.
        self.0 >> (u64::BITS - 1) == 0
    }
}

/// An operator's order about a server of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerOrder {
    pub pool: Name,
    pub server: Name,
    pub change: ServerChange,
    pub stamp: OrderStamp,
}

/// A change to a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServerChange {
    /// Send it no new requests.
    Drain,
    /// Send it requests again.
    Resume,
    /// Change its weight.
    Weight {
        weight: u32,
        /// Weight in the config; `None` if the config does not name the server. If the config's
        /// weight changes afterwards, the config takes precedence.
        filed: Option<u32>,
    },
    /// Add a new server.
    Add(Box<AddedServer>),
    /// Remove it once its requests have ended, at the latest after this many milliseconds.
    Remove { timeout_ms: u64 },
}

/// A server to add, with the settings that the config would give it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedServer {
    pub address: ServerAddress,
    pub weight: u32,
    pub connections_max: u32,
    /// The value of `connections_scope`.
    pub connections_scope: Name,
    pub status_address: Option<ServerAddress>,
}

/// The aspect of a server that an order concerns: the latest order for each aspect applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerAspect {
    /// Whether the server exists.
    Presence,
    /// Whether it receives new requests.
    Drain,
    /// Its weight.
    Weight,
}

impl ServerChange {
    pub fn aspect(&self) -> ServerAspect {
        match self {
            Self::Drain | Self::Resume => ServerAspect::Drain,
            Self::Weight { .. } => ServerAspect::Weight,
            Self::Add(_) | Self::Remove { .. } => ServerAspect::Presence,
        }
    }

    /// Name of the change, for the log.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Resume => "resume",
            Self::Weight { .. } => "weight",
            Self::Add(_) => "add",
            Self::Remove { .. } => "remove",
        }
    }
}

impl ServerOrder {
    pub(super) fn is_sound(&self) -> bool {
        self.stamp.is_sound()
    }
}

/// An operator's question to all nodes. The answers are those of the management API, in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeQuestion {
    /// The state of their pools.
    Pools,
    /// Their current requests at servers.
    Requests,
    /// Their requests over time, in steps of this many seconds.
    Series { step_s: u64 },
    /// Execute this order.
    Order(Box<ServerOrder>),
}

impl NodeQuestion {
    pub(super) fn is_sound(&self) -> bool {
        match self {
            Self::Order(order) => order.is_sound(),
            Self::Pools | Self::Requests | Self::Series { .. } => true,
        }
    }
}

/// A node's answer to a relayed question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RelayedAnswer {
    /// At most [`STATUS_BYTES_MAX`]; empty if it would exceed that.
    Said(Vec<u8>),
    /// The node's build does not support such questions.
    Earlier,
    /// No answer in time, or its link has ended.
    Silent,
}

impl RelayedAnswer {
    pub(super) fn is_sound(&self) -> bool {
        match self {
            Self::Said(json) => json.len() <= STATUS_BYTES_MAX,
            Self::Earlier | Self::Silent => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_grow_and_differ_by_who_gives_them() {
        let first = OrderStamp::after(OrderStamp::NONE, 1_000, 1);
        let (own, other) = (OrderStamp::after(first, 1_000, 1), OrderStamp::after(first, 1_000, 0));
        assert!(own > first && other > first && own != other);
        assert!(OrderStamp::after(own, 500, 0) > own, "a clock may be behind");
        assert!(own.is_sound() && !OrderStamp(u64::MAX).is_sound());
        assert!(!own.is_ahead_of(0));
        let late = OrderStamp::after(OrderStamp::NONE, ORDER_AHEAD_MS_MAX + 8, 0);
        assert!(late.is_ahead_of(7) && !late.is_ahead_of(8) && !late.is_ahead_of(u64::MAX));
    }
}
