//! The coordinator of the cluster cache in a dispatcher's process: answers messages on links.
//!
//! ```text
//!   nodes <--links--> LinkServer's thread { Coordinator } <-- who is active, loads
//!                                   |   { Purging }     <-- purges of operators
//!                                   |   { Explaining }  <-- their questions
//!                                   |   { Asking }      <-- those who want to see all nodes
//!                                   v every so often
//!                                 CacheView (status, metrics)
//! ```
//!
//! Its answers are decided in `core/directory`. It has no access to services or requests: the
//! composition root of the process passes it the active dispatcher and the nodes' loads.
//!
//! Invariants: one thread owns all of its state, and waits for links and messages only. A purge is
//! reported complete only when all linked nodes have acknowledged it.

#![forbid(unsafe_code)]

mod asking;
mod coordination;
mod explaining;
mod limits;
mod purge_text;
mod purging;

pub use asking::NodeShown;
pub use coordination::{CacheView, Coordination, CoordinatorStage, LoadSource, NoCoordinator};
pub use explaining::{NodeAnswer, NodeAnswers};
pub use purge_text::{PurgeTextError, parse_purge};
pub use purging::PurgeCounts;
