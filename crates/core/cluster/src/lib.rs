//! The states of nodes from a dispatcher's view, as pure state machines.
//!
//! - [`NodeHealth`]: one node: joining, up, down, draining, drained.
//! - [`Membership`]: the table of nodes: add, remove, drain, resume, weights.
//! - [`RetryBudget`]: how many retries the traffic may cost.
//! - [`elasticity`]: how many nodes are on.
//!
//! And of dispatchers in direct dispatch:
//!
//! - [`failover`]: which of them is active, and when a standby takes over.
//! - [`lease_observer`]: which of them the shared store names.
//! - [`failure_detector`]: which nodes are alive, by their heartbeats.
//! - [`table_publisher`]: the forwarding table by which all machines steer.
//! - [`table_distribution`]: which machine is sent which version of it, and in which form.
//! - [`flows`]: replication of the flow table to a standby.
//! - [`handover`]: which tables are steered by while all active dispatchers but one step down.
//! - [`reconciler`]: what is to be done next so that a machine steers as it should.
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
