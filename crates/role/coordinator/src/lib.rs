//! The coordinator of the cluster cache in a dispatcher's process: answers messages on links.
//!
//! ```text
//!   nodes <--links--> LinkServer's thread { Coordinator } <-- who is active, loads
//!                                   |   { Purging }     <-- purges of operators
//!                                   |   { Operators }   <-- their questions to all nodes, and orders about servers of pools
//!                                   |   { ServerLoads } <-- requests that nodes have there
//!                                   |   { NodePower }   <-- nodes that are to be off
//!                                   v every so often
//!                                 CacheView (status, metrics)
//! ```
//!
//! Its answers are computed in `core/directory`. It has no access to services or requests: the composition
//! root of the process passes it the active dispatcher and the nodes' loads.
//!
//! Invariants: one thread owns all of its state, and waits for links and messages only. A purge is reported
//! as complete only when all linked nodes have acknowledged it.

#![forbid(unsafe_code)]

mod coordination;
mod limits;
mod metrics;
mod operators;
mod power;
mod purge_text;
mod purging;
mod questions;
mod server_loads;

pub use coordination::{CacheView, Coordination, CoordinatorStage, NoCoordinator, NodeLoadReader};
pub use metrics::{answers, register_coordinator, register_streams};
pub use power::PowerStages;
pub use purge_text::{PurgeTextError, parse_purge};
pub use purging::PurgeCounts;
pub use questions::{NodeAnswer, NodeAnswers};
