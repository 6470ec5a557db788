//! Packet steering: the dispatcher's part of direct dispatch. A packet program in the kernel steers
//! packets; this crate maintains its table, and determines which dispatcher is active.
//!
//! ```text
//!   nodes, dispatchers --datagrams--> DirectLoop (own thread, real time)
//!                                      failover, table |  ^
//!   Dispatchers (services) --Planner---^          jobs v  | news
//!                                          NetguardExecutor --orders--> netguard
//! ```
//!
//! Nodes, drains, weights and policies are those of the services (`skep-dispatcher`), as in the other
//! dispatch modes, and the loads in heartbeats are passed to them.
//!
//! Invariants: until it stops, the event loop waits only for datagrams, and never blocks on locks that
//! it shares with other threads. If this process or its netguard has ended, packets are steered by the
//! last table.

#![forbid(unsafe_code)]

mod clock;
mod direct;
mod dispatcher_macs;
mod epoch_writer;
mod event_loop;
mod flow_streams;
mod heartbeats;
mod lccp_server;
mod limits;
mod load_digests;
mod load_orders;
mod metrics;
mod netguard_executor;
mod node_news;
mod node_observations;
mod packet_path;
mod plan;
mod planner;
mod queue;
mod shared_store;
mod status;
mod table_handover;
mod table_queue;

pub use direct::{Direct, DirectError, DirectParts};
pub use heartbeats::HeartbeatTurns;
pub use lccp_server::{Decide, LccpServerParts};
pub use load_orders::{LoadOrder, load_orders};
pub use metrics::{register_direct, register_store};
pub use plan::Plans;
pub use status::{OnTerm, PeerStatus, SteeringStatus};
