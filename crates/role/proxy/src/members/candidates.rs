//! What direct dispatch reads from a group's state: the same members, drains, weights and policies
//! as where requests are passed on.

use std::net::SocketAddr;
use std::sync::Arc;

use skep_cluster::HealthState;

use crate::members::group::Group;

/// A member, as direct dispatch needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub name: Arc<str>,
    /// Where it serves.
    pub address: SocketAddr,
    /// Its share against the others'.
    pub weight: u32,
    /// The packets that it may get.
    pub openness: Openness,
}

/// The packets that a member may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Openness {
    /// New flows.
    Open,
    /// Packets of its existing flows: an operator drains or removes it.
    Closing,
    /// Packets of its existing flows: it shuts down, as its answers to the checks say.
    Leaving,
    /// Nothing: its checks fail.
    Shut,
    /// Not checked yet: a caller with other evidence that it is alive may treat it as open.
    Unknown,
}

impl Group {
    /// The members with what packets they may get, the oldest first.
    pub fn candidates(&self) -> Vec<Candidate> {
        self.change(|state, _| {
            let candidate = |member: &skep_cluster::Member| {
                let details = state.details.get(&member.id())?;
                let is_removed = member.removal_deadline().is_some();
                Some(Candidate {
                    name: Arc::clone(member.name()),
                    address: member.address().tcp()?,
                    weight: member.weight(),
                    openness: match member.health().state() {
                        HealthState::Down { .. } => Openness::Shut,
                        HealthState::Draining | HealthState::Drained => Openness::Closing,
                        HealthState::Up | HealthState::Joining if is_removed => Openness::Closing,
                        HealthState::Up | HealthState::Joining if details.announces_drain => {
                            Openness::Leaving
                        }
                        HealthState::Up => Openness::Open,
                        HealthState::Joining => Openness::Unknown,
                    },
                })
            };
            state.membership.members().iter().filter_map(candidate).collect()
        })
    }
}
