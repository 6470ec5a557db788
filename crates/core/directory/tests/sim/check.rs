//! The coordinators' invariants, tracked independently and compared with their
//! messages.

use std::collections::{BTreeMap, BTreeSet};

use skep_wire::cache::link::MemberId;
use skep_wire::cache::{CoordinatorAnswer, LeaseId, SegmentName, ToCoordinator, ToNode};

use skep_directory::limits::SETTLE_MS;

use crate::links::Conn;
use crate::world::{LEASE_TTL_MS, LEASES_MAX};

/// A lease as observed in the messages of a coordinator.
#[derive(Clone, Copy, Debug)]
struct Live {
    lease: LeaseId,
    conn: u64,
    expires_at: u64,
}

/// The promises of one coordinator.
#[derive(Default)]
struct Promises {
    epoch: Option<u64>,
    leases: BTreeMap<SegmentName, Live>,
    members: BTreeMap<MemberId, u64>,
    complete: BTreeSet<u64>,
    began_at: u64,
    /// All nodes have sent it their inventories.
    is_settled: bool,
    asks: BTreeMap<(u64, u64), SegmentName>,
}

#[derive(Default)]
pub(crate) struct Check {
    of: BTreeMap<usize, Promises>,
    granted: BTreeSet<LeaseId>,
    nodes: usize,
}

impl Check {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { nodes, ..Self::default() }
    }

    pub(crate) fn stage(&mut self, coordinator: usize, epoch: Option<u64>) {
        let of = self.of.entry(coordinator).or_default();
        (of.epoch, of.leases) = (epoch, BTreeMap::new());
    }

    /// The coordinator has restarted without its state.
    pub(crate) fn restarted(&mut self, coordinator: usize, at: u64) {
        self.of.insert(coordinator, Promises { began_at: at, ..Promises::default() });
    }

    pub(crate) fn joined(&mut self, conn: &Conn, member: MemberId) {
        self.of.entry(conn.coordinator).or_default().members.insert(member, conn.id);
    }

    pub(crate) fn left(&mut self, conn: &Conn) {
        let of = self.of.entry(conn.coordinator).or_default();
        of.leases.retain(|_, live| live.conn != conn.id);
        of.members.retain(|_, id| *id != conn.id);
        of.complete.remove(&conn.id);
    }

    pub(crate) fn hears(&mut self, at: u64, conn: &Conn, message: &ToCoordinator) {
        let of = self.of.entry(conn.coordinator).or_default();
        match message {
            ToCoordinator::Inventory { is_last: true, .. } => {
                of.complete.insert(conn.id);
                of.is_settled |= of.complete.len() >= self.nodes;
            }
            ToCoordinator::Ask { ask, name, .. } => {
                of.asks.insert((conn.id, *ask), *name);
            }
            ToCoordinator::Renew { lease } => {
                let its = |live: &&mut Live| live.lease == *lease && at < live.expires_at;
                if let Some(live) = of.leases.values_mut().find(its) {
                    live.expires_at = at + LEASE_TTL_MS;
                }
            }
            ToCoordinator::Ended { lease, .. } => {
                of.leases.retain(|_, live| live.lease != *lease || at >= live.expires_at);
            }
            ToCoordinator::NotThere { name, holder } => {
                let conn = of.members.get(holder);
                // It may be about a holding and not about the lease: the lease then remains
                // promised, but nothing here relies on it.
                if of.leases.get(name).is_some_and(|live| Some(&live.conn) == conn) {
                    of.leases.remove(name);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn says(&mut self, at: u64, conn: &Conn, said: &ToNode) -> Result<(), String> {
        let ToNode::Answer { ask, answer } = said else { return Ok(()) };
        let of = self.of.entry(conn.coordinator).or_default();
        let name = of.asks.remove(&(conn.id, *ask)).ok_or("an answer without a question")?;
        if of.epoch.is_none() && *answer != CoordinatorAnswer::Refused {
            return Err(format!("a standby answers {answer:?}"));
        }
        let live = of.leases.get(&name).copied().filter(|live| at < live.expires_at);
        match answer {
            CoordinatorAnswer::Have { holders } => {
                let is_right = |holder: &MemberId| {
                    let id = of.members.get(holder);
                    id.is_some_and(|id| of.complete.contains(id) && *id != conn.id)
                };
                if !holders.iter().all(is_right) {
                    return Err(format!("{holders:?} can't all be named"));
                }
            }
            CoordinatorAnswer::Busy { leader, .. } => {
                let id = of.members.get(leader);
                if id == Some(&conn.id) || live.map(|live| live.conn) != id.copied() {
                    return Err(format!("{leader} leads nothing: {live:?}"));
                }
            }
            CoordinatorAnswer::Grant { lease } => {
                if !of.is_settled && at < of.began_at + SETTLE_MS {
                    return Err(format!("{name:?} may be held by one of whom it has not heard"));
                }
                if live.is_some_and(|live| live.conn != conn.id) {
                    return Err(format!("two leases for {name:?}: {lease:?} and {live:?}"));
                }
                if !self.granted.insert(*lease) {
                    return Err(format!("{lease:?} was granted before"));
                }
                let expires_at = at + LEASE_TTL_MS;
                of.leases.insert(name, Live { lease: *lease, conn: conn.id, expires_at });
                let count = of.leases.values().filter(|live| at < live.expires_at).count();
                if count > LEASES_MAX {
                    return Err(format!("{count} leases at a time"));
                }
            }
            CoordinatorAnswer::Later if of.is_settled => {
                return Err("it waits though all have told what they hold".to_owned());
            }
            CoordinatorAnswer::Later | CoordinatorAnswer::Refused => {}
        }
        Ok(())
    }
}
