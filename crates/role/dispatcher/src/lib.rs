//! The dispatcher: receives the clients' requests and sends each to a node.
//!
//! One [`Dispatcher`] per service, shared by all threads: its nodes and their health. One
//! [`DispatcherHandler`] per worker: answers requests, in `redirect` mode with the address of a
//! node, in `proxy` mode with the response of a node.
//!
//! ```text
//!  admin API, reload --> Dispatcher (a mutex, off the path of requests)
//!  checks of nodes ---->    |  publishes                 ^ refused, broken, late
//!                           v                            |
//!  request -> WorkerBalancer (policy, view, budget) ---> node
//!                      ^-- loads: atomics of each node, counted by all workers
//!                           ^-- NodeLoads: loads that nodes report
//! ```
//!
//! `http` is the request path, `loads` the reports of nodes, `service` the rest: the state of a
//! service, which packet steering (`skep-steering`) uses as well. `http` and `loads` use `service`;
//! `service` uses neither.
//!
//! Invariants:
//! - A request takes no lock and, in steady state, waits only for its client and its node.
//! - A request that a node may have acted on is never sent again unless its method is idempotent;
//!   retries are charged to a budget.
//! - A connection to a node is reused only after its reply was read to the end and no byte
//!   followed.
//! - If a reply was begun and can't be completed, the client's connection is closed, never with a
//!   clean end.

#![forbid(unsafe_code)]

mod http;
mod limits;
mod loads;
mod service;
#[cfg(test)]
mod tests;

pub use http::handler::DispatcherHandler;
pub use loads::metrics::register_reports;
pub use loads::node_loads::{NewReports, NodeLoads, NodeReport};
pub use loads::receiver::{LoadReceiver, LoadReceiverError};
pub use service::candidates::{Candidate, Openness};
pub use service::control::ServiceControlError;
pub use service::dispatcher::{Dispatcher, NoSuchService};
pub use service::metrics::register_metrics;
pub use service::status::{NodeSource, NodeStatus, ServiceStatus};
