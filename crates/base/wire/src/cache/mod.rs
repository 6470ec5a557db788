//! The messages of the cluster cache.
//!
//! ```text
//!   node --- ToCoordinator ---> coordinator (in every dispatcher; one answers)
//!   node <----- ToNode -------- coordinator
//!   node --- PeerRequest -----> node
//!   node <-- PeerReply, then chunks -- node
//! ```
//!
//! Both directions are streams (`edge/peer`) that begin with a [`hello`], followed by
//! [`frame`]s; the payload of a frame is one message of [`link`] or [`peer`], or
//! a chunk of bytes. A [`name`] identifies cached content, and a [`purge`] invalidates it;
//! an [`explain`]ation states why a response is cached or not; a [`part`] describes the files of
//! which a node has a part. The same links carry the request counts of pools' servers ([`slots`]),
//! and operators' questions and orders ([`operate`]).

pub mod explain;
pub mod frame;
pub mod hello;
pub mod link;
pub mod name;
pub mod operate;
pub mod part;
pub mod peer;
pub mod purge;
pub mod slots;

pub use explain::{
    ExplainJudged, ExplainReason, ExplainRequest, ExplainVariant, ExplainVerdict, Explanation,
};
pub use frame::{FrameDecoder, FrameError, FrameHead};
pub use hello::{Handshake, HelloError, Identity, Purpose, Reason};
pub use link::{
    CacheMember, CoordinatorAnswer, FileAnswer, Held, LeaseId, NodeFeatures, PossibleHolder,
    PowerStage, ReplicaStatus, ToCoordinator, ToNode,
};
pub use name::{ObjectName, SegmentName};
pub use operate::{
    AddedServer, NodeQuestion, OrderStamp, RelayedAnswer, ServerAspect, ServerChange, ServerOrder,
};
pub use peer::{FilePlace, OriginRef, PeerRefusal, PeerReply, PeerRequest};
pub use purge::{PurgeKind, PurgeNews, PurgePlace, PurgeStamp, PurgeWhat};
pub use slots::{ServerKey, ServerLoad, SlotGrant, SlotReport, SlotUse};
