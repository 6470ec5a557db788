//! The nodes' load reports: received, stored, and passed to the services.

pub(crate) mod metrics;
pub(crate) mod node_loads;
pub(crate) mod receiver;
