//! One worker's client of the origins of all sites.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use skep_engine::Context;
use skep_httpcache::FailureStatuses;
use skep_origin::Origins;
use skep_origin::{
    Ask, Condition, FaultKind, OriginCounters, OriginError, OriginReply, OriginTotals,
};
use skep_segments::SegmentStore;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::head_cache::{HeadOutcome, OriginHeadCache};
use super::kept::NotKept;
use crate::limits::PASS_SLOW_SHARE;
use crate::model::fault::fetch_error;
use crate::model::origin_backend::OriginBackend;
use crate::model::route::Route;
use crate::peers::PeerClient;

/// A response for one client, which may be slow to receive it.
pub(crate) struct Passed {
    pub(crate) reply: OriginReply,
    pub(crate) place: PassPermit,
    /// The reason why responses for the path are not cached, if known.
    pub(crate) why: Option<NotKept>,
}

/// A permit for one of the connections to a route's origins that slow clients may occupy.
pub(crate) struct PassPermit {
    client: Rc<OriginClient>,
    _permit: OwnedSemaphorePermit,
}

/// The permit of a slow client, one of those that its address may have.
pub(crate) struct SlowClientPermit {
    client: Rc<OriginClient>,
    address: IpAddr,
}

/// The client of one route's origins.
struct OriginClient {
    origins: Rc<Origins>,
    /// Half of its connections; the others are reserved for fetches that many requests wait for.
    passing: Arc<Semaphore>,
    /// Slow clients by address; `slow_max` is the bound for one address.
    slow: RefCell<HashMap<IpAddr, usize>>,
    slow_max: usize,
}

impl PassPermit {
    /// Records that the client at `address`, which has this permit, is slow. `None`: too many
    /// clients of that address are slow.
    pub(crate) fn slow(&self, address: IpAddr) -> Option<SlowClientPermit> {
        let mut slow = self.client.slow.borrow_mut();
        let held = slow.entry(address).or_insert(0);
        if *held >= self.client.slow_max {
            return None;
        }
        *held += 1;
        Some(SlowClientPermit { client: Rc::clone(&self.client), address })
    }
}

impl Drop for SlowClientPermit {
    fn drop(&mut self) {
        let mut slow = self.client.slow.borrow_mut();
        if let Some(held) = slow.get_mut(&self.address) {
            *held -= 1;
            if *held == 0 {
                slow.remove(&self.address);
            }
        }
    }
}

/// Counts of a node's origins, summed over all workers and reloads.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<(OriginTotals, Vec<Arc<OriginCounters>>)>);

impl Tally {
    /// The current sums.
    pub(crate) fn totals(&self) -> OriginTotals {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (ended, live) = &mut *inner;
        // The counters of a dropped client do not change any more.
        live.retain(|counters| {
            let is_live = Arc::strong_count(counters) > 1;
            if !is_live {
                ended.add(&counters.totals());
            }
            is_live
        });
        let mut totals = *ended;
        live.iter().for_each(|counters| totals.add(&counters.totals()));
        totals
    }

    fn add(&self, counters: &Arc<OriginCounters>) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.1.push(Arc::clone(counters));
    }
}

pub(crate) struct Remotes {
    pub(super) context: Rc<Context>,
    pub(super) store: Arc<SegmentStore>,
    pub(super) peer_client: Option<Rc<PeerClient>>,
    pub(super) origin_heads: Arc<OriginHeadCache>,
    tally: Arc<Tally>,
    /// By index of the route.
    clients: RefCell<HashMap<usize, Rc<OriginClient>>>,
}

impl Remotes {
    pub(crate) fn new(
        context: &Rc<Context>,
        store: &Arc<SegmentStore>,
        peer_client: Option<&Rc<PeerClient>>,
        origin_heads: &Arc<OriginHeadCache>,
        tally: &Arc<Tally>,
    ) -> Rc<Self> {
        Rc::new(Self {
            context: Rc::clone(context),
            store: Arc::clone(store),
            peer_client: peer_client.map(Rc::clone),
            origin_heads: Arc::clone(origin_heads),
            tally: Arc::clone(tally),
            clients: RefCell::default(),
        })
    }

    /// Requests all of `target` for one client; `why` is the reason why it is not cached.
    pub(super) async fn pass(
        &self,
        route: &Arc<Route>,
        origin: &OriginBackend,
        target: &[u8],
        why: Option<NotKept>,
    ) -> HeadOutcome<Box<Passed>> {
        let Some(place) = self.pass_place(route, origin).await else {
            return HeadOutcome::Failed(fetch_error(FaultKind::Busy));
        };
        let asked = OriginRequest { target, range: None, condition: Condition::None };
        match self.ask(route, origin, asked).await {
            Ok(reply) => HeadOutcome::Passed(Box::new(Passed { reply, place, why })),
            Err(error) => HeadOutcome::Failed(fetch_error(error.fault.kind())),
        }
    }

    /// Passes on a response that was requested for all clients but may be sent to one only.
    pub(super) async fn pass_on(
        &self,
        route: &Arc<Route>,
        origin: &OriginBackend,
        reply: OriginReply,
        why: Option<NotKept>,
    ) -> HeadOutcome<Box<Passed>> {
        match self.pass_place(route, origin).await {
            Some(place) => HeadOutcome::Passed(Box::new(Passed { reply, place, why })),
            None => HeadOutcome::Failed(fetch_error(FaultKind::Busy)),
        }
    }

    /// Waits briefly for a permit.
    pub(super) async fn pass_place(
        &self,
        route: &Arc<Route>,
        origin: &OriginBackend,
    ) -> Option<PassPermit> {
        let client = self.client(route, origin);
        let passing = Arc::clone(&client.passing);
        let limit = Duration::from_millis(origin.limits.busy_wait_ms);
        let permit = tokio::time::timeout(limit, passing.acquire_owned()).await.ok()?.ok()?;
        Some(PassPermit { client, _permit: permit })
    }

    /// Sends a request to an origin of a route.
    pub(super) async fn ask(
        &self,
        route: &Arc<Route>,
        origin: &OriginBackend,
        asked: OriginRequest<'_>,
    ) -> Result<OriginReply, OriginError> {
        let ask = Ask {
            path_and_query: asked.target,
            host: origin.host.as_deref(),
            range: asked.range,
            condition: asked.condition,
        };
        self.client(route, origin).origins.open(&ask).await
    }

    fn client(&self, route: &Arc<Route>, origin: &OriginBackend) -> Rc<OriginClient> {
        let mut clients = self.clients.borrow_mut();
        let made = clients.entry(route.index).or_insert_with(|| {
            let worker = self.context.worker();
            let origins = Origins::new(worker, origin.urls.clone(), origin.limits);
            self.tally.add(origins.counters());
            let places = (origin.limits.connections_max / 2).max(1);
            Rc::new(OriginClient {
                origins,
                passing: Arc::new(Semaphore::new(places)),
                slow: RefCell::default(),
                slow_max: (places / PASS_SLOW_SHARE).max(1),
            })
        });
        Rc::clone(made)
    }
}

/// A request to an origin.
pub(super) struct OriginRequest<'a> {
    pub(super) target: &'a [u8],
    pub(super) range: Option<std::ops::Range<u64>>,
    pub(super) condition: Condition<'a>,
}

/// Whether a status indicates a temporary state of the origin, and nothing about the object: the
/// statuses of overload. Fewer statuses cause a retry at another origin: 500, 502, 503 and 504
/// (skep-origin).
pub(super) fn is_origin_failure(status: u16) -> bool {
    FailureStatuses::Overload.has(status)
}
