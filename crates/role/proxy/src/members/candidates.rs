//! The part of a group's state that direct dispatch reads: the same members, drains, weights and
//! policies as for proxied requests.

use std::net::SocketAddr;
use std::sync::Arc;

use skep_cluster::HealthState;

use crate::members::group::Group;

/// A member, with the values that direct dispatch needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub name: Arc<str>,
    /// The address at which it serves.
    pub address: SocketAddr,
    /// Its weight relative to the other members.
    pub weight: u32,
    /// The packets that may be sent to it.
    pub openness: Openness,
}

/// The packets that may be sent to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Openness {
    /// New flows.
    Open,
    /// Packets of existing flows only: an operator drains or removes it.
    Closing,
    /// Packets of existing flows only: it shuts down, as its responses to checks state.
    Leaving,
    /// None: its checks fail.
    Shut,
    /// Not checked yet: a caller with other evidence that it is alive may treat it as open.
    Unknown,
}

impl Group {
    /// The members, with the packets that may be sent to each, oldest first.
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
