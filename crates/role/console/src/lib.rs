//! The management API: REST over a unix socket and, where configured, TCP; and the client that the
//! command line uses.
//!
//! ```text
//!  unix socket --+                                  +--> Control, which the
//!                +-> guard -> routes -> JSON        |    composition root
//!  TCP ----------+   (Host, Origin, token, audit) --+    implements
//!  metrics TCP ----> /metrics, /healthz ------------+
//! ```
//!
//! Invariants:
//! - The API runs on its own thread; no request of the data plane waits for it.
//! - `GET` changes nothing. Nothing can be changed over TCP without a token, not even from this
//!   machine: a web page in a browser is also on this machine.
//! - [`openapi_json`] describes the API, and every route in it is served.
//! - Every attempt to change something is logged in one line: caller, change and result.

#![forbid(unsafe_code)]

mod audit;
mod client;
mod connection_slots;
mod console;
mod control;
mod guard;
mod limits;
mod model;
mod problem;
mod routes;
mod server;
mod socket;
mod token;
mod traffic_history;

pub use client::{ApiClient, ApiClientError, ApiResponse};
pub use console::{Console, ConsoleConfig, ConsoleError, ConsoleHandle};
pub use control::{Control, ControlError};
pub use limits::{PURGE_MS, PURGE_MS_MAX, SERVER_TEST_MS, SERVER_TEST_MS_MAX};
pub use model::{
    AnswerCount, ArmTimes, CacheExplanation, CacheNode, CacheReason, CacheVerdict, ClusterPoint,
    ClusterRequests, ClusterSeries, ComparedArm, CoordinatorStatus, DirectPeer, DirectStatus,
    ExplainOutcome, Explained, ExplainedNode, HandoffCount, JudgedResponse, KeptVariant, Latency,
    MissingNode, NetworkSessions, NewArm, NewComparison, NewExplain, NewNode, NewPolicy, NewPurge,
    NewServer, NewServerTest, NewWeight, NodeBehind, NodeLocalStatus, NodePools, NodeReport,
    NodeRequest, NodeSource, NodeState, NodeStatus, OrderedNode, PacketCount, PolicyComparison,
    PoolSessions, PoolStatus, ProcessStatus, PurgeOutcome, Purged, PurgedNode, Reloaded,
    RequestStatus, Role, ServerCommand, ServerOrdered, ServerSelfReport, ServerStatus, ServerTest,
    ServerView, ServiceArm, ServiceStatus, TimeDifference, Traffic, TrafficPoint, TrafficSeries,
};
pub use problem::Problem;
pub use routes::openapi::openapi_json;
pub use token::{Token, TokenError};
pub use traffic_history::{PoolServerTotals, TrafficHistory};
