//! The nodes with a link.
//!
//! Invariant: a name has at most one link; numbers are dense and reused.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use skep_units::Now;
use skep_wire::cache::CacheMember;
use skep_wire::cache::link::MemberId;
use skep_wire::limits::MEMBERS_MAX;
use skep_wire::message::Name;

use super::Hello;
use super::holders::Holder;
use crate::node_link::NodeLinkId;

/// A linked node.
#[derive(Debug)]
pub(crate) struct Linked {
    pub(crate) link: NodeLinkId,
    pub(crate) name: Name,
    pub(crate) address: SocketAddr,
    pub(crate) capacity_bytes: u64,
    /// The number under which the directory lists its holdings.
    pub(crate) holder: Holder,
    /// Whether its inventory is complete.
    pub(crate) is_complete: bool,
    /// The value of the coordinator's change counter at the last `Welcome` sent to it.
    pub(crate) told: u64,
    /// Bytes that it had to send according to its last report, and the time of the report.
    pub(crate) reported: Option<(u64, Now)>,
    /// Bytes that other nodes were directed to fetch from it since.
    pub(crate) assigned_bytes: u64,
}

impl Linked {
    pub(crate) fn bytes_outstanding(&self) -> u64 {
        let reported_bytes = self.reported.map_or(0, |(bytes, _)| bytes);
        reported_bytes.saturating_add(self.assigned_bytes)
    }

    /// Ages the load at a tick. Of a node whose report is too old or missing, only the assigned
    /// bytes count, and they halve at each tick, since they are being sent meanwhile.
    pub(crate) fn age_load(&mut self, now: Now, load_ms_max: u64) {
        self.reported = self.reported.filter(|(_, at)| now.since_ms(*at) <= load_ms_max);
        if self.reported.is_none() {
            self.assigned_bytes /= 2;
        }
    }
}

/// All linked nodes, by member number.
#[derive(Debug, Default)]
pub(crate) struct Members {
    by_id: Vec<Option<Linked>>,
    /// The member with each holder number of the directory.
    by_holder: Vec<Option<MemberId>>,
    links: u64,
}

impl Members {
    /// Adds a linked node; `None` if there are too many.
    pub(crate) fn add(&mut self, hello: Hello, holder: Holder) -> Option<NodeLinkId> {
        let free = self.by_id.iter().position(Option::is_none);
        let place = free.unwrap_or(self.by_id.len());
        if place >= MEMBERS_MAX {
            return None;
        }
        self.links += 1;
        let link = NodeLinkId { member: place as MemberId, number: self.links };
        let linked = Linked {
            link,
            name: hello.name,
            address: hello.address,
            capacity_bytes: hello.capacity_bytes,
            holder,
            is_complete: false,
            told: 0,
            reported: None,
            assigned_bytes: 0,
        };
        if free.is_none() {
            self.by_id.push(None);
        }
        self.by_id[place] = Some(linked);
        self.set_holder(holder, Some(link.member));
        Some(link)
    }

    /// Removes the member of a link that has ended.
    pub(crate) fn remove(&mut self, link: NodeLinkId) -> Option<Linked> {
        self.get(link)?;
        let linked = self.by_id[usize::from(link.member)].take()?;
        self.set_holder(linked.holder, None);
        Some(linked)
    }

    /// Assigns a new holder number to its holdings; returns the previous one.
    pub(crate) fn renumber(&mut self, link: NodeLinkId, holder: Holder) -> Option<Holder> {
        let linked = self.get_mut(link)?;
        let before = std::mem::replace(&mut linked.holder, holder);
        self.set_holder(before, None);
        self.set_holder(holder, Some(link.member));
        Some(before)
    }

    pub(crate) fn get(&self, link: NodeLinkId) -> Option<&Linked> {
        self.at(link.member).filter(|linked| linked.link == link)
    }

    pub(crate) fn get_mut(&mut self, link: NodeLinkId) -> Option<&mut Linked> {
        let linked = self.by_id.get_mut(usize::from(link.member))?.as_mut();
        linked.filter(|linked| linked.link == link)
    }

    pub(crate) fn at(&self, id: MemberId) -> Option<&Linked> {
        self.by_id.get(usize::from(id))?.as_ref()
    }

    pub(crate) fn at_mut(&mut self, id: MemberId) -> Option<&mut Linked> {
        self.by_id.get_mut(usize::from(id))?.as_mut()
    }

    /// The member with this number in the directory.
    pub(crate) fn of_holder(&self, holder: Holder) -> Option<&Linked> {
        self.at((*self.by_holder.get(usize::from(holder))?)?)
    }

    pub(crate) fn link_of(&self, name: &Name) -> Option<NodeLinkId> {
        self.iter().find(|linked| linked.name == *name).map(|linked| linked.link)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Linked> {
        self.by_id.iter().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Linked> {
        self.by_id.iter_mut().flatten()
    }

    /// The list of members, as sent to nodes in a `Welcome`.
    pub(crate) fn told(&self) -> Vec<CacheMember> {
        let member = |linked: &Linked| CacheMember {
            id: linked.link.member,
            name: linked.name.clone(),
            address: linked.address,
        };
        self.iter().map(member).collect()
    }

    /// Checks the invariants; `changes` is the number of changes of the list so far.
    pub(crate) fn check_invariants(&self, changes: u64) {
        let names: BTreeSet<&Name> = self.iter().map(|linked| &linked.name).collect();
        debug_assert_eq!(names.len(), self.iter().count(), "a name has two links: {self:?}");
        for (place, linked) in self.by_id.iter().enumerate() {
            let Some(linked) = linked else { continue };
            debug_assert_eq!(usize::from(linked.link.member), place, "{linked:?}");
            debug_assert_eq!(
                self.of_holder(linked.holder).map(|it| it.link),
                Some(linked.link),
                "its holdings are another's"
            );
            debug_assert!(linked.told <= changes, "it knows of changes to come: {linked:?}");
        }
        let holders = self.by_holder.iter().flatten().count();
        debug_assert_eq!(holders, names.len(), "holdings of who is not linked: {self:?}");
    }

    fn set_holder(&mut self, holder: Holder, member: Option<MemberId>) {
        let place = usize::from(holder);
        if self.by_holder.len() <= place {
            self.by_holder.resize(place + 1, None);
        }
        self.by_holder[place] = member;
    }
}
