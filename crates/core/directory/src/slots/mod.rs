//! Slots of the servers of pools: requests that the whole cluster has at a server at a time.
//!
//! ```text
//!   SlotHolder (node, per server) --held, wanted--> SlotLedger (coordinator) --grants--> SlotHolder
//! ```
//!
//! A grant that takes slots away is in force at once, but counts in the ledger only when the node has
//! reported that it uses no more; a grant that gives slots counts at once. So the slots that nodes use
//! are never more than the server has, whatever is lost or late, as long as the nodes are linked with
//! one coordinator. A node that is linked with none keeps what it has for [`SLOTS_KEPT_MS`], and then
//! has its share.
//!
//! [`division`] assigns slots to nodes; [`turns`] rotates the slots that cannot be divided evenly. Neither can
//! make the slots in use more than there are: that is for the ledger alone.
//!
//! [`SLOTS_KEPT_MS`]: crate::limits::SLOTS_KEPT_MS

mod division;
mod holder;
mod ledger;
mod turns;

pub use holder::SlotHolder;
pub(crate) use ledger::SlotLedger;
