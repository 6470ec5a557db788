//! Packet steering: the dispatcher's part of direct dispatch. A program in the kernel steers
//! packets; this keeps the program's table, and says which dispatcher is the active one.
//!
//! ```text
//!   nodes, dispatchers --datagrams--> DirectLoop (own thread, high priority)
//!                                      failover, table |  ^
//!   Dispatchers (services) --plan------^          jobs v  | news
//!                                          NetguardExecutor --orders--> netguard
//! ```
//!
//! Nodes, drains, weights and policies are those of the services (`skep-dispatcher`): the same
//! whoever forwards the bytes. What heartbeats say of load goes there, too.
//!
//! Invariants: the event loop waits for nothing but datagrams. When this
//! process or its guard is gone, packets are steered by the last table.

#![forbid(unsafe_code)]

mod direct;
mod event_loop;
mod flow_streams;
mod lease_observer;
mod limits;
mod netguard_executor;
mod plan;
mod status;

pub use direct::{Direct, DirectError, DirectParts};
pub use status::{OnTerm, PeerStatus, SteeringStatus};
