//! What direct dispatch takes from a service's state and gives to it: the same
//! nodes, drains, weights and policies, whoever forwards the bytes.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;

use skep_cluster::{Failure, State as Life};
use skep_wire::message::NodeLoad;

use crate::dispatcher::Dispatcher;
use crate::state::Details;

/// A node of a service, as far as packets to it are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Where it serves.
    pub address: SocketAddr,
    /// Its share against the others'.
    pub weight: u32,
    /// What it may get.
    pub openness: Openness,
}

/// What a node may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Openness {
    /// New flows.
    Open,
    /// Packets of flows that it has: it drains, or is being removed.
    Closing,
    /// Nothing: its checks fail.
    Shut,
    /// Not checked yet: whoever hears it otherwise may take it for open.
    Unknown,
}

impl Dispatcher {
    /// The nodes, the oldest first.
    pub fn candidates(&self) -> Vec<Candidate> {
        self.change(|state, _| {
            let candidate = |member: &skep_cluster::Member| {
                let details = state.details.get(&member.id())?;
                let is_leaving = member.removal_deadline().is_some() || details.bows_out;
                Some(Candidate {
                    name: member.name().to_string(),
                    address: member.address(),
                    weight: member.weight(),
                    openness: match member.health().state() {
                        Life::Down { .. } => Openness::Shut,
                        Life::Draining | Life::Drained => Openness::Closing,
                        Life::Up | Life::Joining if is_leaving => Openness::Closing,
                        Life::Up => Openness::Open,
                        Life::Joining => Openness::Unknown,
                    },
                })
            };
            state.membership.members().iter().filter_map(candidate).collect()
        })
    }

    /// The policy in force.
    pub fn policy(&self) -> String {
        self.change(|state, _| state.settings.policy.clone())
    }

    /// A node says what it has to do: what drains wait for, and what is shown.
    pub fn hear_load(&self, name: &str, load: &NodeLoad) {
        let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        self.with_details(name, |details| {
            let own = &details.node.load;
            own.requests.store(narrow(load.requests_in_flight), Relaxed);
            // Idle connections are flows too: a drain waits for them.
            let idle = load.connections.saturating_sub(load.requests_in_flight);
            own.tunnels.store(narrow(idle), Relaxed);
            own.bytes.store(load.bytes_outstanding, Relaxed);
        });
    }

    /// A node is not heard any more: out at once, without waiting for checks.
    pub fn miss(&self, name: &str) {
        self.change(|state, now| {
            let id = state.membership.find(name).map(skep_cluster::Member::id);
            if let Some(id) = id {
                state.on_request(now, id, Err(Failure::Silent));
            }
        });
    }

    fn with_details(&self, name: &str, job: impl FnOnce(&Details)) {
        self.change(|state, _| {
            let id = state.membership.find(name).map(skep_cluster::Member::id);
            if let Some(details) = id.and_then(|id| state.details.get(&id)) {
                job(details);
            }
        });
    }
}
