//! What nodes say of their load: received, kept, and brought to the services.

pub(crate) mod metrics;
pub(crate) mod node_loads;
pub(crate) mod receiver;
