//! Requests to replies: a worker chooses a node, and sends the client there or asks it itself.

pub(crate) mod handler;
pub(crate) mod proxy;
pub(crate) mod redirect;
pub(crate) mod worker_balancer;
