//! Backends: where the bytes of a route come from.
//!
//! - [`files`]: a folder on this node's disk, or on a disk that all nodes share;
//! - [`partition`]: a folder of which each node stores a part;
//! - [`origin`]: HTTP servers;
//! - [`dynamic`]: responses that pool servers allow to be stored.
//!
//! Their objects are compressed once ([`compressed`]).
//!
//! Concurrent requests for the same object are collapsed into one ([`single_flight`]).

pub(crate) mod compressed;
pub(crate) mod dynamic;
pub(crate) mod files;
pub(crate) mod head_slots;
pub(crate) mod origin;
pub(crate) mod partition;
pub(crate) mod single_flight;
