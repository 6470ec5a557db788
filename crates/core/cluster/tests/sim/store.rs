//! The etcd of a seed that has one, and each dispatcher's view of it.

use std::cell::RefCell;
use std::rc::Rc;

use skep_cluster::lease_observer::{LeaseRecord, SharedStore, StoreLeader};
use skep_wire::seal::PeerId;

use crate::machine::LEASE_MS;

/// How long a slow store takes to reply, plus the interval of a dispatcher's requests.
pub(crate) const STORE_MS_MAX: u64 = SLOW_MS + 500;
pub(crate) const SLOW_MS: u64 = 1_500;

/// The values in etcd.
#[derive(Debug, Default)]
pub(crate) struct Etcd {
    /// The leader, and when its lease expires.
    leader: Option<(PeerId, u64)>,
    active: Option<(PeerId, u64)>,
    epoch: u64,
}

/// The reply to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    /// When the request was sent.
    asked_at: u64,
    leader: Option<PeerId>,
    active: Option<(PeerId, u64)>,
    written: [Option<u64>; 2],
}

/// The client of one dispatcher, shared with the world, which transports its requests.
#[derive(Clone, Debug)]
pub(crate) struct Client(Rc<RefCell<State>>);

#[derive(Debug)]
struct State {
    own: PeerId,
    campaigns: bool,
    last: Option<Reply>,
    /// Epochs to be written, by record.
    to_write: [Option<u64>; 2],
    written: [Option<u64>; 2],
    /// World time: a reply is valid for as long as a lease.
    at: u64,
}

impl Etcd {
    /// Processes a client's request: renews, takes or releases the lease, writes, reads.
    pub(crate) fn ask(&mut self, at: u64, client: &Client) -> Reply {
        let state = client.0.borrow();
        self.leader = self.leader.filter(|(_, until)| *until > at);
        let holder = self.leader.map(|(holder, _)| holder);
        if state.campaigns && holder.is_none_or(|holder| holder == state.own) {
            self.leader = Some((state.own, at + LEASE_MS));
        } else if !state.campaigns && holder == Some(state.own) {
            self.leader = None;
        }
        if let Some(epoch) = state.to_write[LeaseRecord::Epoch as usize] {
            self.epoch = self.epoch.max(epoch);
        }
        if let Some(epoch) = state.to_write[LeaseRecord::Active as usize] {
            self.active = Some((state.own, epoch));
        }
        let leader = self.leader.map(|(leader, _)| leader);
        Reply { asked_at: at, leader, active: self.active, written: state.to_write }
    }

    /// The last epoch that was written.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The holder of the lease.
    pub(crate) fn leader(&self, at: u64) -> Option<PeerId> {
        self.leader.filter(|(_, until)| *until > at).map(|(leader, _)| leader)
    }
}

impl Client {
    pub(crate) fn new(own: PeerId) -> Self {
        Self(Rc::new(RefCell::new(State {
            own,
            campaigns: false,
            last: None,
            to_write: [None; 2],
            written: [None; 2],
            at: 0,
        })))
    }

    pub(crate) fn take(&self, reply: Reply) {
        let mut state = self.0.borrow_mut();
        if state.last.is_none_or(|last| last.asked_at <= reply.asked_at) {
            state.last = Some(reply);
        }
        for record in 0..2 {
            if reply.written[record].is_some() {
                state.written[record] = state.written[record].max(reply.written[record]);
            }
        }
    }

    pub(crate) fn set_time(&self, at: u64) {
        self.0.borrow_mut().at = at;
    }
}

impl SharedStore for Client {
    fn leader(&mut self) -> StoreLeader {
        let state = self.0.borrow();
        let fresh = state.last.filter(|reply| state.at < reply.asked_at + LEASE_MS);
        match fresh.map(|reply| reply.leader) {
            None => StoreLeader::Unknown,
            Some(None) => StoreLeader::Nobody,
            Some(Some(leader)) if leader == state.own && state.campaigns => StoreLeader::Me,
            Some(Some(leader)) => StoreLeader::Other(leader),
        }
    }

    fn campaign(&mut self, is_wanted: bool) {
        self.0.borrow_mut().campaigns = is_wanted;
    }

    fn active(&mut self) -> Option<(PeerId, u64)> {
        self.0.borrow().last?.active
    }

    fn write(&mut self, record: LeaseRecord, epoch: u64) {
        let mut state = self.0.borrow_mut();
        state.to_write[record as usize] = Some(epoch);
    }

    fn outcome(&mut self, record: LeaseRecord) -> Option<bool> {
        let mut state = self.0.borrow_mut();
        let record = record as usize;
        let is_done =
            state.written[record].is_some() && state.written[record] >= state.to_write[record];
        is_done.then(|| {
            state.to_write[record] = None;
            true
        })
    }
}
