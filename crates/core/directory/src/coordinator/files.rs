//! The nodes that have each file and folder of partitioned folders, as the nodes announce them.
//!
//! A segment that is missing here costs one more fill, but a file that no node has is reported to
//! clients as not existing. So files have their own bound, and no entry is dropped to keep it;
//! the announcements of a node whose link has ended are kept for a while; and the answer is
//! "nobody" only if no other node may have the file.
//! A node may have any file until it has announced all of them on its current link. The
//! announcements of its previous link are kept until then, so that a short loss changes nothing.

use std::net::SocketAddr;

use skep_units::Now;
use skep_wire::cache::{PossibleHolder, SegmentName};
use skep_wire::limits::{MEMBERS_MAX, POSSIBLE_HOLDERS_MAX};
use skep_wire::message::Name;

use super::directory::Directory;
use super::holders::Holder;
use crate::node_link::NodeLinkId;

#[derive(Debug)]
pub(crate) struct Files {
    directory: Directory,
    nodes: Vec<FileNode>,
    lost_node_ms: u64,
    /// Announcements that were refused for lack of room.
    refused: u64,
}

/// The holders of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FoundFile {
    /// These linked nodes, at least one.
    At(Vec<NodeLinkId>),
    /// No linked node is known to have it; these may. If empty, no node has it.
    Perhaps {
        /// At most [`POSSIBLE_HOLDERS_MAX`].
        nodes: Vec<PossibleHolder>,
        /// Whether the list is complete.
        are_all: bool,
    },
}

/// A node that is linked, or was until recently.
#[derive(Debug)]
struct FileNode {
    name: Name,
    address: SocketAddr,
    presence: Presence,
    /// The number under which the directory lists its announcements.
    announced: Holder,
    /// The number of the announcements of its previous link, until it has announced everything
    /// again.
    before: Option<Holder>,
    /// Whether it has announced all that it has.
    is_complete: bool,
    /// Whether announcements of this node were refused for lack of room: it may have more files
    /// than listed.
    has_overflowed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Linked(NodeLinkId),
    Lost { since: Now },
}

impl Files {
    pub(crate) fn new(files_max: usize, lost_node_ms: u64) -> Self {
        Self { directory: Directory::new(files_max), nodes: Vec::new(), lost_node_ms, refused: 0 }
    }

    /// A node has linked; it has announced nothing on this link yet.
    pub(crate) fn joined(&mut self, link: NodeLinkId, name: Name, address: SocketAddr) {
        let place = self.nodes.iter().position(|node| node.name == name);
        let known = place.map(|place| self.nodes.swap_remove(place));
        let before = known.and_then(|known| self.kept(known));
        let announced = self.directory.new_holder();
        self.nodes.push(FileNode {
            name,
            address,
            presence: Presence::Linked(link),
            announced,
            before,
            is_complete: false,
            has_overflowed: false,
        });
    }

    /// A link has ended.
    pub(crate) fn left(&mut self, now: Now, link: NodeLinkId) {
        if let Some(node) = self.nodes.iter_mut().find(|node| node.is_at(link)) {
            node.presence = Presence::Lost { since: now };
        }
        let lost = self.nodes.iter().filter(|node| node.lost_since().is_some());
        if lost.clone().count() > MEMBERS_MAX
            && let Some(since) = lost.filter_map(FileNode::lost_since).min()
        {
            self.forget_lost(|lost| lost <= since);
        }
    }

    /// A node has announced files that were added and removed.
    pub(crate) fn announced(
        &mut self,
        link: NodeLinkId,
        added: &[SegmentName],
        removed: &[SegmentName],
        is_complete: bool,
    ) {
        let Some(node) = self.nodes.iter_mut().find(|node| node.is_at(link)) else { return };
        for name in added {
            if !self.directory.add_if_room(*name, 0, node.announced) {
                node.has_overflowed = true;
                self.refused += 1;
            }
        }
        for name in removed {
            self.directory.remove(name, node.announced);
            node.before.map(|before| self.directory.remove(name, before));
        }
        node.is_complete = is_complete && !node.has_overflowed;
        if is_complete && let Some(before) = node.before.take() {
            self.directory.retire(before);
        }
    }

    /// Removes a file that a node turned out not to have; returns whether it was listed.
    pub(crate) fn remove(&mut self, name: &SegmentName, link: NodeLinkId) -> bool {
        let Some(node) = self.nodes.iter().find(|node| node.is_at(link)) else { return false };
        let numbers = [Some(node.announced), node.before].into_iter().flatten();
        numbers.fold(false, |was_listed, it| self.directory.remove(name, it) | was_listed)
    }

    /// The nodes that have a file, other than the asking one.
    pub(crate) fn find(&self, name: &SegmentName, asker: NodeLinkId) -> FoundFile {
        let others = || self.nodes.iter().filter(|node| !node.is_at(asker));
        let listed: Vec<Holder> = self.directory.holders(name).collect();
        let has = |node: &FileNode| listed.iter().any(|it| node.numbers().any(|its| its == *it));
        let linked: Vec<_> = others().filter(|node| has(node)).filter_map(FileNode::link).collect();
        if !linked.is_empty() {
            return FoundFile::At(linked);
        }
        let may_have = |node: &&FileNode| !node.is_complete || has(node);
        let possible =
            |node: &FileNode| PossibleHolder { name: node.name.clone(), address: node.address };
        let mut nodes: Vec<_> =
            others().filter(may_have).map(possible).take(POSSIBLE_HOLDERS_MAX + 1).collect();
        let are_all = nodes.len() <= POSSIBLE_HOLDERS_MAX;
        nodes.truncate(POSSIBLE_HOLDERS_MAX);
        FoundFile::Perhaps { nodes, are_all }
    }

    /// Forgets the files of nodes that were lost too long ago, and sweeps.
    pub(crate) fn tick(&mut self, now: Now, sweeps: usize) {
        let lost_node_ms = self.lost_node_ms;
        self.forget_lost(|since| now.since_ms(since) >= lost_node_ms);
        (0..sweeps).for_each(|_| self.directory.sweep());
    }

    /// The links of nodes that are linked.
    pub(crate) fn links(&self) -> impl Iterator<Item = NodeLinkId> {
        self.nodes.iter().filter_map(FileNode::link)
    }

    /// The sum over all files of the nodes that announced them, including those still to be swept.
    pub(crate) fn holdings(&self) -> usize {
        self.directory.holdings()
    }

    /// Nodes that are linked or were until recently.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Linked nodes with files that may not be known, plus lost nodes.
    pub(crate) fn nodes_unsure(&self) -> usize {
        self.nodes.iter().filter(|node| !node.is_complete || node.link().is_none()).count()
    }

    /// Files and folders that at least one node has announced.
    pub(crate) fn files(&self) -> usize {
        self.directory.entries()
    }

    /// Announcements that were refused for lack of room.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.directory.memory_bytes() + self.nodes.capacity() * size_of::<FileNode>()
    }

    fn forget_lost(&mut self, is_over: impl Fn(Now) -> bool) {
        let is_out = |node: &mut FileNode| node.lost_since().is_some_and(&is_over);
        for node in self.nodes.extract_if(.., is_out) {
            node.numbers().for_each(|number| self.directory.retire(number));
        }
    }

    /// The previous announcements of a node that links again: the last complete list, if there is
    /// one. Retires the other numbers.
    fn kept(&mut self, known: FileNode) -> Option<Holder> {
        let kept = if known.is_complete { Some(known.announced) } else { known.before };
        let rest = known.numbers().filter(|number| Some(*number) != kept);
        rest.for_each(|number| self.directory.retire(number));
        kept
    }
}

impl FileNode {
    fn is_at(&self, link: NodeLinkId) -> bool {
        self.presence == Presence::Linked(link)
    }

    fn link(&self) -> Option<NodeLinkId> {
        match self.presence {
            Presence::Linked(link) => Some(link),
            Presence::Lost { .. } => None,
        }
    }

    fn lost_since(&self) -> Option<Now> {
        match self.presence {
            Presence::Lost { since } => Some(since),
            Presence::Linked(_) => None,
        }
    }

    /// The numbers of its current and previous announcements.
    fn numbers(&self) -> impl Iterator<Item = Holder> + use<> {
        [Some(self.announced), self.before].into_iter().flatten()
    }
}
