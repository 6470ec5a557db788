//! A/B tests of dispatch policies: two or more policies at once, each with clients of its own.
//!
//! As Lo, Tseng and Yang compared policies: a client that is new gets an *arm* in turn, one that is known stays, by a
//! table of client addresses, the *host table*. Here the table is bounded, and what it learns is told to other
//! dispatchers, so that clients stay with them, too.
//!
//! ```text
//!  client address --ClientId--> HostTable: known, in turn, or by its hash --> arm --> the arm's policy and nodes
//!                                   ^ TableSync: ArmClients <--> other dispatchers
//!  reply --ArmSample--> cells of a worker --sum--> ArmTally --> TimeEstimate, Difference (Welch)
//! ```
//!
//! Where each node decides (`handoff`) there is no table: the arm is [`arm_by_hash`], and [`NodeCounts`] adds up what nodes
//! count.
//!
//! Invariants:
//! - Clients of the table are divided among the arms in proportion to weights, within one client of each (two, with three
//!   or more arms of different weights), while all come from one dispatcher.
//! - A client never changes its arm, unless two dispatchers gave it different ones before they heard of each other:
//!   then both keep the same one of these.
//! - The table never has more than [`limits::CLIENTS_MAX`] clients of its own, and
//!   [`limits::MERGED_CLIENTS_MAX`] with those of others; further ones go by the hash of their address.
//! - Intervals of confidence are over clients, not over requests: requests of one client are alike.

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
