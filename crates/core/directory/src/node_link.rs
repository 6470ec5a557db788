//! The link of a node with a coordinator, as both of its parts know it: the directory and the slots.

use skep_wire::cache::link::MemberId;

/// One link of one node; no two links in the life of a coordinator are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeLinkId {
    pub(crate) number: u64,
    pub(crate) member: MemberId,
}

impl NodeLinkId {
    /// The number that nodes know it by.
    pub fn member(self) -> MemberId {
        self.member
    }
}
