//! From request to reply: a worker redirects the client to a node, or forwards the request to one.

pub(crate) mod handler;
pub(crate) mod redirect;
