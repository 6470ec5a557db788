//! One worker's view of the origins of a site: their addresses, their health, and the connections
//! to them.

mod ask;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use skep_serve::Worker;
use skep_upstream::{ConnectionPool, PoolLimits, PooledConn};

use crate::avoid::OriginHealth;
use crate::counters::OriginCounters;
use crate::error::{Fault, OriginError};
use crate::limits::OriginLimits;
use crate::names::{self, Addresses, Lookup};
use crate::url::OriginUrl;
pub use ask::OriginReply;

/// One worker's client of a site's origins.
pub struct Origins {
    worker: Rc<Worker>,
    pool: Rc<ConnectionPool>,
    limits: OriginLimits,
    counters: Arc<OriginCounters>,
    /// In order of preference; at least one.
    origins: Vec<Origin>,
    /// One for each origin.
    health: RefCell<Vec<OriginHealth>>,
}

struct Origin {
    url: OriginUrl,
    addresses: Addresses,
}

impl Origins {
    /// A client of `urls`, of which there is at least one; the first is asked while it works.
    pub fn new(worker: &Rc<Worker>, urls: Vec<OriginUrl>, limits: OriginLimits) -> Rc<Self> {
        Self::with_lookup(worker, urls, limits, &names::system())
    }

    /// The same with another resolver than that of the system.
    pub fn with_lookup(
        worker: &Rc<Worker>,
        urls: Vec<OriginUrl>,
        limits: OriginLimits,
        lookup: &Lookup,
    ) -> Rc<Self> {
        assert!(!urls.is_empty(), "a site without origins has a root");
        let pool = PoolLimits {
            connections_max: limits.connections_max,
            idle_ms: limits.idle_ms,
            connect_timeout_ms: limits.connect_timeout_ms,
        };
        let origin =
            |url: OriginUrl| Origin { addresses: Addresses::new(&url, Arc::clone(lookup)), url };
        Rc::new(Self {
            worker: Rc::clone(worker),
            pool: ConnectionPool::new(worker, pool),
            limits,
            counters: Arc::default(),
            health: RefCell::new(vec![OriginHealth::default(); urls.len()]),
            origins: urls.into_iter().map(origin).collect(),
        })
    }

    /// Its counters; may be read from any thread.
    pub fn counters(&self) -> &Arc<OriginCounters> {
        &self.counters
    }

    /// Records a fault of an attempt or a body.
    pub(crate) fn note_fault(&self, place: usize, fault: &Fault) {
        tracing::debug!(origin = %self.origins[place].url.text(), %fault, "origin failed");
        self.counters.count_failure(fault.kind());
        if fault.blames_origin() {
            self.avoid(place);
        }
    }

    fn avoid(&self, place: usize) {
        let OriginLimits { avoid_ms, avoid_ms_max, .. } = self.limits;
        let now_ms = self.worker.now_ms();
        self.health.borrow_mut()[place].fail(now_ms, avoid_ms, avoid_ms_max);
    }

    pub(crate) fn error(&self, place: usize, fault: Fault) -> OriginError {
        OriginError { origin: Arc::clone(self.origins[place].url.text()), fault }
    }

    pub(crate) fn worker(&self) -> &Worker {
        &self.worker
    }

    pub(crate) fn limits(&self) -> &OriginLimits {
        &self.limits
    }

    pub(crate) fn count_body(&self, bytes: u64) {
        self.counters.count_body(bytes);
    }

    pub(crate) fn give_back(&self, lease: PooledConn) {
        lease.give_back(&self.pool);
    }
}
