//! A site and its cluster under a virtual clock.
//!
//! The policies (`skep_policy`) and the cache (`skep_cache`) are those that run live. Their surroundings are
//! modelled:
//!
//! - links, disks and the origin: each shares its rate equally among its transfers;
//! - processors: requests in order of arrival, a fixed time each;
//! - nodes: a response is sent segment by segment while the next ones are fetched; concurrent misses of a segment share a
//!   fetch; with a cluster cache a segment comes from another node's memory before disk or origin, and what a node evicts and no
//!   other one has may be passed on;
//! - elasticity: nodes are started and stopped by the controller that runs live (`skep_cluster::elasticity`); one that starts
//!   has nothing in memory, and one that drains first hands over what no other node has;
//! - a dispatcher of mode `proxy`, which counts its requests and the announced bytes, or several;
//! - clients: an open loop of Poisson arrivals, a closed loop, a ramp of clients, what an access log says, or given requests;
//!   each may take no more than a rate;
//! - a loss of nodes: what they had in memory and in progress is gone; requests that are sent there until the failure detector's
//!   time has passed go elsewhere after the time to connect, and fetches from there after that of a silent node;
//! - the coordinator: what it is told and asked is counted, as live nodes batch it; its answers come at once.
//!
//! Not modelled: TCP, links towards nodes, the dispatcher's link and processor, the path to the coordinator
//! and back (except as part of a peer's latency), the 0.8 s during which it still names a lost node's memory,
//! until it finds the link silent; and requests on connections to a lost node that were open.
//!
//! **Invariants:** a seed gives the same outcome in every run of a program; every request ends, and exactly
//! the requested bytes are sent, except those that a loss cuts off.

#![forbid(unsafe_code)]

mod byte_sources;
mod chooser;
mod cluster;
mod comparison;
mod elastic;
mod elastic_mix;
mod events;
mod fetch;
mod fetch_table;
mod limits;
mod logged;
mod lose_nodes;
mod loss;
mod memory;
mod outcome;
mod part;
mod pass_on;
mod pass_on_queue;
mod planned;
mod power;
mod power_table;
mod processor_sharing;
mod request;
mod run;
mod sending;
mod statistics;
mod timed_request;
mod traffic;
mod windows;
mod workload;
mod world;

pub use byte_sources::BytesBySource;
pub use cluster::{FetchSource, MemoryCosts, SimulatedCluster, SimulatedNode};
pub use comparison::{Experiment, PolicyOutcomes};
pub use elastic::{ElasticOutcome, NodeCount, SimulatedElasticity};
pub use elastic_mix::ElasticMix;
pub use limits::{SETTLED_SIGMAS, SIZE_CLASSES};
pub use logged::SiteTooLarge;
pub use loss::{LossOutcome, SimulatedLoss};
pub use outcome::{ResponseTimes, RunOutcome, RunTotals};
pub use planned::PlannedRequest;
pub use skep_cluster::elasticity::{ElasticitySettings, LoadTargets};
pub use skep_policy::names as policy_names;
pub use skep_workload::{Popularity, SizeStatistics};
pub use statistics::{Estimate, RatioEstimate};
pub use traffic::CoordinatorTraffic;
pub use windows::{OutcomeWindow, OutcomeWindows};
pub use workload::{SiteKind, SiteWorkload};
pub use world::{OfferedLoad, SimulatedRamp, SiteRun};

#[cfg(test)]
mod tests;
