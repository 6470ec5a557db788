//! The coordinator of the cluster cache in a dispatcher's process: links in, answers out.
//!
//! ```text
//!   nodes <--links--> LinkServer's thread { Coordinator } <-- who is active, loads
//!                                   |   { Purging }     <-- purges of operators
//!                                   v every so often
//!                                 CacheView (status, metrics)
//! ```
//!
//! What it answers is decided in `core/directory`. It knows neither services nor requests:
//! whoever composes the process tells it who is active, and what nodes have to do.
//!
//! Invariants: one thread has all of its state, and waits for links and messages only. A purge
//! is reported complete only when all linked nodes have acknowledged it.

#![forbid(unsafe_code)]

mod coordination;
mod limits;
mod purge_text;
mod purging;

pub use coordination::{
    CacheView, Coordination, CoordinatorLoads, CoordinatorStage, NoCoordinator,
};
pub use purge_text::{PurgeTextError, parse_purge};
pub use purging::PurgeCounts;
