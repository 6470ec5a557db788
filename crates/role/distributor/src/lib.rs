//! The distributor of a node: connections go to the nodes that should answer their requests.
//!
//! ```text
//!   worker: head of a request -> Chooser (policy) -> another node -> Departure
//!                                                                       |
//!   mover thread: core/handoff  <-- orders --> netguard   <-------------'
//!        ^ LCCP                 <-- snapshot, restore --> edge/repair
//!        v
//!   mover thread of the other node --> Arrival --> worker there: the request is answered
//! ```
//!
//! Invariants: a connection is answered by exactly one node; a connection that cannot be moved is
//! answered here. No worker waits for netguard.

#![forbid(unsafe_code)]

mod arms;
mod chooser;
mod counters;
mod handler;
mod limits;
mod metrics;
mod mover;
mod settings;
mod worker;

pub use arms::ArmCounters;
pub use chooser::{Chooser, NodesView};
pub use counters::{HandoffCounters, HandoffCounts, HandoffTimings, MoveStep};
pub use handler::Distributing;
pub use metrics::{
    HandoffOutcome, handoff_outcomes, register_handoff_datagrams, register_handoffs,
};
pub use mover::{ArrivalQueue, ArrivedConnection, Mover, MoverParts};
pub use settings::HandoffSettings;
pub use worker::WorkerDistributor;
