//! The donor: offers connections of this node to others, and alone decides whether each is moved.
//!
//! ```text
//!            Freezing --frozen--> Offered --READY--> Committing --redirected--> Committed --DONE--> moved
//!                |                   |                |                             |
//!           not frozen       REFUSE, GONE, silence  refused                    GONE, silence
//!                |                   |                |                             |
//!                +-------------------+----> Thawing <-+                         Resetting ---------> closed
//!                                              | |                                  ^
//!               stays <----- thawed -----------+ +------------ refused -------------+
//! ```
//!
//! The decision is one update of netguard's map, from blocked to redirected. Before it the
//! connection can only stay, and after it only move or be closed. An ABORT is sent only once it is
//! certain that the flow is not redirected; a GO only once it is certain that it is. While
//! netguard's answer is pending, neither is sent, and the connection is blocked.

mod aborts;
mod action;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use skep_units::Now;
use skep_wire::handoff::fragments::{Fragment, cut};
use skep_wire::handoff::lccp::{Lccp, LccpCommand};
use skep_wire::handoff::{HandoffId, HandoffInfo, SocketId};
use skep_wire::seal::PeerId;

pub use action::{DonorAction, DonorCounters, MoveOutcome, MoveTarget, NotBegun, StayCause};

use crate::limits::{GO_MS, MOVES_IN_FLIGHT_MAX, READY_MS_MAX, RETRY_MS, RETRY_MS_MAX};
use crate::order::OrderResult;
use crate::retry::Retry;
use crate::timers::Timers;
use aborts::Aborts;

/// All moves away from this node; see the module.
///
/// Invariants: at most [`MOVES_IN_FLIGHT_MAX`] moves, one per connection; a number is never reused.
#[derive(Clone, Debug)]
pub struct Donor {
    ready_ms: u64,
    /// The incarnation in the id of the next move.
    incarnation: u64,
    next_number: u64,
    moves: BTreeMap<HandoffId, Move>,
    flows: BTreeSet<SocketId>,
    timers: Timers<HandoffId>,
    aborts: Aborts,
    actions: VecDeque<DonorAction>,
    counters: DonorCounters,
}

#[derive(Clone, Debug)]
struct Move {
    socket: SocketId,
    to: MoveTarget,
    state: MoveState,
}

#[derive(Clone, Debug)]
enum MoveState {
    /// Waits for the connection's state.
    Freezing,
    /// Waits for READY.
    Offered { fragments: Vec<Fragment>, retry: Retry },
    /// The redirect is ordered.
    Committing,
    /// The thaw is ordered.
    Thawing { cause: StayCause, offer: OfferState },
    /// The flow is redirected: GO is repeated until the receiver answers.
    Committed { retry: Retry },
    /// The reset is ordered.
    Resetting,
}

/// What the receiver of a connection that stays may assume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfferState {
    /// It has no offer, or has refused: no message is needed.
    Settled,
    /// It was sent an ABORT.
    Aborted,
}

impl Donor {
    /// The donor of a process started at `incarnation`, by the wall clock in milliseconds: that of
    /// its [endpoint](skep_wire::seal::Endpoint::incarnation). It waits `ready_ms` for READY, at
    /// most [`READY_MS_MAX`].
    pub fn new(ready_ms: u64, incarnation: u64) -> Self {
        assert!(ready_ms <= READY_MS_MAX, "{ready_ms} ms: the receiver may have given up");
        Self {
            ready_ms,
            incarnation,
            next_number: 1,
            moves: BTreeMap::new(),
            flows: BTreeSet::new(),
            timers: Timers::default(),
            aborts: Aborts::default(),
            actions: VecDeque::new(),
            counters: DonorCounters::default(),
        }
    }

    /// The incarnation of the endpoint was raised because its clock had gone back. Moves in flight
    /// keep theirs.
    pub fn raise_incarnation(&mut self, incarnation: u64) {
        self.incarnation = self.incarnation.max(incarnation);
    }

    /// Begins to move a connection to another node.
    ///
    /// # Errors
    /// The connection must be served here.
    pub fn begin(&mut self, socket: SocketId, to: MoveTarget) -> Result<HandoffId, NotBegun> {
        if self.flows.contains(&socket) {
            return Err(NotBegun::Busy);
        }
        if self.moves.len() >= MOVES_IN_FLIGHT_MAX {
            self.counters.full += 1;
            return Err(NotBegun::Full);
        }
        let id = HandoffId { incarnation: self.incarnation, number: self.next_number };
        self.next_number += 1;
        self.counters.begun += 1;
        self.flows.insert(socket);
        self.moves.insert(id, Move { socket, to, state: MoveState::Freezing });
        self.actions.push_back(DonorAction::Freeze(id, socket));
        self.check_invariants();
        Ok(id)
    }

    /// The connection is frozen, and `info` was read from it since.
    pub fn frozen(&mut self, now: Now, id: HandoffId, info: &HandoffInfo) {
        let is_sound = info.is_sound();
        let Some(it) = self.moves.get_mut(&id) else { return };
        if !matches!(it.state, MoveState::Freezing) {
            return;
        }
        if !is_sound {
            return self.not_frozen(now, id, StayCause::Unsuitable);
        }
        let fragments = cut(&info.encode());
        let retry = Retry::new(now, RETRY_MS, RETRY_MS_MAX);
        it.state = MoveState::Offered { fragments, retry };
        self.send_offer(id);
        self.set_timer(id);
        self.check_invariants();
    }

    /// The connection could not be frozen, or cannot be moved in its state.
    pub fn not_frozen(&mut self, now: Now, id: HandoffId, cause: StayCause) {
        let is_freezing =
            self.moves.get(&id).is_some_and(|it| matches!(it.state, MoveState::Freezing));
        if is_freezing {
            self.stay(now, id, cause, OfferState::Settled);
        }
        self.check_invariants();
    }

    /// The result of the order in the last action of this move.
    pub fn ordered(&mut self, now: Now, id: HandoffId, result: OrderResult) {
        let Some(it) = self.moves.get(&id) else { return };
        match it.state {
            MoveState::Committing => self.redirect_ordered(now, id, result),
            MoveState::Thawing { cause, .. } => self.thaw_ordered(now, id, result, cause),
            MoveState::Resetting => self.end(now, id, MoveOutcome::Closed),
            MoveState::Freezing | MoveState::Offered { .. } | MoveState::Committed { .. } => {}
        }
        self.check_invariants();
    }

    /// A message for a donor was received from another node.
    pub fn heard(&mut self, now: Now, from: PeerId, message: &Lccp) {
        let Lccp { id, command } = message;
        let is_its = |it: &&Move| it.to.peer == from && command.socket() == Some(&it.socket);
        match (command, self.moves.get(id).filter(is_its).map(|it| &it.state)) {
            (LccpCommand::Ready(_), Some(_)) => self.ready(now, *id),
            (LccpCommand::Ready(socket), None) => {
                if self.aborts.is_aborted(*id, from) {
                    self.send(from, *id, LccpCommand::Abort(*socket));
                }
            }
            (LccpCommand::Refuse(_, cause), Some(MoveState::Offered { .. })) => {
                self.stay(now, *id, StayCause::Refused(*cause), OfferState::Settled);
            }
            (LccpCommand::Gone(_), Some(MoveState::Offered { .. })) => {
                self.stay(now, *id, StayCause::Gone, OfferState::Settled);
            }
            (LccpCommand::Gone(_), Some(MoveState::Committed { .. })) => self.reset(*id),
            (LccpCommand::Done(_), Some(MoveState::Committed { .. })) => {
                self.end(now, *id, MoveOutcome::Moved)
            }
            (LccpCommand::Aborted(_), _) => self.aborts.understood(*id, from),
            // Late or repeated: the move has progressed.
            (LccpCommand::Refuse(..) | LccpCommand::Gone(_) | LccpCommand::Done(_), _) => {}
            _ => self.counters.unexpected += 1,
        }
        self.check_invariants();
    }

    /// Advances the time.
    pub fn tick(&mut self, now: Now) {
        for id in self.timers.take_due(now) {
            self.due(now, id);
            self.set_timer(id);
        }
        for (to, message) in self.aborts.due(now) {
            self.counters.repeated += 1;
            self.actions.push_back(DonorAction::Send(to, message));
        }
        self.check_invariants();
    }

    /// The latest time for the next call of [`Donor::tick`].
    pub fn next_due(&self) -> Option<Now> {
        self.timers.next().into_iter().chain(self.aborts.next_due()).min()
    }

    /// The pending actions, in order.
    pub fn actions(&mut self) -> impl Iterator<Item = DonorAction> + '_ {
        self.actions.drain(..)
    }

    /// The number of moves in flight.
    pub fn in_flight(&self) -> usize {
        self.moves.len()
    }

    /// Whether no move or ABORT is pending.
    pub fn is_idle(&self) -> bool {
        self.moves.is_empty() && self.aborts.is_empty()
    }

    pub fn counters(&self) -> &DonorCounters {
        &self.counters
    }

    /// Handles an expired timer of a move.
    fn due(&mut self, now: Now, id: HandoffId) {
        let ready_ms = self.ready_ms;
        let Some(Move { socket, to, state }) = self.moves.get_mut(&id) else { return };
        let (socket, to) = (*socket, *to);
        match state {
            MoveState::Offered { retry, .. } if retry.age_ms(now) > ready_ms => {
                self.stay(now, id, StayCause::Silent, OfferState::Aborted);
            }
            MoveState::Offered { retry, .. } => {
                if retry.is_due(now) {
                    self.counters.repeated += 1;
                    self.send_offer(id);
                }
            }
            MoveState::Committed { retry } if retry.age_ms(now) > GO_MS => self.reset(id),
            MoveState::Committed { retry } => {
                if retry.is_due(now) {
                    self.counters.repeated += 1;
                    self.send(to.peer, id, LccpCommand::Go(socket));
                }
            }
            MoveState::Freezing
            | MoveState::Committing
            | MoveState::Thawing { .. }
            | MoveState::Resetting => {}
        }
    }

    /// The receiver of a move is ready: orders the redirect, which decides.
    fn ready(&mut self, now: Now, id: HandoffId) {
        let Some(Move { socket, to, state }) = self.moves.get(&id) else { return };
        let (socket, to) = (*socket, *to);
        match state {
            // If it is late, the receiver may have given up before GO arrives.
            MoveState::Offered { retry, .. } if retry.age_ms(now) > self.ready_ms => {
                self.stay(now, id, StayCause::Silent, OfferState::Aborted);
            }
            MoveState::Offered { .. } => {
                self.set_state(id, MoveState::Committing);
                self.actions.push_back(DonorAction::Redirect(id, socket, to.node));
            }
            MoveState::Thawing { offer: OfferState::Aborted, .. } => {
                self.send(to.peer, id, LccpCommand::Abort(socket));
            }
            // The next message is repeated anyway, or not determined yet.
            MoveState::Freezing
            | MoveState::Committing
            | MoveState::Committed { .. }
            | MoveState::Thawing { .. }
            | MoveState::Resetting => {}
        }
    }

    fn redirect_ordered(&mut self, now: Now, id: HandoffId, result: OrderResult) {
        match result {
            OrderResult::Done => self.commit(now, id),
            OrderResult::Refused => {
                self.stay(now, id, StayCause::NotRedirected, OfferState::Aborted);
            }
        }
    }

    fn thaw_ordered(&mut self, now: Now, id: HandoffId, result: OrderResult, cause: StayCause) {
        match result {
            OrderResult::Done => self.end(now, id, MoveOutcome::Stays(cause)),
            // It can neither be served nor be left in this state.
            OrderResult::Refused => self.reset(id),
        }
    }

    /// The flow is redirected: the connection belongs to the receiver.
    fn commit(&mut self, now: Now, id: HandoffId) {
        let Some(Move { socket, to, .. }) = self.moves.get(&id) else { return };
        let (socket, to) = (*socket, *to);
        let retry = Retry::new(now, RETRY_MS, RETRY_MS_MAX);
        self.set_state(id, MoveState::Committed { retry });
        self.send(to.peer, id, LccpCommand::Go(socket));
    }

    /// The connection stays here.
    fn stay(&mut self, now: Now, id: HandoffId, cause: StayCause, offer: OfferState) {
        let Some(Move { socket, .. }) = self.moves.get(&id) else { return };
        self.actions.push_back(DonorAction::Thaw(id, *socket));
        self.set_state(id, MoveState::Thawing { cause, offer });
        if offer == OfferState::Aborted {
            self.abort(now, id);
        }
    }

    /// Aborts the offer.
    fn abort(&mut self, now: Now, id: HandoffId) {
        let Some(Move { socket, to, .. }) = self.moves.get(&id) else { return };
        let (to, message) = self.aborts.add(now, id, to.peer, *socket);
        self.actions.push_back(DonorAction::Send(to, message));
    }

    fn reset(&mut self, id: HandoffId) {
        let Some(Move { socket, .. }) = self.moves.get(&id) else { return };
        self.actions.push_back(DonorAction::Reset(id, *socket));
        self.set_state(id, MoveState::Resetting);
    }

    /// Ends a move with this outcome.
    fn end(&mut self, now: Now, id: HandoffId, outcome: MoveOutcome) {
        self.timers.set(id, None);
        let Some(Move { socket, to, .. }) = self.moves.remove(&id) else { return };
        self.flows.remove(&socket);
        match outcome {
            MoveOutcome::Stays(cause) => {
                self.counters.stays(cause);
                self.aborts.remember(now, id, to.peer);
            }
            MoveOutcome::Moved => {
                self.counters.moved += 1;
                self.actions.push_back(DonorAction::Release(id, socket));
            }
            MoveOutcome::Closed => self.counters.closed += 1,
        }
        self.actions.push_back(DonorAction::Ended(id, socket, outcome));
    }

    fn send_offer(&mut self, id: HandoffId) {
        let Some(Move { socket, to, state: MoveState::Offered { fragments, .. } }) =
            self.moves.get(&id)
        else {
            return;
        };
        for fragment in fragments {
            let command = LccpCommand::Offer(*socket, fragment.clone());
            self.actions.push_back(DonorAction::Send(to.peer, Lccp { id, command }));
        }
    }

    fn send(&mut self, to: PeerId, id: HandoffId, command: LccpCommand) {
        self.actions.push_back(DonorAction::Send(to, Lccp { id, command }));
    }

    fn set_state(&mut self, id: HandoffId, state: MoveState) {
        if let Some(it) = self.moves.get_mut(&id) {
            it.state = state;
        }
        self.set_timer(id);
    }

    /// Sets the timer of a move.
    fn set_timer(&mut self, id: HandoffId) {
        let past = |since: Now, ms: u64| since.plus_ms(ms + 1);
        let due = self.moves.get(&id).and_then(|it| match &it.state {
            MoveState::Freezing
            | MoveState::Committing
            | MoveState::Thawing { .. }
            | MoveState::Resetting => None,
            MoveState::Offered { retry, .. } => {
                Some(retry.next.min(past(retry.since, self.ready_ms)))
            }
            MoveState::Committed { retry } => Some(retry.next.min(past(retry.since, GO_MS))),
        });
        self.timers.set(id, due);
    }

    fn check_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        self.aborts.check_invariants();
        debug_assert!(self.moves.len() <= MOVES_IN_FLIGHT_MAX, "{} moves", self.moves.len());
        let flows: BTreeSet<SocketId> = self.moves.values().map(|it| it.socket).collect();
        debug_assert_eq!(flows, self.flows, "one move for each connection");
        debug_assert_eq!(flows.len(), self.moves.len(), "one move for each connection");
        debug_assert!(self.moves.keys().all(|id| id.number < self.next_number), "a later number");
        debug_assert!(self.timers.keys().all(|id| self.moves.contains_key(id)), "a stray timer");
    }
}
