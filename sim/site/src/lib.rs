//! A site and its cluster under a virtual clock.
//!
//! The policies (`skep_policy`) and the cache (`skep_cache`) are those that run live. Modelled are what surrounds them:
//!
//! - links, disks and the origin: each shares its rate equally among its transfers;
//! - processors: requests in order of arrival, a fixed time each;
//! - nodes: a response is sent segment by segment while the next ones are fetched; concurrent misses of a segment share a
//!   fetch; with a cluster cache a segment comes from another node's memory before disk or origin;
//! - a dispatcher of mode `proxy`, which counts its requests and the announced bytes, or several;
//! - clients: an open loop of Poisson arrivals or a closed loop, on objects with published sizes.
//!
//! Not modelled: TCP, the rates of clients, links towards nodes, the dispatcher's link and processor, failures.
//!
//! **Invariants:** a seed gives the same outcome in every run of a program; every request ends, and as many bytes are sent as
//! were asked for.

#![forbid(unsafe_code)]

mod chooser;
mod cluster;
mod comparison;
mod events;
mod fetch;
mod fetch_table;
mod limits;
mod memory;
mod outcome;
mod processor_sharing;
mod request;
mod run;
mod sending;
mod statistics;
mod workload;
mod world;

pub use cluster::{FetchSource, SimulatedCluster, SimulatedNode};
pub use comparison::{Experiment, PolicyOutcomes};
pub use limits::SIZE_CLASSES;
pub use outcome::{BytesBySource, ResponseTimes, RunOutcome, RunTotals};
pub use skep_policy::names as policy_names;
pub use skep_workload::{Popularity, SizeStatistics};
pub use statistics::{Estimate, RatioEstimate};
pub use workload::{SiteKind, SiteWorkload};
pub use world::{OfferedLoad, SiteRun};

#[cfg(test)]
mod tests;
