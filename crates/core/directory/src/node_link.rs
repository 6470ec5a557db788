//! The link between a node and a coordinator, as identified in the directory and the slots.

use skep_wire::cache::link::MemberId;

/// One link of one node; no two links of a coordinator's lifetime are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeLinkId {
    pub(crate) number: u64,
    pub(crate) member: MemberId,
}

impl NodeLinkId {
    /// The number by which nodes identify the member.
    pub fn member(self) -> MemberId {
        self.member
    }
}
