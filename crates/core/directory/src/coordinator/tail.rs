//! The segments that a node evicts next: which of them others hold, and which node has room for the rest.

use skep_units::SEGMENT_BYTES;
use skep_wire::cache::link::MemberId;
use skep_wire::cache::{ReplicaStatus, SegmentName, ToNode};

use super::Coordinator;
use super::members::Linked;
use crate::node_link::NodeLinkId;

impl Coordinator {
    pub(super) fn tail(&mut self, link: NodeLinkId, names: Vec<SegmentName>) {
        let replica_statuses = names.iter().map(|name| self.replica_status(link, name)).collect();
        let roomiest = self.roomiest(link);
        self.welcome(link);
        self.outbox.push((link, ToNode::Tail { names, replica_statuses, roomiest }));
    }

    /// The status of the replica that the node on this link holds. Of several holders the
    /// one that has held it longest has the primary one, so that they don't all let it go
    /// at once.
    fn replica_status(&self, link: NodeLinkId, name: &SegmentName) -> ReplicaStatus {
        let mut holders = self.holders(name);
        match (holders.next().is_none_or(|first| first == link.member), holders.next()) {
            (true, None) => ReplicaStatus::Sole,
            (true, Some(successor)) => ReplicaStatus::Primary { successor },
            (false, _) => ReplicaStatus::Redundant,
        }
    }

    /// The node with most bytes free; if none has room for a segment there, the node with most of what
    /// [`accepts`](crate::keep::accepts) counts: bytes that are free or in redundant replicas, which can be evicted.
    fn roomiest(&self, asker: NodeLinkId) -> Option<MemberId> {
        // One that is off keeps nothing.
        let keeps = |it: &&Linked| it.is_complete && it.capacity_bytes > 0;
        let others = self.members.iter().filter(|it| keeps(it) && it.link != asker);
        let room = |member: &&Linked| {
            let account = self.directory.account(member.holder);
            let free_bytes = member.capacity_bytes.saturating_sub(account.bytes);
            let has_segment_free = free_bytes >= SEGMENT_BYTES;
            (has_segment_free.then_some(free_bytes), free_bytes + account.redundant_bytes)
        };
        others.max_by_key(room).filter(|it| room(it).1 > 0).map(|it| it.link.member)
    }
}
