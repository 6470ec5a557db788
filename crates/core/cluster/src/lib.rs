//! The states of nodes from a dispatcher's view: pure state machines.
//!
//! - [`NodeHealth`]: one node: joining, up, down, draining, drained.
//! - [`Membership`]: the table of nodes: add, remove, drain, resume, weights.
//! - [`RetryBudget`]: how many retries are allowed in proportion to the traffic.
//! - [`elasticity`]: how many nodes are on.
//!
//! For dispatchers in direct dispatch:
//!
//! - [`failover`]: which of them is active, and when a standby takes over.
//! - [`lease_observer`]: which of them holds the lease in the shared store.
//! - [`failure_detector`]: which nodes are alive, by their heartbeats.
//! - [`table_publisher`]: the forwarding table used by all machines for steering.
//! - [`table_distribution`]: which version of it each machine is sent, and in which form.
//! - [`flows`]: replication of the flow table to a standby.
//! - [`handover`]: which tables apply while several dispatchers are active and all but one step down.
//! - [`reconciler`]: the next step towards the wanted state of a machine's packet path.
//!
//! Time is passed in as `Now`, jitter as a seed; events are returned as
//! [`Transition`]s and [`MembershipEvent`]s for the log.

#![forbid(unsafe_code)]

mod arrivals;
mod budget;
pub mod elasticity;
mod epoch;
pub mod failover;
pub mod failure_detector;
pub mod flows;
pub mod handover;
mod health;
pub mod lease_observer;
mod limits;
mod listening;
mod membership;
pub mod reconciler;
mod service_ids;
pub mod table_distribution;
mod table_note;
mod table_pace;
pub mod table_publisher;

pub use budget::{RetryBudget, RetryBudgetSettings};
pub use health::{
    CheckResult, DownReason, Failure, HealthSettings, HealthState, NodeHealth, RequestOutcome,
    Transition,
};
pub use limits::{ELASTIC_TOLERANCE_PERMILLE_MAX, NAME_BYTES_MAX, NODES_MAX, WEIGHT_MAX};
pub use membership::{
    Change, Member, MemberView, Membership, MembershipError, MembershipEvent, MembershipSettings,
};

#[cfg(test)]
mod tests;
