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
//! `http` has the path of requests, `loads` what nodes report, `service` the rest: the
//! state of a service, by which packets are steered, too (`skep-steering`). Both use it, and
//! it uses neither.
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

mod http;
mod limits;
mod loads;
mod service;
#[cfg(test)]
mod tests;

pub use http::handler::DispatcherHandler;
pub use loads::metrics::register_reports;
pub use loads::node_loads::{NodeLoads, NodeReport, OnLoad};
pub use loads::receiver::{LoadReceiver, LoadReceiverError};
pub use service::candidates::{Candidate, Openness};
pub use service::control::ServiceControlError;
pub use service::dispatcher::{Dispatcher, NoSuchService};
pub use service::metrics::register_metrics;
pub use service::status::{NodeSource, NodeStatus, ServiceStatus};
