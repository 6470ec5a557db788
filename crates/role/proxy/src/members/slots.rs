//! The number of requests that this process may have at each member, if several processes count together.

use std::sync::Arc;

use crate::members::group::Group;
use crate::members::member::Load;

/// The use that this process makes, and could make, of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSlots {
    pub name: String,
    /// Bound on concurrent requests and tunnels of all processes.
    pub requests_max: u32,
    /// The part of that bound that this process may use now.
    pub slots: u32,
    /// Waiting requests that could use this member.
    pub waiting: u32,
    /// Requests of other processes there, as reported to policies.
    pub elsewhere: u32,
    pub load: MemberLoad,
}

/// Requests and tunnels of this process at a member, even after its removal. Two values are equal if they
/// count the same requests: a member that a reload puts at the address of another one takes over its load.
#[derive(Clone, Debug)]
pub struct MemberLoad(Arc<Load>);

impl MemberLoad {
    /// The current number.
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
    /// The use of each member by this process, oldest first. Requests that wait, or were refused since the
    /// last call, could use any member, so each gets its part of them.
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

    /// Allows this process `slots` requests at the member called `name` from now on. Those in progress
    /// continue.
    pub fn set_slots(&self, name: &str, slots: u32) {
        self.change(|state, _| {
            let id = state.membership.find(name).map(skep_cluster::Member::id);
            if let Some(details) = id.and_then(|id| state.details.get(&id)) {
                details.member.set_slots(slots);
            }
        });
        self.queue.look();
    }

    /// Sets the number of requests of other processes at the member called `name`: policies add them to those
    /// of this process.
    pub fn set_elsewhere(&self, name: &str, requests: u32) {
        self.change(|state, _| {
            let id = state.membership.find(name).map(skep_cluster::Member::id);
            if let Some(details) = id.and_then(|id| state.details.get(&id)) {
                details.member.set_elsewhere(requests);
            }
        });
    }
}
