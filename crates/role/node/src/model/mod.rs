//! What a node serves: sites, objects and what is known of each path.
//!
//! Leaves: nothing here asks another node or an origin.

pub(crate) mod announced;
pub(crate) mod fault;
pub(crate) mod freshness;
pub(crate) mod hosts;
pub(crate) mod object;
pub(crate) mod origin_backend;
pub(crate) mod peer;
pub(crate) mod purges;
pub(crate) mod resource;
pub(crate) mod route;
pub(crate) mod site;
pub(crate) mod worker_index;
