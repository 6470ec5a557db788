//! A worker's share of an A/B test: a policy for each arm, a cache of clients, and the counts.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use skep_comparison::{ArmEvent, ClientId};

use crate::chooser::Chooser;
use crate::limits::RECENT_CLIENTS;
use crate::members::comparison::{Comparison, WorkerArmCounts};
use crate::members::published::Published;

pub(crate) struct WorkerArms {
    share: Rc<ArmShare>,
    choosers: Vec<Chooser>,
    /// Cache of recent clients, so that a known client needs no lock; each client has one slot.
    recent: Box<[Option<(ClientId, u8)>]>,
    /// Revision of the comparison when `recent` was last cleared.
    revision: u64,
}

/// The parts that requests refer to.
pub(crate) struct ArmShare {
    comparison: Arc<Comparison>,
    counts: Arc<WorkerArmCounts>,
}

/// The arm of one request.
#[derive(Clone)]
pub(crate) struct ArmOfRequest {
    share: Rc<ArmShare>,
    client: ClientId,
    pub(crate) arm: usize,
    /// Whether none of the arm's members could take it.
    pub(crate) has_strayed: bool,
}

impl WorkerArms {
    pub(crate) fn new(comparison: &Arc<Comparison>, seed: u64) -> Self {
        let (comparison, counts) = (Arc::clone(comparison), comparison.new_counts());
        let choosers =
            comparison.arms().list().iter().map(|arm| Chooser::new(&arm.policy, seed)).collect();
        Self {
            revision: comparison.revision(),
            share: Rc::new(ArmShare { comparison, counts }),
            choosers,
            recent: vec![None; RECENT_CLIENTS].into(),
        }
    }

    pub(crate) fn is_of(&self, comparison: &Arc<Comparison>) -> bool {
        Arc::ptr_eq(&self.share.comparison, comparison)
    }

    /// Makes each arm select among its members of `published` from now on.
    pub(crate) fn follow(&mut self, published: &Published) {
        let arms = self.share.comparison.arms().list().iter();
        arms.zip(&mut self.choosers).for_each(|(arm, it)| it.follow(published, &arm.nodes));
    }

    /// The arm of a request of the client at `address`.
    pub(crate) fn of(&mut self, address: IpAddr) -> ArmOfRequest {
        let comparison = &self.share.comparison;
        let revision = comparison.revision();
        if std::mem::replace(&mut self.revision, revision) != revision {
            self.recent.fill(None);
        }
        let client = ClientId::new(address, comparison.arms().id());
        let place = &mut self.recent[client.0 as usize % RECENT_CLIENTS];
        let arm = match *place {
            Some((known, arm)) if known == client => arm.into(),
            _ => {
                let arm = comparison.arm_of(client);
                *place = Some((client, arm as u8));
                arm
            }
        };
        ArmOfRequest { share: Rc::clone(&self.share), client, arm, has_strayed: false }
    }

    pub(crate) fn chooser(&mut self, arm: usize) -> &mut Chooser {
        &mut self.choosers[arm]
    }

    /// The policy that selected for a request, unless it belongs to an earlier test.
    pub(crate) fn chooser_of(&mut self, request: &ArmOfRequest) -> Option<&mut Chooser> {
        Rc::ptr_eq(&self.share, &request.share).then(|| &mut self.choosers[request.arm])
    }
}

impl ArmOfRequest {
    /// Counts an event of the request.
    pub(crate) fn count(&self, event: &ArmEvent) {
        let event = if self.has_strayed { &ArmEvent::Strayed } else { event };
        self.share.counts.count(self.arm, self.client, event);
    }
}
