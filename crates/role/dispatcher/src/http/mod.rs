//! From request to reply: a worker redirects the client to a node, or passes the request on to one.

pub(crate) mod handler;
pub(crate) mod redirect;
