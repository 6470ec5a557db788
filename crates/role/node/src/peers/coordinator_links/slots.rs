//! Requests at servers of pools, counted for all nodes together: reports how many this node has and needs,
//! applies the limits that the coordinator grants, and passes the requests of other nodes to the policies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use skep_directory::SlotHolder;
use skep_peer::stream::{LinkId, Outbox};
use skep_proxy::{Group, MemberLoad, MemberSlots};
use skep_serve::monotonic_ms;
use skep_units::Now;
use skep_wire::cache::{ServerKey, ServerLoad, SlotGrant, SlotReport, SlotUse, ToCoordinator};
use skep_wire::limits::SLOT_SERVERS_MAX;

use super::CoordinatorLinks;
use crate::model::pools::{Counting, Pools};

/// This node's slots of all servers.
pub(super) struct Slots {
    pools: Arc<Pools>,
    servers: BTreeMap<ServerKey, Server>,
    /// Groups of pools, including those removed by reloads: requests may still wait there.
    groups: Vec<Weak<Group>>,
}

/// A server of pools. Its members share the node's limit; there are several while a reload replaces one by
/// another.
struct Server {
    holder: SlotHolder,
    /// Requests of its members, and of members that were removed.
    loads: Vec<MemberLoad>,
    /// The sum of these at the last check.
    in_use: u32,
}

/// A member that may begin requests at a server.
struct CountedMember {
    group: Arc<Group>,
    slots: MemberSlots,
    /// The node's share of the server; `None`: the member is being removed.
    share: Option<u32>,
}

type CountedMembers = BTreeMap<ServerKey, Vec<CountedMember>>;

/// What was reported to a coordinator, and received from it.
#[derive(Default)]
pub(super) struct ReportedSlots {
    acknowledged: u64,
    told: Option<SlotReport>,
    loads: Vec<ServerLoad>,
    /// Requests of other nodes at servers. They are reported only on changes, so those from a coordinator
    /// that is not followed yet are stored, too.
    elsewhere: BTreeMap<ServerKey, u32>,
}

impl Slots {
    pub(super) fn new(pools: Arc<Pools>) -> Self {
        Self { pools, servers: BTreeMap::new(), groups: Vec::new() }
    }

    /// Checks all servers, applies the limits that follow and the requests of other nodes, and returns the
    /// reports for coordinators.
    fn look(
        &mut self,
        followed: Option<LinkId>,
        elsewhere: Option<&BTreeMap<ServerKey, u32>>,
    ) -> Vec<SlotUse> {
        let now = Now(monotonic_ms());
        let counted = self.counted();
        let loads: Vec<_> = counted.values().flatten().map(|it| it.slots.load.clone()).collect();
        let mut known = std::mem::take(&mut self.servers);
        let mut reports = Vec::new();
        for (key, members) in counted {
            let mut server = known.remove(&key).unwrap_or_else(|| Server::new(now));
            server.look(now, followed, &members, &loads);
            let requests = elsewhere.and_then(|loads| loads.get(&key)).copied().unwrap_or(0);
            members.iter().for_each(|it| it.set_elsewhere(requests));
            reports.push(server.holder.report(key));
            self.servers.insert(key, server);
        }
        // Servers that are no longer counted are reported until they have no requests.
        for (key, mut server) in known {
            let in_use = server.in_use_beside(&loads);
            server.in_use = in_use;
            if in_use > 0 {
                reports.push(server.holder.last_report(key, in_use));
                self.servers.insert(key, server);
            }
        }
        reports.sort_unstable_by_key(|report| report.server);
        reports
    }

    /// Returns the members per server, most recent last; members of servers not listed use the configured
    /// share.
    fn counted(&mut self) -> CountedMembers {
        let mut counted = CountedMembers::new();
        let pools = self.pools.counted();
        let groups = pools.iter().map(|(group, _)| Arc::downgrade(group)).collect();
        let before = std::mem::replace(&mut self.groups, groups);
        for group in before {
            if self.groups.iter().any(|it| it.ptr_eq(&group)) {
                continue;
            }
            if let Some(alive) = group.upgrade() {
                let slots = alive.slots().into_iter();
                slots.for_each(|slots| self.leaving(&alive, slots, &mut counted));
                self.groups.push(group);
            }
        }
        let mut current = Vec::new();
        let mut admitted: BTreeSet<_> = self.servers.keys().copied().collect();
        for (group, counting) in pools {
            for slots in group.slots() {
                match counting.get(&slots.name) {
                    Some(&Counting::OfCluster { key, share }) if admit(key, &mut admitted) => {
                        let (group, share) = (Arc::clone(&group), Some(share));
                        current.push((key, CountedMember { group, slots, share }));
                    }
                    Some(&Counting::OfCluster { share, .. } | &Counting::OfNode(share)) => {
                        set_alone(&group, &slots, share);
                    }
                    None => self.leaving(&group, slots, &mut counted),
                }
            }
        }
        for (key, member) in current {
            counted.entry(key).or_default().push(member);
        }
        counted
    }

    /// Adds a member that is no longer in the config.
    fn leaving(&self, group: &Arc<Group>, slots: MemberSlots, counted: &mut CountedMembers) {
        let server = self.servers.iter().find(|(_, server)| server.loads.contains(&slots.load));
        if let Some((&key, _)) = server {
            let member = CountedMember { group: Arc::clone(group), slots, share: None };
            counted.entry(key).or_default().push(member);
        }
    }

    /// Returns the requests of this node at each server.
    fn loads(&self) -> Vec<ServerLoad> {
        let used = self.servers.iter().filter(|(_, server)| server.in_use > 0);
        used.map(|(&server, it)| ServerLoad { server, requests: it.in_use }).collect()
    }

    fn granted(&mut self, grants: &[SlotGrant], by: LinkId) {
        for grant in grants {
            if let Some(server) = self.servers.get_mut(&grant.server) {
                server.holder.granted(grant.slots, by.0);
            }
        }
    }
}

impl Server {
    fn new(now: Now) -> Self {
        Self { holder: SlotHolder::new(now, 0, 0), loads: Vec::new(), in_use: 0 }
    }

    /// `all`: the loads of the members of all servers.
    fn look(
        &mut self,
        now: Now,
        followed: Option<LinkId>,
        members: &[CountedMember],
        all: &[MemberLoad],
    ) {
        let gone = self.in_use_beside(all);
        let in_use =
            |gone| members.iter().map(|it| it.slots.load.in_use()).fold(gone, u32::saturating_add);
        let waiting = members.iter().map(|it| it.slots.waiting).fold(0, u32::saturating_add);
        for CountedMember { slots, share, .. } in members {
            if let Some(share) = *share {
                self.holder.set_bounds(slots.requests_max, share);
            }
        }
        self.holder.look(now, followed.map(|link| link.0), in_use(gone), waiting);
        let mut left = self.holder.limit().saturating_sub(gone);
        for (place, CountedMember { group, slots, .. }) in members.iter().enumerate() {
            // Requests that wait at a member being removed came first.
            let can_use = slots.load.in_use().saturating_add(slots.waiting);
            let is_last = place + 1 == members.len();
            let may_use = if is_last { left } else { left.min(can_use) };
            set(group, slots, may_use);
            left = left.saturating_sub(may_use.max(slots.load.in_use()));
        }
        self.in_use = in_use(gone);
        self.holder.use_seen(self.in_use);
        self.loads.extend(members.iter().map(|it| it.slots.load.clone()));
    }

    /// Returns the requests of removed members. Forgets those without requests, or in `others`.
    fn in_use_beside(&mut self, others: &[MemberLoad]) -> u32 {
        self.loads.retain(|load| load.in_use() > 0 && !others.contains(load));
        self.loads.iter().map(MemberLoad::in_use).fold(0, u32::saturating_add)
    }
}

/// Whether `key` is one of the servers reported, whose number is limited by the size of a message.
fn admit(key: ServerKey, admitted: &mut BTreeSet<ServerKey>) -> bool {
    admitted.contains(&key) || (admitted.len() < SLOT_SERVERS_MAX && admitted.insert(key))
}

/// Sets the limit of a member whose requests this node counts on its own.
fn set_alone(group: &Group, member: &MemberSlots, slots: u32) {
    set(group, member, slots);
    if member.elsewhere != 0 {
        group.set_elsewhere(&member.name, 0);
    }
}

fn set(group: &Group, member: &MemberSlots, slots: u32) {
    if slots.min(member.requests_max) != member.slots {
        group.set_slots(&member.name, slots);
    }
}

impl CountedMember {
    fn set_elsewhere(&self, requests: u32) {
        if requests != self.slots.elsewhere {
            self.group.set_elsewhere(&self.slots.name, requests);
        }
    }
}

impl CoordinatorLinks {
    /// Reports changes to coordinators.
    pub(super) fn tell_slots(&mut self, outbox: &mut Outbox<ToCoordinator>) {
        let active = self.active();
        let coordinator = active.and_then(|link| self.links.get(&link));
        let elsewhere = coordinator.map(|it| &it.slots.elsewhere);
        // After a pause it is unknown whether the coordinator has given this node up.
        let followed = active.filter(|_| !self.pause.is_in_doubt());
        let servers = self.slots.look(followed, elsewhere);
        for (&link, coordinator) in &mut self.links {
            let of_link = &mut coordinator.slots;
            let report = SlotReport {
                acknowledged: of_link.acknowledged,
                is_followed: active == Some(link),
                servers: servers.clone(),
            };
            let is_first = of_link.told.is_none();
            if of_link.told.as_ref() == Some(&report) || (is_first && servers.is_empty()) {
                continue;
            }
            // A link with a full queue ends, and starts over.
            let _ = outbox.send(link, &ToCoordinator::Slots(report.clone()));
            of_link.told = Some(report);
        }
        let loads = self.slots.loads();
        for (&link, coordinator) in &mut self.links {
            if coordinator.operates && coordinator.slots.loads != loads {
                let _ = outbox.send(link, &ToCoordinator::ServerLoads(loads.clone()));
                coordinator.slots.loads.clone_from(&loads);
            }
        }
    }

    /// Stores a coordinator's report on the requests of other nodes; used while that coordinator is followed.
    pub(super) fn others_loaded(&mut self, link: LinkId, loads: &[ServerLoad]) {
        if let Some(coordinator) = self.links.get_mut(&link) {
            let loads = loads.iter().map(|it| (it.server, it.requests));
            coordinator.slots.elsewhere = loads.collect();
        }
    }

    /// Handles slots granted by a coordinator; they apply only if it is the one that is followed. Answers at
    /// once: slots that it has revoked are granted to others only after the answer.
    pub(super) fn granted(
        &mut self,
        link: LinkId,
        number: u64,
        grants: &[SlotGrant],
        outbox: &mut Outbox<ToCoordinator>,
    ) {
        // This may be the first thing that this thread does after a pause.
        self.look_for_pause(outbox);
        if self.active() == Some(link) {
            self.slots.granted(grants, link);
        }
        if let Some(coordinator) = self.links.get_mut(&link) {
            coordinator.slots.acknowledged = number;
        }
        self.tell_slots(outbox);
    }
}
