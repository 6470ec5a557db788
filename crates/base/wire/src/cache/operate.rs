//! What operators ask all nodes, and what they order about servers of pools.
//!
//! ```text
//!   node --- Relay: an operator here asks or orders ---> coordinator
//!   node <-- Ask -------------------------------------- coordinator --> all other nodes
//!   node --- Status ----------------------------------> coordinator
//!   node <-- Relayed: what each has said, RelayEnd ---- coordinator
//!   node <-> ServerOrders: what is known of orders ---- coordinator
//! ```
//!
//! Orders that were carried out are known to all nodes and coordinators that were linked since, and merged there
//! (`core/directory`, `OrderTable`), in whatever order they come.

use serde::{Deserialize, Serialize};
use skep_units::{DISPATCHER_NUMBER_BITS, ServerAddress};

use crate::limits::{ORDER_AHEAD_MS_MAX, STATUS_BYTES_MAX};
use crate::machine::Name;

/// The number of an order: later ones are greater, from any operator.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct OrderStamp(pub u64);

impl OrderStamp {
    /// An order that has none yet.
    pub const NONE: Self = Self(0);

    /// The next after `newest`, given at `unix_ms` (milliseconds since 1970) by the process with this number:
    /// two of them give no stamp twice.
    #[must_use]
    pub fn after(newest: Self, unix_ms: u64, number: u16) -> Self {
        let time = unix_ms.max((newest.0 >> DISPATCHER_NUMBER_BITS) + 1);
        Self(time << DISPATCHER_NUMBER_BITS | u64::from(number))
    }

    /// Whether it was given longer after `unix_ms` than clocks may differ: such an order is refused, or no
    /// later one would count.
    pub fn is_ahead_of(self, unix_ms: u64) -> bool {
        self.0 >> DISPATCHER_NUMBER_BITS > unix_ms.saturating_add(ORDER_AHEAD_MS_MAX)
    }

    fn is_sound(self) -> bool {
        // So that there is a next one for longer than machines last.
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

/// What is to become of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServerChange {
    /// No new requests.
    Drain,
    /// Requests again.
    Resume,
    /// Another share of the work.
    Weight {
        weight: u32,
        /// What the config says; nothing: it does not name the server. A config that says something else since
        /// is the later word.
        filed: Option<u32>,
    },
    /// A new server.
    Add(Box<AddedServer>),
    /// Gone when its requests have ended, at the latest after so many milliseconds.
    Remove { timeout_ms: u64 },
}

/// A server that is added, as the config would say it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedServer {
    pub address: ServerAddress,
    pub weight: u32,
    pub connections_max: u32,
    /// Word of `connections_scope`.
    pub connections_scope: Name,
    pub status_address: Option<ServerAddress>,
}

/// What of a server an order is about: of each, the latest order stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerAspect {
    /// Whether it is there.
    Presence,
    /// Whether it gets new requests.
    Drain,
    /// Its share.
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

    /// What is done, for the log.
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

/// What an operator asks all nodes. The answers are what the management API shows, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeQuestion {
    /// For their pools.
    Pools,
    /// For the requests that they have at servers now.
    Requests,
    /// For their requests over time, in steps of so many seconds.
    Series { step_s: u64 },
    /// To carry this out.
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

/// What a node has said to a question that was relayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RelayedAnswer {
    /// At most [`STATUS_BYTES_MAX`]; empty: it would be too long.
    Said(Vec<u8>),
    /// It is of a build that knows no such question.
    Earlier,
    /// Nothing in time, or its link has ended.
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
