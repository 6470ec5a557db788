//! The words of the cluster cache.
//!
//! ```text
//!   node --- ToCoordinator ---> coordinator (in every dispatcher; one answers)
//!   node <----- ToNode -------- coordinator
//!   node --- PeerRequest -----> node
//!   node <-- PeerReply, then chunks -- node
//! ```
//!
//! Both ways are streams of frames (`edge/peer`): what is here are the payloads
//! of those frames, and the [`name`]s of what is cached.

pub mod link;
pub mod name;
pub mod peer;

pub use link::{Answer, Held, LeaseId, Load, Member, ToCoordinator, ToNode};
pub use name::{ObjectName, SegmentName};
pub use peer::{Origin, PeerReply, PeerRequest, Refusal};
