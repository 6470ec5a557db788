//! A reverse proxy as a library: the members of a group, their health and load, the selection of a member
//! for each request, and the exchange with it.
//!
//! The nodes of a service are a group of a dispatcher, the servers of a pool one of a node. A group is a
//! [`Group`], shared by all threads, and a [`WorkerGroup`] on each worker.
//!
//! ```text
//!  admin API, reload --> Group (a mutex, off the path of requests)
//!  checks of members -->   |  publishes                  ^ refused, broken, late
//!                          v                             |
//!  request -> WorkerGroup (policy, view, budget, queue) ---> member
//!                      ^-- loads: atomics of each member, counted by all workers
//!                           ^-- NodeReports: loads that nodes report
//! ```
//!
//! `members` contains the state of a group, `request` the handling of a request, which uses the former. A
//! `Leg` encodes and decodes what is sent to and received from a member: `HttpLeg` (`request/upload.rs`,
//! `request/download.rs`), and `GatewayLeg` for AJP and FastCGI.
//!
//! Invariants:
//! - A request takes no lock and, in steady state, waits only for its client, its member, and its turn.
//!   In an A/B test the first request of a client at a worker takes a lock for one look-up.
//! - A request that a member may have acted on is never sent again unless its method is idempotent;
//!   retries are charged to a budget.
//! - A connection to a member is reused only if its reply was read to the end and no byte followed.
//! - If a reply was begun and cannot be completed, the client's connection is closed such that the client
//!   detects it.
//! - Heads are rebuilt from their parsed form, never passed on as bytes.

#![forbid(unsafe_code)]

mod chooser;
mod limits;
mod members;
mod request;
mod worker_arms;
mod worker_balancer;
mod worker_group;

pub use members::candidates::{Candidate, Openness};
pub use members::cause::CAUSES;
pub use members::comparison::{ArmStatus, Comparison, ComparisonStatus};
pub use members::control::GroupControlError;
pub use members::group::Group;
pub use members::metrics::{Groups, MemberMetric, register_failures, register_members};
pub use members::node_reports::{HeardReport, NodeReports};
pub use members::protocol::{AjpSpec, FcgiSpec, MemberProtocol, PingSettings, ScriptSpec, Secret};
pub use members::session::{InsertedCookie, Sticky};
pub use members::settings::{
    Buffering, CheckSettings, GroupSettings, GroupSpec, GroupWords, LoadMeasure, MemberSpec,
    QueueSettings, SizeSource, retry_budget,
};
pub use members::slots::{MemberLoad, MemberSlots};
pub use members::status::{GatewayStatus, MemberSource, MemberStatus};
pub use request::{
    BUFFERING_FIELD, BodyCoder, CodedReply, CoderFailed, Ends, ForwardError, MemberTest, OwnTimes,
    Question, RefusalScope, Refused, ReplyCoding, ReplyRules, RequestInFlight, Tap, TapBody,
    Tapped, TestRequest, ask_once, tell_requests,
};
pub use worker_balancer::PickedMember;
pub use worker_group::WorkerGroup;
