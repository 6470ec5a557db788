//! The state of a group: members, health, drains, policy.
//!
//! ```text
//!  control (admin API), reload --> Group { lock: GroupState }
//!  checks -- probe of a member --------^   |            '--> status, metrics, candidates
//!                                          v
//!                Published (swapped whole), SharedMember (atomics): what workers read
//! ```

pub(crate) mod candidates;
pub(crate) mod cause;
pub(crate) mod checks;
pub(crate) mod comparison;
pub(crate) mod conn_io;
pub(crate) mod control;
pub(crate) mod gateway_probe;
pub(crate) mod group;
pub(crate) mod member;
pub(crate) mod metrics;
pub(crate) mod node_reports;
pub(crate) mod probe;
pub(crate) mod probe_request;
pub(crate) mod protocol;
pub(crate) mod published;
pub(crate) mod queue;
pub(crate) mod reload;
pub(crate) mod reported;
pub(crate) mod session;
pub(crate) mod settings;
pub(crate) mod slots;
pub(crate) mod state;
pub(crate) mod status;
mod testing;
