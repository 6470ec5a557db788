//! The state of a service in any dispatch mode: nodes, health, drains, policy.
//!
//! ```text
//!  control (admin API), reload --> Dispatcher { lock: ServiceState }
//!  checks -- probe of a node ----------^   |            '--> status, metrics, candidates
//!                                          v
//!                       Published (swapped whole), Node (atomics): what workers read
//! ```
//!
//! Imports neither `http` nor `loads`, which both use it, as packet steering does.

pub(crate) mod candidates;
pub(crate) mod checks;
pub(crate) mod control;
pub(crate) mod dispatcher;
pub(crate) mod metrics;
pub(crate) mod node;
pub(crate) mod node_reports;
pub(crate) mod probe;
pub(crate) mod published;
pub(crate) mod reload;
pub(crate) mod reported;
pub(crate) mod settings;
pub(crate) mod state;
pub(crate) mod status;
