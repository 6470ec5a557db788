//! Slots of the servers of pools: the requests that the whole cluster may have at a server at a
//! time.
//!
//! ```text
//!   SlotHolder (node, per server) --held, wanted--> SlotLedger (coordinator) --grants--> SlotHolder
//! ```
//!
//! A grant that withdraws slots takes effect at once, but counts in the ledger only when the node
//! has reported that it uses no more; a grant that adds slots counts at once. So nodes never use
//! more slots than the server has, whatever is lost or late, as long as all nodes are linked to the
//! same coordinator. A node that is linked to none keeps its slots for [`SLOTS_KEPT_MS`], and then
//! has its share.
//!
//! [`division`] assigns slots to nodes; [`turns`] rotates the slots that cannot be divided evenly.
//! Neither can cause more slots to be used than exist: the ledger alone enforces that bound.
//!
//! [`SLOTS_KEPT_MS`]: crate::limits::SLOTS_KEPT_MS

mod division;
mod holder;
mod ledger;
mod turns;

pub use holder::SlotHolder;
pub(crate) use ledger::SlotLedger;
