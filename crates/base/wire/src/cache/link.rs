//! Messages between a node and a coordinator.
//!
//! A node reports its inventory to every dispatcher ([`ToCoordinator::Inventory`]
//! once, then [`ToCoordinator::Delta`]) so that each of them could answer; it sends requests only
//! to the dispatcher that reports itself active. Links are streams: messages arrive complete
//! and in order, or the link breaks and starts anew with an inventory.
//!
//! Files of partitioned folders are announced apart from what is in memory, and before it
//! ([`ToCoordinator::Announce`]): a segment that a coordinator does not know costs a fill, but a
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

/// A node's number in its coordinator's answers; dense, from 0. Numbers of nodes
/// that are gone are used again.
pub type MemberId = u16;

/// Messages of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToCoordinator {
    /// The node's name, and the address from which others fetch.
    Hello {
        /// Its name in the config.
        name: Name,
        /// Where it serves other nodes.
        address: SocketAddr,
        /// Bytes that its cache may hold.
        capacity_bytes: u64,
    },
    /// Part of the inventory. The first part replaces the previous inventory.
    Inventory {
        /// Whether this begins a new inventory.
        is_first: bool,
        /// Whether this is the last part; until then the node is not named as holder.
        is_last: bool,
        /// At most [`HELD_PER_MESSAGE_MAX`].
        held: Vec<Held>,
    },
    /// Segments added and removed since the last message, in order of time: removed
    /// after added where a name is in both.
    Delta {
        /// At most [`HELD_PER_MESSAGE_MAX`].
        added: Vec<Held>,
        /// At most [`HELD_PER_MESSAGE_MAX`].
        removed: Vec<SegmentName>,
    },
    /// Files and folders on the node's disk, by head name, that came and went since the last
    /// message. A link begins with none announced.
    Announce {
        /// At most [`HELD_PER_MESSAGE_MAX`].
        added: Vec<SegmentName>,
        /// At most [`HELD_PER_MESSAGE_MAX`].
        removed: Vec<SegmentName>,
        /// Whether all files and folders of the node are announced with this; otherwise it may
        /// have others, too.
        is_complete: bool,
    },
    /// Which nodes have the file or folder of this head name?
    FindFile {
        /// Comes back with the answer.
        ask: u64,
        name: SegmentName,
    },
    /// Where is this segment?
    Ask {
        /// Comes back with the answer.
        ask: u64,
        name: SegmentName,
        bytes: u32,
    },
    /// A fill continues: renews its lease.
    Renew { lease: LeaseId },
    /// A lease ends: with the whole segment (which is then held), or without.
    Ended {
        lease: LeaseId,
        /// Whether all bytes are there and are kept.
        is_held: bool,
    },
    /// A node that was named as holder refused.
    NotThere {
        name: SegmentName,
        /// The node that was named as holder.
        holder: MemberId,
    },
    /// Requests the other holders of these segments, which are the next to be evicted.
    Tail {
        /// At most [`TAIL_MAX`].
        names: Vec<SegmentName>,
    },
    /// Purges known to the node: sent before its inventory, and for each purge that it
    /// learns from another machine.
    Purges(PurgeNews),
    /// It has applied [`ToNode::Purges`].
    Purged {
        /// The newest of those.
        stamp: PurgeStamp,
        /// The newest stamp that the node knows.
        newest: PurgeStamp,
    },
    /// The node was paused for a moment; [`ToNode::InStep`] shows that it has received everything.
    AmInStep {
        /// Comes back with the answer.
        question: u64,
    },
    /// A request at the node has changed this: to be purged everywhere, as by a command. At most
    /// [`PURGES_PER_MESSAGE_MAX`].
    Invalidate(Vec<PurgeWhat>),
    /// What the node uses and wants of the servers of its pools; whenever that changes.
    Slots(SlotReport),
    /// Which messages the node understands beside those that every build does. Before
    /// [`Self::Hello`]; without it, none.
    Features(NodeFeatures),
    /// As [`Self::Purges`], of soft purges.
    SoftPurges(PurgeNews),
    /// The answer to [`ToNode::Explain`].
    Explained {
        /// To which question.
        question: u64,
        /// `None`: the node makes no sense of the request.
        explanation: Option<Box<Explanation>>,
    },
    /// The answer to [`ToNode::AskStatus`] and [`ToNode::Ask`].
    Status {
        /// To which question.
        question: u64,
        /// What operators are shown, as the management API has it; empty: it would be too long. At
        /// most [`STATUS_BYTES_MAX`].
        json: Vec<u8>,
    },
    /// Orders about servers of pools that the node has carried out, or was told of; at most
    /// [`SERVER_ORDERS_MAX`]. Only to coordinators that have said [`ToNode::ServerOrders`].
    ServerOrders(Vec<ServerOrder>),
    /// An operator at this node asks all nodes. Only to coordinators that have said [`ToNode::ServerOrders`].
    Relay {
        /// Comes back with the answers.
        ask: u64,
        question: NodeQuestion,
        /// How long nodes have to answer, in milliseconds.
        limit_ms: u64,
    },
    /// Requests that the node has at servers of its pools that all nodes count together, without those that have
    /// none; whenever that changes. Only to coordinators that have said [`ToNode::ServerOrders`].
    ServerLoads(Vec<ServerLoad>),
    /// Whether the node is on; whenever that changes, and first as the answer to [`ToNode::Power`]. Only to coordinators
    /// that have said that.
    Power {
        stage: PowerStage,
        /// Bytes that its cache may hold from now on.
        capacity_bytes: u64,
    },
}

/// Whether a node is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PowerStage {
    #[default]
    On,
    /// It is to be off, and gives away what only it has in memory.
    Stopping,
    /// It keeps nothing in memory.
    Off,
}

/// Messages that a node understands beside those that every build does: bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFeatures(pub u32);

impl NodeFeatures {
    /// Those of this build.
    pub const OWN: Self =
        Self(Self::SOFT_PURGES | Self::EXPLAIN | Self::STATUS | Self::OPERATE | Self::POWER);
    const SOFT_PURGES: u32 = 1;
    const EXPLAIN: u32 = 2;
    const STATUS: u32 = 4;
    const OPERATE: u32 = 8;
    const POWER: u32 = 16;

    /// Whether it understands [`ToNode::SoftPurges`].
    pub fn has_soft_purges(self) -> bool {
        self.0 & Self::SOFT_PURGES != 0
    }

    /// Whether it understands [`ToNode::Explain`].
    pub fn has_explain(self) -> bool {
        self.0 & Self::EXPLAIN != 0
    }

    /// Whether it understands [`ToNode::AskStatus`].
    pub fn has_status(self) -> bool {
        self.0 & Self::STATUS != 0
    }

    /// Whether it understands [`ToNode::Ask`], [`ToNode::ServerOrders`] and the answers to
    /// [`ToCoordinator::Relay`].
    pub fn has_operate(self) -> bool {
        self.0 & Self::OPERATE != 0
    }

    /// Whether it understands [`ToNode::Power`].
    pub fn has_power(self) -> bool {
        self.0 & Self::POWER != 0
    }
}

/// A segment that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pub name: SegmentName,
    pub bytes: u32,
}

/// Messages of a coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToNode {
    /// The answer to a hello, and again whenever something of it changes.
    Welcome {
        /// Whether this coordinator answers.
        is_active: bool,
        /// Of its term.
        epoch: u64,
        /// All nodes that are linked, at most [`MEMBERS_MAX`].
        members: Vec<CacheMember>,
    },
    Answer {
        /// To which question.
        ask: u64,
        answer: CoordinatorAnswer,
    },
    /// The answer to [`ToCoordinator::FindFile`].
    FileAnswer {
        /// To which question.
        ask: u64,
        answer: FileAnswer,
    },
    /// The status of the node's replica of each segment of a tail, in its order.
    Tail {
        /// As they were asked.
        names: Vec<SegmentName>,
        /// Of each.
        replica_statuses: Vec<ReplicaStatus>,
        /// The node with most room, if any node but the asker has room.
        roomiest: Option<MemberId>,
    },
    /// Purges to apply and acknowledge: all known ones before the first
    /// welcome, and each new one.
    Purges(PurgeNews),
    /// The answer to [`ToCoordinator::AmInStep`]: all earlier messages have been
    /// sent.
    /// told.
    InStep {
        /// To which question.
        question: u64,
    },
    /// What the node may use of the servers of its pools; the others stay as they are.
    Slots {
        /// Rises by 1 with each such message on a link, from 1.
        number: u64,
        /// At most [`SLOT_SERVERS_MAX`].
        grants: Vec<SlotGrant>,
    },
    /// As [`Self::Purges`], of soft purges. A node without [`NodeFeatures::has_soft_purges`] gets
    /// them as [`Self::Purges`].
    SoftPurges(PurgeNews),
    /// Why does the node keep what this asks for, or why not? Only to nodes with
    /// [`NodeFeatures::has_explain`].
    Explain {
        /// Comes back with the answer.
        question: u64,
        request: ExplainRequest,
    },
    /// An operator wants to see the node's pools. Only to nodes with [`NodeFeatures::has_status`].
    AskStatus {
        /// Comes back with the answer.
        question: u64,
    },
    /// Orders about servers of pools that the coordinator knows: all of them before the first welcome, be there any
    /// or not, and each new one. At most [`SERVER_ORDERS_MAX`]. Only to nodes with [`NodeFeatures::has_operate`].
    ServerOrders(Vec<ServerOrder>),
    /// An operator asks. Only to nodes with [`NodeFeatures::has_operate`].
    Ask {
        /// Comes back with the answer.
        question: u64,
        what: NodeQuestion,
    },
    /// What a node has said to [`ToCoordinator::Relay`].
    Relayed { ask: u64, node: Name, answer: RelayedAnswer },
    /// All nodes have answered, or their time is over.
    RelayEnd { ask: u64 },
    /// Requests that all other nodes together have at servers that this one counts, without those where they have
    /// none; whenever that changes.
    ServerLoads(Vec<ServerLoad>),
    /// Whether this dispatcher wants the node off: it is, while all coordinators that are linked say so. At the first
    /// such wish, and at each change. Only to nodes with [`NodeFeatures::has_power`].
    Power { is_off: bool },
}

impl ToCoordinator {
    /// Purges of this kind.
    pub fn purges((kind, news): (PurgeKind, PurgeNews)) -> Self {
        match kind {
            PurgeKind::Hard => Self::Purges(news),
            PurgeKind::Soft => Self::SoftPurges(news),
        }
    }
}

impl ToNode {
    /// Purges of this kind, for a node that understands these messages. One that knows no soft purge
    /// takes them for hard ones: it does more than it has to, and ignores none.
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
    /// The replica that stays while the others may be evicted: sent to one holder.
    Primary {
        /// The holder that is to keep its replica if this one goes.
        successor: MemberId,
    },
    /// A replica beside the primary one.
    Redundant,
}

impl ReplicaStatus {
    /// The holder that is to keep the segment if this node does not.
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
    /// Where it serves other nodes.
    pub address: SocketAddr,
}

/// Where a segment is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CoordinatorAnswer {
    /// These hold it; the less loaded first; 1 to [`HOLDERS_TOLD_MAX`].
    Have { holders: Vec<MemberId> },
    /// This node fills it; stream from it.
    Busy { leader: MemberId },
    /// No node holds it: fill it from its origin.
    Grant {
        /// Under this lease.
        lease: LeaseId,
    },
    /// No known node holds it, but not all nodes have sent their inventory yet:
    /// ask again, in a moment.
    Later,
    /// The coordinator has no room for another lease or is not active: do
    /// as if it were silent.
    Refused,
}

/// Which nodes have a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileAnswer {
    /// These do; the less loaded first; 1 to [`HOLDERS_TOLD_MAX`].
    Have { holders: Vec<MemberId> },
    /// None: all nodes have announced all that they have.
    Nobody,
    /// No linked node is known to have it, but these may have it: their announcement is not
    /// complete, or they had it and have just been lost.
    Unsure {
        /// At most [`POSSIBLE_HOLDERS_MAX`].
        nodes: Vec<PossibleHolder>,
        /// Whether no other node may have it.
        are_all: bool,
    },
    /// The coordinator is not active: do as if it were silent.
    Refused,
}

/// A node that may have a file. It may have no link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PossibleHolder {
    pub name: Name,
    /// Where it serves other nodes.
    pub address: SocketAddr,
}

macro_rules! payload {
    ($message:ty) => {
        impl $message {
            /// Its bytes.
            pub fn encode(&self) -> Vec<u8> {
                crate::cache::link::encode(self)
            }

            /// The message that is `bytes`, all of them.
            ///
            /// # Errors
            /// Bytes that are no such message, or one beyond its bounds.
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
