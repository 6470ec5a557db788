//! Where the bytes of a route come from.
//!
//! - [`files`]: a folder on this node's disk, or on all nodes' alike;
//! - [`partition`]: a folder of which each node has a part;
//! - [`origin`]: web servers.
//!
//! Who is the first to need something asks for it, and all others wait ([`single_flight`]).

pub(crate) mod files;
pub(crate) mod origin;
pub(crate) mod partition;
pub(crate) mod single_flight;
