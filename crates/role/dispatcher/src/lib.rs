//! The dispatcher: takes the clients' requests and sends each to a node.
//!
//! One [`Dispatcher`] per service, shared by all threads: who the nodes are and
//! how they do. One [`DispatcherHandler`] per worker: answers requests, in
//! `redirect` mode by naming a node, in `proxy` mode by asking it.
//!
//! ```text
//!  admin API, reload --> Dispatcher (a mutex, off the path of requests)
//!  checks of nodes ---->    |  publishes                 ^ refused, broken, late
//!                           v                            |
//!  request -> WorkerBalancer (policy, view, budget) ---> node
//!                      ^-- loads: atomics of each node, counted by all workers
//!                           ^-- NodeLoads: what nodes say of themselves
//! ```
//!
//! Invariants:
//! - A request takes no lock and, in steady state, waits for nobody but its
//!   client and its node.
//! - A request that a node may have acted on is never sent again unless its
//!   method is idempotent; retries cost a budget.
//! - A connection to a node is reused only after its reply was read to the end
//!   and nothing came behind it.
//! - A reply that was begun and can't be completed ends its client's
//!   connection, never with a clean end.

#![forbid(unsafe_code)]

mod checks;
mod control;
mod direct_view;
mod dispatcher;
mod handler;
mod limits;
mod load_receiver;
mod loads;
mod metrics;
mod node;
mod probe;
mod proxy;
mod published;
mod redirect;
mod reload;
mod reported;
mod settings;
mod state;
mod status;
#[cfg(test)]
mod tests;
mod worker_balancer;

pub use control::ServiceControlError;
pub use direct_view::{Candidate, Openness};
pub use dispatcher::{Dispatcher, NoSuchService};
pub use handler::DispatcherHandler;
pub use load_receiver::{LoadReceiver, LoadReceiverError};
pub use loads::{NodeLoads, NodeReport, OnLoad};
pub use metrics::{register_metrics, register_reports};
pub use status::{NodeSource, NodeStatus, ServiceStatus};
