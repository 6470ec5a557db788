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
use crate::model::pools::Pools;

/// This node's slots of all servers.
pub(super) struct Slots {
    pools: Arc<Pools>,
    holders: BTreeMap<ServerKey, Server>,
}

struct Server {
    group: Arc<Group>,
    name: String,
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

    /// Looks at the servers that there are, and applies the limits that follow.
    fn look(&mut self, epoch: Option<u64>) -> Vec<SlotUse> {
        let now = Now(monotonic_ms());
        let mut known = std::mem::take(&mut self.holders);
        for (group, shares) in self.pools.counted() {
            for member in group.slots() {
                let Some(&share) = shares.get(&member.name) else { continue };
                let key = key(group.name(), &member.name);
                if self.holders.len() < SLOT_SERVERS_MAX {
                    let known = known.remove(&key).filter(|it| Arc::ptr_eq(&it.group, &group));
                    let server = known.unwrap_or_else(|| Server {
                        group: Arc::clone(&group),
                        name: member.name.clone(),
                        holder: SlotHolder::new(now, member.requests_max, share),
                    });
                    self.holders.insert(key, server.at(now, epoch, share, &member));
                }
            }
        }
        self.holders.iter().map(|(&key, server)| server.holder.report(key)).collect()
    }

    fn granted(&mut self, grants: &[SlotGrant]) {
        for grant in grants {
            if let Some(server) = self.holders.get_mut(&grant.server) {
                server.holder.granted(grant.slots);
                server.group.set_slots(&server.name, server.holder.limit());
            }
        }
    }
}

impl Server {
    fn at(mut self, now: Now, epoch: Option<u64>, share: u32, member: &MemberSlots) -> Self {
        self.holder.set_bounds(member.requests_max, share);
        self.holder.look(now, epoch, member.in_use, member.waiting);
        if self.holder.limit() != member.slots {
            self.group.set_slots(&self.name, self.holder.limit());
        }
        self
    }
}

impl CoordinatorLinks {
    /// Tells coordinators what has changed.
    pub(super) fn tell_slots(&mut self, outbox: &mut Outbox<ToCoordinator>) {
        let active = self.active();
        // After a pause it is not known yet whether the coordinator has given this node up.
        let known = active.filter(|_| !self.pause.is_in_doubt());
        let epoch = known.and_then(|link| self.links.get(&link)?.active_in);
        let servers = self.slots.look(epoch);
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
        if self.active() == Some(link) {
            self.slots.granted(grants);
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
