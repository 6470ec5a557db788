//! TCP handoff: an established connection moves from the node that accepted it, the donor, to the
//! node that should answer, the receiver.
//!
//! ```text
//!          actions |  ^ results of orders, snapshots        actions |  ^ results of orders, restores
//!                  v  |                                             v  |
//!                 Donor  --- OFFER, GO, ABORT ------------------->  Receiver
//!                        <-- READY, REFUSE, DONE, GONE, ABORTED ---
//!                    |
//!            MovedReports --- MOVED ---> dispatcher <--- QUERY --- DispatcherQueries
//! ```
//!
//! - [`Donor`]: offers connections, and alone decides whether each is moved.
//! - [`Receiver`]: restores connections, and serves those that were moved to it.
//! - [`MovedReports`]: reports to the active dispatcher which flows have another node now, and
//!   [`MovedFlows`] processes these reports.
//! - [`DispatcherQueries`]: asks the active dispatcher which node should answer a request.
//!
//! **Invariants:** at most one end of an offered connection sends: the donor thaws it only if
//! netguard confirms that its flow is not redirected, and the receiver starts it only after the GO
//! that follows the redirect. No connection ends silently: it is served, or closed with RST. While
//! an answer of netguard is pending, the connection is blocked.

#![forbid(unsafe_code)]

mod donor;
mod expiry;
pub mod limits;
mod moved;
mod order;
mod queries;
mod receiver;
mod retry;
mod timers;

pub use donor::{Donor, DonorAction, DonorCounters, MoveOutcome, MoveTarget, NotBegun, StayCause};
pub use moved::{MovedCounters, MovedFlows, MovedReports};
pub use order::OrderResult;
pub use queries::{DispatcherQueries, QueriesFull, QueryCounters, QueryOutcome};
pub use receiver::{OfferKey, Preparation, Receiver, ReceiverAction, ReceiverCounters};

#[cfg(test)]
mod tests;
