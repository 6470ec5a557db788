//! The distributor of one worker: determines which requests move their connections to another node.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Instant;

use skep_comparison::{ArmEvent, ArmSample};
use skep_config::HandoffDecision;
use skep_engine::{Answered, ConnectionSoFar, Departed, Departure, Destination};
use skep_http::RequestHead;
use skep_serve::{TimeoutCause, Worker, boottime_ms};
use skep_telemetry::CacheResult;
use skep_units::Now;
use skep_wire::handoff::SocketId;
use skep_wire::steer::NodeIndex;

use crate::arms::WorkerArmCounts;
use crate::chooser::{Chooser, NodesView};
use crate::mover::{Mover, MoverHandle, Moving, Outcome};
use crate::settings::HandoffSettings;

pub struct WorkerDistributor {
    chooser: RefCell<Chooser>,
    arms: RefCell<WorkerArmCounts>,
    mover: MoverHandle,
    settings: HandoffSettings,
}

impl WorkerDistributor {
    /// The distributor of the node `name`, for the services at `addresses`. `seed` initialises the
    /// policies; it differs between workers.
    pub fn new(
        name: &str,
        addresses: Vec<SocketAddr>,
        nodes: &NodesView,
        mover: &Mover,
        settings: HandoffSettings,
        seed: u64,
    ) -> Self {
        let arms = RefCell::new(WorkerArmCounts::new(name, &nodes.arms, &nodes.arm_counters));
        let chooser = RefCell::new(Chooser::new(name.into(), nodes, addresses, seed));
        Self { chooser, arms, mover: mover.handle(), settings }
    }

    /// The node that should answer a request, if not this one. `bytes` is the length of its reply, if
    /// known.
    pub(crate) fn destination(
        &self,
        request: &RequestHead<'_, '_>,
        connection: &ConnectionSoFar<'_>,
        bytes: impl FnOnce() -> Option<u64>,
    ) -> Option<Destination> {
        if connection.moves >= self.settings.moves_max {
            return None;
        }
        let ends = (connection.conn.peer(), connection.conn.local());
        let mut chooser = self.chooser.borrow_mut();
        if !chooser.hands_off(ends.1) {
            return None;
        }
        let is_first = connection.requests == 0;
        if is_first && connection.moves > 0 {
            // It was moved here for this request: another decision of the policy is no reason to move it
            // on.
            return None;
        }
        // A connection in use moves again only if that is worth it; small replies are fetched from the
        // other node's memory.
        let is_worth_it = || bytes().is_some_and(|bytes| bytes >= self.settings.again_bytes_min);
        if !is_first && !chooser.is_leaving(ends.1) && !is_worth_it() {
            return None;
        }
        if self.settings.decide == HandoffDecision::Coordinator {
            return Some(ASK);
        }
        let connection = SocketId::new(ends.0, ends.1)?;
        let node = chooser.choose(request, connection, Now(boottime_ms()))?;
        self.is_destination(&mut chooser, node).then_some(Destination(node.into()))
    }

    /// The node to which an idle connection should move: only if this one is drained, or stops.
    pub(crate) fn idle_destination(&self, connection: &ConnectionSoFar<'_>) -> Option<Destination> {
        let id = SocketId::new(connection.conn.peer(), connection.conn.local())?;
        let mut chooser = self.chooser.borrow_mut();
        if connection.moves >= self.settings.moves_max || !chooser.is_leaving(id.server) {
            return None;
        }
        // The next request is unknown: a policy that selects by requests spreads the clients by address.
        let client = id.client.to_string();
        let node = chooser.pick(b"", (client.as_bytes(), None), id, Now(boottime_ms()))?;
        (!chooser.is_own(node)).then_some(Destination(node.into()))
    }

    /// Moves idle connections to other nodes while this one is drained, or stops.
    pub fn watch(self: &Rc<Self>, worker: &Rc<Worker>) {
        let (own, of) = (Rc::downgrade(self), Rc::downgrade(worker));
        worker.on_tick(move || {
            let (Some(own), Some(worker)) = (own.upgrade(), of.upgrade()) else { return false };
            if own.chooser.borrow_mut().leaves_any() {
                worker.deadlines().expire_idle(TimeoutCause::Evacuate);
            }
            true
        });
    }

    /// Counts a request answered here, for the arm of its client in an A/B test.
    pub(crate) fn answered(&self, answered: &Answered<'_>) {
        let mut arms = self.arms.borrow_mut();
        let Some(ends) = SocketId::new(answered.conn.peer(), answered.conn.local()) else { return };
        if arms.has_test(ends.server)
            && let Some(event) = event(answered)
        {
            arms.count(ends.server, ends.client.ip(), &event, Now(boottime_ms()));
        }
    }

    /// Hands a connection off, or returns that it stays.
    pub(crate) async fn depart(&self, departure: Departure<'_, '_, '_>) -> Departed {
        let since = Instant::now();
        let Departure { conn, request, received, to, moves, accepted_by } = departure;
        let Some(id) = SocketId::new(conn.peer(), conn.local()) else { return Departed::Kept };
        let to = match to {
            ASK => self.ask(id, request).await,
            Destination(node) => NodeIndex::try_from(node).ok(),
        };
        let (Some(to), Ok(socket)) = (to, conn.as_fd().try_clone_to_owned()) else {
            return Departed::Kept;
        };
        let (received, moves) = (received.to_vec(), moves.saturating_add(1));
        let accepted_by = accepted_by.and_then(|name| self.chooser.borrow().index_of(name));
        let moving = Moving { socket, id, received, moves, accepted_by, to, since };
        match self.mover.hand_off(moving).await {
            Outcome::Gone => Departed::Gone,
            Outcome::Kept => Departed::Kept,
        }
    }

    /// Asks the active dispatcher; `None`: the request is answered here.
    async fn ask(&self, id: SocketId, request: Option<&RequestHead<'_, '_>>) -> Option<NodeIndex> {
        let key = self.chooser.borrow().query_key(request?)?;
        let node = self.mover.ask(id, key).await?;
        self.is_destination(&mut self.chooser.borrow_mut(), node).then_some(node)
    }

    fn is_destination(&self, chooser: &mut Chooser, node: NodeIndex) -> bool {
        self.settings.to_self || !chooser.is_own(node)
    }
}

/// The event to count for a request; `None`: none, since its client did not take the response.
fn event(answered: &Answered<'_>) -> Option<ArmEvent> {
    let Answered { summary, is_whole, first_byte_us, total_us, .. } = answered;
    if !(*is_whole)? || summary.status >= 500 {
        return Some(ArmEvent::Failed);
    }
    let is_hit = match summary.cache {
        CacheResult::None => None,
        cache => Some(matches!(cache, CacheResult::Hit | CacheResult::Peer)),
    };
    let (first_byte_us, total_us, bytes) = (*first_byte_us, *total_us, summary.body_bytes);
    Some(ArmEvent::Answered(ArmSample { first_byte_us, total_us, bytes, is_hit }))
}

/// The active dispatcher determines the node.
const ASK: Destination = Destination(u32::MAX);
