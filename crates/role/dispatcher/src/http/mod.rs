//! From request to reply: a worker selects a node, and redirects the client there or proxies the
//! request.

pub(crate) mod handler;
pub(crate) mod proxy;
pub(crate) mod redirect;
pub(crate) mod worker_balancer;
