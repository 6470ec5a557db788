//! How many requests this process may have at each member, where several processes count together.

use std::sync::Arc;

use crate::members::group::Group;
use crate::members::member::Load;

/// What this process has, and could use, at a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSlots {
    pub name: String,
    /// Requests and tunnels that all processes have there at a time, at most.
    pub requests_max: u32,
    /// Of these, how many this process may have now.
    pub slots: u32,
    /// Requests that wait, and would take this member.
    pub waiting: u32,
    /// Requests that other processes have there, as policies are told.
    pub elsewhere: u32,
    pub load: MemberLoad,
}

/// Requests and tunnels of this process at a member, even after it has been removed. Equal is what counts the
/// same ones: a member of another name at the same address, which a reload put in the place of one, has its.
#[derive(Clone, Debug)]
pub struct MemberLoad(Arc<Load>);

impl MemberLoad {
    /// How many there are now.
    pub fn in_use(&self) -> u32 {
        u32::try_from(self.0.in_use()).unwrap_or(u32::MAX)
    }
}

impl PartialEq for MemberLoad {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for MemberLoad {}

impl Group {
    /// What this process has and could use of each member, the oldest first. Requests that wait, or were
    /// refused since the last call, take any member, so each has its part of them.
    pub fn slots(&self) -> Vec<MemberSlots> {
        let refused = self.queue.take_refused();
        let waiting = self.queue.waiting() as u64 + refused;
        let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        self.change(|state, _| {
            let members = state.membership.members();
            let takers = members.iter().filter_map(|it| state.details.get(&it.id()));
            let takers = takers.filter(|it| it.member.keeps_sessions()).count();
            let part = waiting.div_ceil(u32::try_from(takers.max(1)).unwrap_or(u32::MAX));
            let slots = |member: &skep_cluster::Member| {
                let shared = &state.details.get(&member.id())?.member;
                Some(MemberSlots {
                    name: member.name().to_string(),
                    requests_max: shared.requests_max(),
                    slots: shared.slots(),
                    waiting: if shared.keeps_sessions() { part } else { 0 },
                    elsewhere: shared.elsewhere(),
                    load: MemberLoad(Arc::clone(&shared.load)),
                })
            };
            members.iter().filter_map(slots).collect()
        })
    }

    /// This process may have `slots` requests at the member called `name` from now on. Those that it has
    /// go on.
    pub fn set_slots(&self, name: &str, slots: u32) {
        self.change(|state, _| {
            let id = state.membership.find(name).map(skep_cluster::Member::id);
            if let Some(details) = id.and_then(|id| state.details.get(&id)) {
                details.member.set_slots(slots);
            }
        });
        self.queue.look();
    }

    /// Other processes have so many requests at the member called `name`: policies add them to this one's.
    pub fn set_elsewhere(&self, name: &str, requests: u32) {
        self.change(|state, _| {
            let id = state.membership.find(name).map(skep_cluster::Member::id);
            if let Some(details) = id.and_then(|id| state.details.get(&id)) {
                details.member.set_elsewhere(requests);
            }
        });
    }
}
