//! The nodes' memories as one cache: pure state machines.
//!
//! - [`Coordinator`]: the holders and the fills of segments; in every dispatcher.
//! - [`Fetcher`]: how a node gets a segment that it does not have.
//! - [`RendezvousHash`]: the owner of a segment while no coordinator answers.
//! - [`keep`]: which segments are kept, evicted, copied and read ahead.
//! - [`Changes`], [`Inventory`]: changes of the inventory that have not been reported yet.
//! - [`SlotHolder`]: a node's slots of a server of a pool; the [`Coordinator`] grants them.
//! - [`OrderTable`]: the orders of operators about servers of pools.
//! - [`PurgeTables`]: what was purged and when; [`Purger`]: sends a purge to all nodes.
//!
//! ```text
//!   miss --> Fetcher --Ask--> Coordinator --HAVE--> fetch from a holder
//!                                         --BUSY--> stream from its leader
//!                                         --GRANT-> fill from the origin
//!                     silence --> RendezvousHash --owner--> it fills, or we do
//! ```
//!
//! A segment's name contains its version ([`skep_wire::cache::name`]), so a stale entry costs a
//! detour, never a wrong byte.

#![forbid(unsafe_code)]

mod changes;
mod coordinator;
mod fetcher;
pub mod keep;
pub mod limits;
mod node_link;
mod orders;
mod purger;
mod purges;
mod rendezvous;
mod slots;

pub use changes::{Changes, Inventory};
pub use coordinator::{
    CacheMemberView, Coordinator, CoordinatorCounters, CoordinatorSettings, Hello, Joined,
};
pub use fetcher::{FetchAction, FetchEvent, FetchOutcome, Fetcher, FillSource, ResolvedAnswer};
pub use node_link::NodeLinkId;
pub use orders::OrderTable;
pub use purger::{PurgeFate, PurgeOrder, PurgeReport, Purger};
pub use purges::{PurgeTable, PurgeTables, Queries};
pub use rendezvous::RendezvousHash;
pub use slots::SlotHolder;

#[cfg(test)]
mod tests;
