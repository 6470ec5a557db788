//! The dispatcher: receives the clients' requests and sends each to a node.
//!
//! There is one [`Dispatcher`] per service, shared by all threads: the group of the service's nodes
//! (`skep-proxy`), and how clients reach them. There is one [`DispatcherHandler`] per worker: it answers
//! requests, in `redirect` mode with the address of a node, in `proxy` mode with the response of a node.
//!
//! `http` is the request path, `loads` the reports of nodes, `elastic` determines how many nodes get
//! requests, `power` switches the others off, `service` is the rest. `http` and `loads` use `service`;
//! `service` uses neither.

#![forbid(unsafe_code)]

mod arm_metrics;
mod elastic;
mod http;
mod limits;
mod loads;
mod power;
mod power_metrics;
mod service;
#[cfg(test)]
mod tests;

pub use http::handler::{DispatcherHandler, forwarded_head};
pub use loads::metrics::register_reports;
pub use loads::node_loads::{NewReports, NodeLoads, NodeReport};
pub use loads::receiver::{LoadReceiver, LoadReceiverError};
pub use power::{CommandOutcome, EndedCommand, NodeAgents, NodePowers, PowerCommands};
pub use power_metrics::register_powers;
pub use service::{Dispatcher, NoSuchService, ServiceStatus, register_metrics};
pub use skep_cluster::elasticity::PowerCommand;
pub use skep_proxy::{Candidate, Openness};
