//! What a node serves: sites and objects, and the state of each path.
//!
//! These modules are leaves: none of them sends a request to another node or an origin.

pub(crate) mod agents;
pub(crate) mod announced;
pub(crate) mod changes;
pub(crate) mod compressed;
pub(crate) mod compression;
pub(crate) mod conditions;
pub(crate) mod fault;
pub(crate) mod field_lines;
pub(crate) mod file_names;
pub(crate) mod freshness;
pub(crate) mod hosts;
pub(crate) mod object;
pub(crate) mod orders;
pub(crate) mod origin_backend;
pub(crate) mod peer;
pub(crate) mod pool_backend;
pub(crate) mod pool_cache;
pub(crate) mod pool_protocol;
pub(crate) mod pools;
pub(crate) mod power;
pub(crate) mod purges;
pub(crate) mod redirect;
pub(crate) mod reply_backend;
pub(crate) mod resource;
pub(crate) mod route;
pub(crate) mod served;
pub(crate) mod sessions;
pub(crate) mod site;
mod variant_tag;
pub(crate) mod worker_index;
