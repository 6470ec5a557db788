//! A/B tests of dispatch policies: two or more policies at once, each for clients of its own.
//!
//! As in the comparison by Lo, Tseng and Yang: a new client is assigned an *arm* in turn, and a
//! known one keeps its arm, by a table of client addresses, the *host table*. Here the table is
//! bounded, and its entries are sent to other dispatchers, so that clients keep their arms there,
//! too.
//!
//! ```text
//!  client address --ClientId--> HostTable: known, in turn, or by its hash --> arm --> the arm's policy and nodes
//!                                   ^ TableSync: ArmClients <--> other dispatchers
//!  reply --ArmSample--> cells of a worker --sum--> ArmTally --> TimeEstimate, Difference (Welch)
//! ```
//!
//! Where each node decides (`handoff`) there is no table: the arm is [`arm_by_hash`], and
//! [`NodeCounts`] adds up the nodes' counts.
//!
//! Invariants:
//! - Clients of the table are divided among the arms in proportion to weights, within one client of
//!   each (two, with three or more arms of different weights), as long as all come from one
//!   dispatcher.
//! - A client never changes its arm, unless two dispatchers assigned different arms before they
//!   received each other's reports: then both keep the same one.
//! - The table never has more than [`limits::CLIENTS_MAX`] clients of its own, and
//!   [`limits::MERGED_CLIENTS_MAX`] including those of others; further clients are assigned by the
//!   hash of their address.
//! - Confidence intervals are over clients, not over requests: requests of one client are alike.

#![forbid(unsafe_code)]

mod arms;
mod client;
mod host_table;
pub mod limits;
mod node_counts;
mod statistics;
mod sync;
mod tally;

pub use arms::{ArmSpec, Arms, ArmsError};
pub use client::ClientId;
pub use host_table::{HostTable, TableDigest, arm_by_hash};
pub use node_counts::NodeCounts;
pub use statistics::{ArmEvent, ArmSample, record};
pub use sync::TableSync;
pub use tally::{ArmTally, Difference, MeasuredTime, TimeEstimate};
