//! The words of the cluster cache.
//!
//! ```text
//!   node --- ToCoordinator ---> coordinator (in every dispatcher; one answers)
//!   node <----- ToNode -------- coordinator
//!   node --- PeerRequest -----> node
//!   node <-- PeerReply, then chunks -- node
//! ```
//!
//! Both ways are streams (`edge/peer`) that begin with a [`hello`] and go on in
//! [`frame`]s; the payload of a frame is one message of [`link`] or [`peer`], or
//! a chunk of bytes. [`name`]s say what is cached, and [`purge`]s what is not any more;
//! [`part`] is what a node says of files of which it has a part.

pub mod frame;
pub mod hello;
pub mod link;
pub mod name;
pub mod part;
pub mod peer;
pub mod purge;

pub use frame::{FrameDecoder, FrameError, FrameHead};
pub use hello::{Handshake, HelloError, Identity, Purpose, Reason};
pub use link::{
    CacheMember, CoordinatorAnswer, Held, LeaseId, ReplicaStatus, ToCoordinator, ToNode,
};
pub use name::{ObjectName, SegmentName};
pub use peer::{OriginRef, PeerRefusal, PeerReply, PeerRequest};
pub use purge::{PurgeNews, PurgePlace, PurgeStamp, PurgeWhat};
