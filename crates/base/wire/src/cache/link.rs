//! Messages between a node and a coordinator.
//!
//! A node reports its inventory to every dispatcher ([`ToCoordinator::Inventory`] once, then
//! [`ToCoordinator::Delta`]) so that each of them could answer; it sends requests only to the
//! dispatcher that reports itself active. Links are streams: messages arrive complete and in order;
//! if a link breaks, a new one starts with an inventory.
//!
//! Files of partitioned folders are announced separately from the segments in memory, and before
//! them ([`ToCoordinator::Announce`]): a segment unknown to the coordinator costs a fill, but a
//! file that no node is known to have does not exist.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::explain::{ExplainRequest, Explanation};
use super::name::SegmentName;
use super::operate::{NodeQuestion, RelayedAnswer, ServerOrder};
use super::purge::{PurgeKind, PurgeNews, PurgeStamp, PurgeWhat};
use super::slots::{ServerLoad, SlotGrant, SlotReport};
use crate::limits::{
    HELD_PER_MESSAGE_MAX, HOLDERS_TOLD_MAX, MEMBERS_MAX, POSSIBLE_HOLDERS_MAX,
    PURGES_PER_MESSAGE_MAX, SERVER_ORDERS_MAX, SLOT_SERVERS_MAX, STATUS_BYTES_MAX, TAIL_MAX,
};
use crate::machine::Name;
use crate::message::NotAMessage;

/// The number of a lease; never used twice within an epoch.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct LeaseId(pub u64);

/// A node's number in its coordinator's answers; dense, from 0. Numbers of departed nodes are
/// reused.
pub type MemberId = u16;

/// Messages of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToCoordinator {
    /// The node's name, and the address that serves other nodes.
    Hello {
        /// Its name in the config.
        name: Name,
        /// The address at which it serves other nodes.
        address: SocketAddr,
        /// Cache capacity in bytes.
        capacity_bytes: u64,
    },
    /// Part of the inventory. The first part replaces the previous inventory.
    Inventory {
        /// Whether this begins a new inventory.
        is_first: bool,
        /// Whether this is the last part; until then the node is not named as a holder.
        is_last: bool,
        /// At most [`HELD_PER_MESSAGE_MAX`].
        held: Vec<Held>,
    },
    /// Segments added and removed since the last message, in chronological order: a name in both
    /// lists was removed after it was added.
    Delta {
        /// At most [`HELD_PER_MESSAGE_MAX`].
        added: Vec<Held>,
        /// At most [`HELD_PER_MESSAGE_MAX`].
        removed: Vec<SegmentName>,
    },
    /// Files and folders on the node's disk that were added or removed since the last message, by
    /// head name. A new link begins with none announced.
    Announce {
        /// At most [`HELD_PER_MESSAGE_MAX`].
        added: Vec<SegmentName>,
        /// At most [`HELD_PER_MESSAGE_MAX`].
        removed: Vec<SegmentName>,
        /// Whether this completes the announcement of all the node's files and folders; until then
        /// it may have others.
        is_complete: bool,
    },
    /// Requests the nodes that have the file or folder of this head name.
    FindFile {
        /// Returned with the answer.
        ask: u64,
        name: SegmentName,
    },
    /// Requests the location of a segment.
    Ask {
        /// Returned with the answer.
        ask: u64,
        name: SegmentName,
        bytes: u32,
    },
    /// A fill is in progress: renews its lease.
    Renew { lease: LeaseId },
    /// A lease ends: the segment is now held, or the fill failed.
    Ended {
        lease: LeaseId,
        /// Whether the segment is complete and kept.
        is_held: bool,
    },
    /// A node that was named as a holder refused.
    NotThere {
        name: SegmentName,
        /// The node that was named as a holder.
        holder: MemberId,
    },
    /// Requests the other holders of these segments, which are the next to be evicted.
    Tail {
        /// At most [`TAIL_MAX`].
        names: Vec<SegmentName>,
    },
    /// Purges known to the node: sent before its inventory, and for each purge received from
    /// another machine.
    Purges(PurgeNews),
    /// The node has applied [`ToNode::Purges`].
    Purged {
        /// The newest of these purges.
        stamp: PurgeStamp,
        /// The newest stamp known to the node.
        newest: PurgeStamp,
    },
    /// The node was paused for a moment; [`ToNode::InStep`] indicates that it has received
    /// everything.
    AmInStep {
        /// Returned with the answer.
        question: u64,
    },
    /// Content changed by a request at the node, to be purged everywhere, as by a command. At most
    /// [`PURGES_PER_MESSAGE_MAX`].
    Invalidate(Vec<PurgeWhat>),
    /// The node's use of and demand for slots of its pools' servers; sent whenever they change.
    Slots(SlotReport),
    /// The optional messages that the node supports. Sent before [`Self::Hello`]; if not sent, none
    /// are supported.
    Features(NodeFeatures),
    /// As [`Self::Purges`], for soft purges.
    SoftPurges(PurgeNews),
    /// The answer to [`ToNode::Explain`].
    Explained {
        /// The number of the question.
        question: u64,
        /// `None` if the node cannot interpret the request.
        explanation: Option<Box<Explanation>>,
    },
    /// The answer to [`ToNode::AskStatus`] and [`ToNode::Ask`].
    Status {
        /// The number of the question.
        question: u64,
        /// The status for operators, in the JSON of the management API; empty if it would be too
        /// long. At most [`STATUS_BYTES_MAX`].
        json: Vec<u8>,
    },
    /// Orders about servers of pools that the node has executed or received; at most
    /// [`SERVER_ORDERS_MAX`]. Sent only to coordinators that have sent [`ToNode::ServerOrders`].
    ServerOrders(Vec<ServerOrder>),
    /// A question of an operator at this node to all nodes. Sent only to coordinators that have
    /// sent [`ToNode::ServerOrders`].
    Relay {
        /// Returned with the answers.
        ask: u64,
        question: NodeQuestion,
        /// Time limit for the nodes' answers, in milliseconds.
        limit_ms: u64,
    },
    /// The node's requests at servers with cluster-wide counting, without servers that have none;
    /// sent whenever they change. Only to coordinators that have sent [`ToNode::ServerOrders`].
    ServerLoads(Vec<ServerLoad>),
    /// The node's power stage; sent whenever it changes, and first as the answer to
    /// [`ToNode::Power`]. Only to coordinators that have sent that.
    Power {
        stage: PowerStage,
        /// Cache capacity from now on, in bytes.
        capacity_bytes: u64,
    },
}

/// The power stage of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PowerStage {
    #[default]
    On,
    /// About to be off: it transfers the segments of which it has the only replica in memory.
    Stopping,
    /// It keeps nothing in memory.
    Off,
}

/// Optional messages that a node supports, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFeatures(pub u32);

impl NodeFeatures {
    /// The features of this build.
    pub const OWN: Self =
        Self(Self::SOFT_PURGES | Self::EXPLAIN | Self::STATUS | Self::OPERATE | Self::POWER);
    const SOFT_PURGES: u32 = 1;
    const EXPLAIN: u32 = 2;
    const STATUS: u32 = 4;
    const OPERATE: u32 = 8;
    const POWER: u32 = 16;

    /// Whether the node supports [`ToNode::SoftPurges`].
    pub fn has_soft_purges(self) -> bool {
        self.0 & Self::SOFT_PURGES != 0
    }

    /// Whether the node supports [`ToNode::Explain`].
    pub fn has_explain(self) -> bool {
        self.0 & Self::EXPLAIN != 0
    }

    /// Whether the node supports [`ToNode::AskStatus`].
    pub fn has_status(self) -> bool {
        self.0 & Self::STATUS != 0
    }

    /// Whether the node supports [`ToNode::Ask`], [`ToNode::ServerOrders`] and the answers to
    /// [`ToCoordinator::Relay`].
    pub fn has_operate(self) -> bool {
        self.0 & Self::OPERATE != 0
    }

    /// Whether the node supports [`ToNode::Power`].
    pub fn has_power(self) -> bool {
        self.0 & Self::POWER != 0
    }
}

/// A held segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pub name: SegmentName,
    pub bytes: u32,
}

/// Messages of a coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToNode {
    /// The answer to a hello; sent again whenever its content changes.
    Welcome {
        /// Whether this coordinator is the active one.
        is_active: bool,
        /// The epoch of its term.
        epoch: u64,
        /// All linked nodes, at most [`MEMBERS_MAX`].
        members: Vec<CacheMember>,
    },
    Answer {
        /// The number of the question.
        ask: u64,
        answer: CoordinatorAnswer,
    },
    /// The answer to [`ToCoordinator::FindFile`].
    FileAnswer {
        /// The number of the question.
        ask: u64,
        answer: FileAnswer,
    },
    /// The status of the node's replica of each segment of a tail, in its order.
    Tail {
        /// The segments, as requested.
        names: Vec<SegmentName>,
        /// The status of each.
        replica_statuses: Vec<ReplicaStatus>,
        /// The node with the most room, if any other node has room.
        roomiest: Option<MemberId>,
    },
    /// Purges to apply and acknowledge: all known ones before the first
    /// welcome, and each new one.
    Purges(PurgeNews),
    /// The answer to [`ToCoordinator::AmInStep`]: all earlier messages have been sent.
    InStep {
        /// The number of the question.
        question: u64,
    },
    /// The slots that the node may use at servers of its pools; servers not listed are unchanged.
    Slots {
        /// Increases by 1 with each such message on a link, from 1.
        number: u64,
        /// At most [`SLOT_SERVERS_MAX`].
        grants: Vec<SlotGrant>,
    },
    /// As [`Self::Purges`], for soft purges. A node without [`NodeFeatures::has_soft_purges`]
    /// receives them as [`Self::Purges`].
    SoftPurges(PurgeNews),
    /// Asks why the node caches the response to this request, or does not. Sent only to nodes with
    /// [`NodeFeatures::has_explain`].
    Explain {
        /// Returned with the answer.
        question: u64,
        request: ExplainRequest,
    },
    /// Requests the state of the node's pools for an operator. Sent only to nodes with
    /// [`NodeFeatures::has_status`].
    AskStatus {
        /// Returned with the answer.
        question: u64,
    },
    /// The orders about servers of pools known to the coordinator: all of them before the first
    /// welcome, even if there are none, and each new one. At most [`SERVER_ORDERS_MAX`]. Sent only
    /// to nodes with [`NodeFeatures::has_operate`].
    ServerOrders(Vec<ServerOrder>),
    /// An operator's question. Sent only to nodes with [`NodeFeatures::has_operate`].
    Ask {
        /// Returned with the answer.
        question: u64,
        what: NodeQuestion,
    },
    /// A node's answer to [`ToCoordinator::Relay`].
    Relayed { ask: u64, node: Name, answer: RelayedAnswer },
    /// All nodes have answered, or the time limit has passed.
    RelayEnd { ask: u64 },
    /// The total requests of all other nodes at servers that this node counts, without servers
    /// where they have none; sent whenever they change.
    ServerLoads(Vec<ServerLoad>),
    /// Whether this dispatcher requests that the node be off: it is off while all linked
    /// coordinators request it. Sent with the first request and at each change, only to nodes with
    /// [`NodeFeatures::has_power`].
    Power { is_off: bool },
}

impl ToCoordinator {
    /// Returns a message with purges of this kind.
    pub fn purges((kind, news): (PurgeKind, PurgeNews)) -> Self {
        match kind {
            PurgeKind::Hard => Self::Purges(news),
            PurgeKind::Soft => Self::SoftPurges(news),
        }
    }
}

impl ToNode {
    /// Returns a message with purges of this kind, for a node with these features. A node without
    /// soft purges receives them as hard ones: it purges more than necessary and ignores none.
    pub fn purges((kind, news): (PurgeKind, PurgeNews), features: NodeFeatures) -> Self {
        match kind {
            PurgeKind::Soft if features.has_soft_purges() => Self::SoftPurges(news),
            PurgeKind::Soft | PurgeKind::Hard => Self::Purges(news),
        }
    }
}

/// The status of a node's replica of a segment among all replicas in the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicaStatus {
    /// The only known replica.
    #[default]
    Sole,
    /// The replica to keep while the others may be evicted; this status is sent to one holder.
    Primary {
        /// The holder that keeps its replica if this one is evicted.
        successor: MemberId,
    },
    /// A replica beside the primary one.
    Redundant,
}

impl ReplicaStatus {
    /// The holder that keeps the segment if this node does not.
    pub fn successor(self) -> Option<MemberId> {
        match self {
            Self::Primary { successor } => Some(successor),
            Self::Sole | Self::Redundant => None,
        }
    }
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheMember {
    pub id: MemberId,
    pub name: Name,
    /// The address at which it serves other nodes.
    pub address: SocketAddr,
}

/// The location of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CoordinatorAnswer {
    /// These nodes hold it, the least loaded first; 1 to [`HOLDERS_TOLD_MAX`].
    Have { holders: Vec<MemberId> },
    /// This node is filling it; stream from it.
    Busy { leader: MemberId },
    /// No node holds it: fill it from its origin.
    Grant {
        /// Under this lease.
        lease: LeaseId,
    },
    /// No known node holds it, but not all nodes have sent their inventory yet: ask again shortly.
    Later,
    /// The coordinator has no room for another lease or is not active: proceed as if it did not
    /// answer.
    Refused,
}

/// The nodes that have a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileAnswer {
    /// These nodes have it, the least loaded first; 1 to [`HOLDERS_TOLD_MAX`].
    Have { holders: Vec<MemberId> },
    /// No node has it: all nodes have completed their announcements.
    Nobody,
    /// No linked node is known to have it, but these nodes may have it: their announcement is
    /// incomplete, or they had the file and their link was just lost.
    Unsure {
        /// At most [`POSSIBLE_HOLDERS_MAX`].
        nodes: Vec<PossibleHolder>,
        /// Whether these are the only nodes that may have it.
        are_all: bool,
    },
    /// The coordinator is not active: proceed as if it did not answer.
    Refused,
}

/// A node that may have a file. It may be without a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PossibleHolder {
    pub name: Name,
    /// The address at which it serves other nodes.
    pub address: SocketAddr,
}

macro_rules! payload {
    ($message:ty) => {
        impl $message {
            /// Encodes the message.
            pub fn encode(&self) -> Vec<u8> {
                crate::cache::link::encode(self)
            }

            /// Decodes the message that occupies all of `bytes`.
            ///
            /// # Errors
            /// The bytes are not such a message, or it exceeds its bounds.
            pub fn decode(bytes: &[u8]) -> Result<Self, NotAMessage> {
                crate::cache::link::decode(bytes, Self::is_sound)
            }
        }
    };
}
pub(super) use payload;

payload!(ToCoordinator);
payload!(ToNode);

impl ToCoordinator {
    fn is_sound(&self) -> bool {
        match self {
            Self::Inventory { held, .. } => held.len() <= HELD_PER_MESSAGE_MAX,
            Self::Delta { added, removed } => {
                added.len() <= HELD_PER_MESSAGE_MAX && removed.len() <= HELD_PER_MESSAGE_MAX
            }
            Self::Announce { added, removed, .. } => {
                added.len() <= HELD_PER_MESSAGE_MAX && removed.len() <= HELD_PER_MESSAGE_MAX
            }
            Self::Tail { names } => names.len() <= TAIL_MAX,
            Self::Purges(news) | Self::SoftPurges(news) => news.is_sound(),
            Self::Explained { explanation, .. } => {
                explanation.as_ref().is_none_or(|it| it.is_sound())
            }
            Self::Invalidate(what) => {
                what.len() <= PURGES_PER_MESSAGE_MAX && what.iter().all(PurgeWhat::is_sound)
            }
            Self::Slots(SlotReport { servers, .. }) => {
                servers.len() <= SLOT_SERVERS_MAX
                    && servers.is_sorted_by(|a, b| a.server < b.server)
            }
            Self::Status { json, .. } => json.len() <= STATUS_BYTES_MAX,
            Self::ServerOrders(orders) => are_sound(orders),
            Self::Relay { question, .. } => question.is_sound(),
            Self::ServerLoads(loads) => are_loads(loads),
            _ => true,
        }
    }
}

impl ToNode {
    fn is_sound(&self) -> bool {
        let is_member = |id: MemberId| usize::from(id) < MEMBERS_MAX;
        let are_holders = |holders: &[MemberId]| {
            (1..=HOLDERS_TOLD_MAX).contains(&holders.len())
                && holders.iter().copied().all(is_member)
        };
        match self {
            Self::Welcome { members, .. } => {
                members.len() <= MEMBERS_MAX && members.iter().all(|member| is_member(member.id))
            }
            Self::Answer { answer, .. } => match answer {
                CoordinatorAnswer::Have { holders } => are_holders(holders),
                CoordinatorAnswer::Busy { leader, .. } => is_member(*leader),
                CoordinatorAnswer::Grant { .. }
                | CoordinatorAnswer::Later
                | CoordinatorAnswer::Refused => true,
            },
            Self::FileAnswer { answer, .. } => match answer {
                FileAnswer::Have { holders } => are_holders(holders),
                FileAnswer::Unsure { nodes, .. } => nodes.len() <= POSSIBLE_HOLDERS_MAX,
                FileAnswer::Nobody | FileAnswer::Refused => true,
            },
            Self::Tail { names, replica_statuses, roomiest } => {
                names.len() <= TAIL_MAX
                    && replica_statuses.len() == names.len()
                    && roomiest.is_none_or(is_member)
                    && replica_statuses.iter().filter_map(|it| it.successor()).all(is_member)
            }
            Self::Purges(news) | Self::SoftPurges(news) => news.is_sound(),
            Self::Explain { request, .. } => request.is_sound(),
            Self::InStep { .. }
            | Self::AskStatus { .. }
            | Self::RelayEnd { .. }
            | Self::Power { .. } => true,
            Self::Slots { grants, .. } => grants.len() <= SLOT_SERVERS_MAX,
            Self::ServerOrders(orders) => are_sound(orders),
            Self::Ask { what, .. } => what.is_sound(),
            Self::Relayed { answer, .. } => answer.is_sound(),
            Self::ServerLoads(loads) => are_loads(loads),
        }
    }
}

fn are_sound(orders: &[ServerOrder]) -> bool {
    orders.len() <= SERVER_ORDERS_MAX && orders.iter().all(ServerOrder::is_sound)
}

fn are_loads(loads: &[ServerLoad]) -> bool {
    loads.len() <= SLOT_SERVERS_MAX && loads.is_sorted_by(|a, b| a.server < b.server)
}

pub(super) fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    #[expect(clippy::expect_used, reason = "fails only for types that are not used here")]
    postcard::to_allocvec(message).expect("maps and unsized sequences are not in any message")
}

pub(super) fn decode<T: for<'a> Deserialize<'a>>(
    bytes: &[u8],
    is_sound: impl Fn(&T) -> bool,
) -> Result<T, NotAMessage> {
    let (message, rest) = postcard::take_from_bytes(bytes).map_err(|_| NotAMessage)?;
    if rest.is_empty() && is_sound(&message) { Ok(message) } else { Err(NotAMessage) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn messages_come_back_and_bounds_are_kept() {
        let name = SegmentName([7; 16]);
        let ask = ToCoordinator::Ask { ask: 1, name, bytes: 5 };
        assert_eq!(ToCoordinator::decode(&ask.encode()), Ok(ask.clone()));
        assert!(ask.encode().len() <= 24, "{} bytes", ask.encode().len());
        let many = ToCoordinator::Tail { names: vec![name; TAIL_MAX + 1] };
        assert_eq!(ToCoordinator::decode(&many.encode()), Err(NotAMessage));
        let nobody = ToNode::Answer { ask: 1, answer: CoordinatorAnswer::Have { holders: vec![] } };
        assert_eq!(ToNode::decode(&nobody.encode()), Err(NotAMessage));
        let possible = PossibleHolder {
            name: Name::new("n").unwrap(),
            address: SocketAddr::from(([127, 0, 0, 1], 1)),
        };
        let unsure = |count| {
            let nodes = vec![possible.clone(); count];
            ToNode::FileAnswer { ask: 1, answer: FileAnswer::Unsure { nodes, are_all: true } }
        };
        assert!(ToNode::decode(&unsure(POSSIBLE_HOLDERS_MAX).encode()).is_ok());
        assert_eq!(ToNode::decode(&unsure(POSSIBLE_HOLDERS_MAX + 1).encode()), Err(NotAMessage));
        let stranger = CoordinatorAnswer::Busy { leader: MEMBERS_MAX as u16 };
        let stranger = ToNode::Answer { ask: 1, answer: stranger };
        assert_eq!(ToNode::decode(&stranger.encode()), Err(NotAMessage));
        for cut in 0..ask.encode().len() {
            assert_eq!(ToCoordinator::decode(&ask.encode()[..cut]), Err(NotAMessage));
        }
    }
}
