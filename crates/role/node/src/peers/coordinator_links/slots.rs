//! Requests at servers of pools that all nodes count together: reports what this node uses and
//! wants, and applies what the coordinator grants.

use std::collections::BTreeMap;
use std::sync::Arc;

use skep_directory::SlotHolder;
use skep_peer::stream::{LinkId, Outbox};
use skep_proxy::{Group, MemberSlots};
use skep_serve::monotonic_ms;
use skep_units::{Now, stable_hash};
use skep_wire::cache::{ServerKey, SlotGrant, SlotReport, SlotUse, ToCoordinator};
use skep_wire::limits::SLOT_SERVERS_MAX;

use super::CoordinatorLinks;
use crate::model::pools::{Counting, Pools};

/// This node's slots of all servers.
pub(super) struct Slots {
    pools: Arc<Pools>,
    holders: BTreeMap<ServerKey, Server>,
}

struct Server {
    group: Arc<Group>,
    holder: SlotHolder,
}

/// What a coordinator has been told, and has told.
#[derive(Default)]
pub(super) struct ReportedSlots {
    acknowledged: u64,
    told: Option<SlotReport>,
}

impl Slots {
    pub(super) fn new(pools: Arc<Pools>) -> Self {
        Self { pools, holders: BTreeMap::new() }
    }

    /// Looks at the servers that there are, applies the limits that follow, and returns what is to be
    /// reported.
    fn look(&mut self, followed: Option<LinkId>) -> Vec<SlotUse> {
        let now = Now(monotonic_ms());
        let mut known = std::mem::take(&mut self.holders);
        let mut reports = Vec::new();
        for (group, counting) in self.pools.counted() {
            for member in group.slots() {
                let key = key(group.name(), &member.name);
                let known = known.remove(&key).filter(|it| Arc::ptr_eq(&it.group, &group));
                let has_room = self.holders.len() < SLOT_SERVERS_MAX;
                match counting.get(&member.name) {
                    Some(&Counting::OfCluster(share)) if has_room => {
                        let server =
                            known.unwrap_or_else(|| Server::new(now, &group, &member, share));
                        let server = server.at(now, followed, share, &member);
                        reports.push(server.holder.report(key));
                        self.holders.insert(key, server);
                    }
                    Some(&Counting::OfCluster(slots) | &Counting::OfNode(slots)) => {
                        set(&group, &member, slots);
                        self.end(key, known, &member, &mut reports);
                    }
                    None => self.end(key, known, &member, &mut reports),
                }
            }
        }
        reports.sort_unstable_by_key(|report| report.server);
        reports
    }

    /// A server is not counted any more: coordinators hear of it until it is not used, either.
    fn end(
        &mut self,
        key: ServerKey,
        known: Option<Server>,
        member: &MemberSlots,
        reports: &mut Vec<SlotUse>,
    ) {
        if let Some(server) = known.filter(|_| member.in_use > 0) {
            reports.push(server.holder.last_report(key, member.in_use));
            self.holders.insert(key, server);
        }
    }

    fn granted(&mut self, grants: &[SlotGrant], by: LinkId) {
        for grant in grants {
            if let Some(server) = self.holders.get_mut(&grant.server) {
                server.holder.granted(grant.slots, by.0);
            }
        }
    }
}

impl Server {
    fn new(now: Now, group: &Arc<Group>, member: &MemberSlots, share: u32) -> Self {
        let holder = SlotHolder::new(now, member.requests_max, share);
        Self { group: Arc::clone(group), holder }
    }

    fn at(mut self, now: Now, followed: Option<LinkId>, share: u32, member: &MemberSlots) -> Self {
        self.holder.set_bounds(member.requests_max, share);
        self.holder.look(now, followed.map(|link| link.0), member.in_use, member.waiting);
        set(&self.group, member, self.holder.limit());
        self
    }
}

fn set(group: &Group, member: &MemberSlots, slots: u32) {
    if slots.min(member.requests_max) != member.slots {
        group.set_slots(&member.name, slots);
    }
}

impl CoordinatorLinks {
    /// Tells coordinators what has changed.
    pub(super) fn tell_slots(&mut self, outbox: &mut Outbox<ToCoordinator>) {
        let active = self.active();
        // After a pause it is not known yet whether the coordinator has given this node up.
        let servers = self.slots.look(active.filter(|_| !self.pause.is_in_doubt()));
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
            // A link that takes no more ends, and begins anew.
            let _ = outbox.send(link, &ToCoordinator::Slots(report.clone()));
            of_link.told = Some(report);
        }
    }

    /// A coordinator grants slots: they count if it is the one that is followed. The answer is due at once:
    /// what it has taken away goes to others only then.
    pub(super) fn granted(
        &mut self,
        link: LinkId,
        number: u64,
        grants: &[SlotGrant],
        outbox: &mut Outbox<ToCoordinator>,
    ) {
        // It may be the first that this thread does after a pause.
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

fn key(pool: &str, server: &str) -> ServerKey {
    ServerKey(stable_hash(server.as_bytes(), stable_hash(pool.as_bytes(), 0)))
}
