//! The receiver: restores connections of other nodes, and serves those that were moved to it.
//!
//! ```text
//!   OFFER --> Assembling --whole--> Creating --restored--> Ready --GO--> Starting --started--> served (DONE)
//!                 |                  |    |                | |  |            |
//!             too late,      failed, |    | ABORT      ABORT |  | silence,  not
//!             malformed      too late|    v                | |  | new donor started
//!                 |                  | Abandoned           | |  v            |
//!                 +--> refused <-----+    +--> aborted <---+ | Resetting <---+
//!                      (REFUSE)                (ABORTED)     |    +--> closed (GONE)
//! ```
//!
//! Until GO the connection belongs to the donor: the socket neither receives nor sends packets, and
//! on ABORT it is closed in repair mode, without sending any. A donor that asks again receives the
//! same answer again. An offer that was answered, or was forgotten since, is never accepted again.

mod action;
mod memory;
mod state;

use std::collections::{BTreeMap, VecDeque};

use skep_units::Now;
use skep_wire::handoff::fragments::{Assembly, Fragment};
use skep_wire::handoff::lccp::{Lccp, LccpCommand, RefuseCause};
use skep_wire::handoff::{HandoffInfo, SocketId};
use skep_wire::seal::PeerId;

pub use action::{OfferKey, Preparation, ReceiverAction, ReceiverCounters};

use crate::limits::{MOVES_IN_FLIGHT_MAX, READY_REPEAT_MS, REMEMBERED_MAX, UNDECIDED_MS};
use crate::order::OrderResult;
use crate::retry::Retry;
use crate::timers::Timers;
use memory::{DonorProcess, Memory};
use state::{Answer, Slot, State};

/// All moves to this node; see the module.
///
/// Invariants: at most [`MOVES_IN_FLIGHT_MAX`] moves in progress, one per connection; the answer to
/// a move that has ended does not change.
#[derive(Clone, Debug)]
pub struct Receiver {
    ready_ms: u64,
    /// Whether offers are accepted.
    is_open: bool,
    moves: Memory,
    /// Connections of moves in progress.
    flows: BTreeMap<SocketId, OfferKey>,
    timers: Timers<OfferKey>,
    actions: VecDeque<ReceiverAction>,
    counters: ReceiverCounters,
}

impl Receiver {
    /// Offers that are not restored within `ready_ms` are refused: the donor has given up.
    pub fn new(ready_ms: u64) -> Self {
        Self {
            ready_ms,
            is_open: true,
            moves: Memory::default(),
            flows: BTreeMap::new(),
            timers: Timers::default(),
            actions: VecDeque::new(),
            counters: ReceiverCounters::default(),
        }
    }

    /// Sets whether to accept offers: a draining node does not.
    pub fn set_open(&mut self, is_open: bool) {
        self.is_open = is_open;
    }

    /// A message for a receiver was received from another node.
    pub fn heard(&mut self, now: Now, from: PeerId, message: &Lccp) {
        let key = OfferKey { donor: from, id: message.id };
        match self.moves.note(key) {
            DonorProcess::Stale => return self.counters.stale += 1,
            DonorProcess::Restarted => self.donor_restarted(now, from),
            DonorProcess::Present => {}
        }
        let socket = message.command.socket().copied();
        let is_other = self.moves.get(key).is_some_and(|slot| Some(slot.socket) != socket);
        match &message.command {
            _ if is_other => self.counters.unexpected += 1,
            LccpCommand::Offer(socket, fragment) => self.offer(now, key, *socket, fragment),
            LccpCommand::Go(socket) => self.go(now, key, *socket),
            LccpCommand::Abort(socket) => self.abort(now, key, *socket),
            _ => self.counters.unexpected += 1,
        }
        self.check_invariants();
    }

    /// The result of a [`ReceiverAction::Create`].
    pub fn prepared(&mut self, now: Now, key: OfferKey, result: Preparation) {
        let Some(Slot { socket, state }) = self.moves.get(key) else { return };
        let socket = *socket;
        let answer = match *state {
            State::Creating { since } => {
                // If it is late, the donor has given up, or will have before READY arrives.
                let is_late = now.since_ms(since) > self.ready_ms;
                match result {
                    Preparation::Restored if !is_late => None,
                    Preparation::Restored => Some(Answer::Refuse(RefuseCause::Late)),
                    Preparation::NotRestored => Some(Answer::Refuse(RefuseCause::Restore)),
                    Preparation::NoRoom => Some(Answer::Refuse(RefuseCause::Full)),
                    Preparation::NotCreated => Some(Answer::Refuse(RefuseCause::Netguard)),
                }
            }
            State::Abandoned { answer } => Some(answer),
            _ => return,
        };
        // If nothing was created, the flow may be blocked for another move, and stays so.
        let is_made = matches!(result, Preparation::Restored | Preparation::NotRestored);
        if answer.is_some() && is_made {
            self.actions.push_back(ReceiverAction::Discard(key, socket));
        }
        match answer {
            Some(Answer::Refuse(cause)) => self.refuse(now, key, socket, cause),
            Some(answer) => self.end(now, key, answer),
            None => {
                let retry = Retry::new(now, READY_REPEAT_MS, READY_REPEAT_MS);
                self.set_state(key, State::Ready { retry });
                self.send(key, LccpCommand::Ready(socket));
            }
        }
        self.check_invariants();
    }

    /// The result of the order in the last action of this move.
    pub fn ordered(&mut self, now: Now, key: OfferKey, result: OrderResult) {
        let Some(Slot { socket, state }) = self.moves.get(key) else { return };
        let socket = *socket;
        match (state, result) {
            (State::Starting, OrderResult::Done) => {
                self.counters.served += 1;
                self.end(now, key, Answer::Done);
                self.actions.push_back(ReceiverAction::Serve(key, socket));
                self.send(key, LccpCommand::Done(socket));
            }
            (State::Starting, OrderResult::Refused) => {
                self.counters.not_started += 1;
                self.reset(key, socket);
            }
            (State::Resetting, _) => {
                self.end(now, key, Answer::Gone);
                self.actions.push_back(ReceiverAction::Closed(key, socket));
            }
            _ => {}
        }
        self.check_invariants();
    }

    /// Advances the time.
    pub fn tick(&mut self, now: Now) {
        self.moves.forget(now);
        for key in self.timers.take_due(now) {
            self.due(now, key);
            self.set_timer(key);
        }
        self.check_invariants();
    }

    /// The latest time for the next call of [`Receiver::tick`].
    pub fn next_due(&self) -> Option<Now> {
        self.timers.next()
    }

    /// The pending actions, in order.
    pub fn actions(&mut self) -> impl Iterator<Item = ReceiverAction> + '_ {
        self.actions.drain(..)
    }

    /// The number of moves in progress.
    pub fn in_flight(&self) -> usize {
        self.flows.len()
    }

    pub fn counters(&self) -> &ReceiverCounters {
        &self.counters
    }

    fn offer(&mut self, now: Now, key: OfferKey, socket: SocketId, fragment: &Fragment) {
        match self.moves.get_mut(key).map(|slot| &mut slot.state) {
            None => self.first_offer(now, key, socket, fragment),
            Some(State::Assembling { since, assembly }) => {
                let since = *since;
                if let Some(whole) = assembly.take(fragment) {
                    self.offered(now, key, socket, since, &whole);
                }
            }
            Some(State::Ready { .. }) => self.send(key, LccpCommand::Ready(socket)),
            Some(&mut (State::Ended(answer) | State::Abandoned { answer })) => {
                self.send(key, answer.command(socket));
            }
            Some(State::Resetting) => self.send(key, LccpCommand::Gone(socket)),
            // The answer follows.
            Some(State::Creating { .. } | State::Starting) => {}
        }
    }

    fn first_offer(&mut self, now: Now, key: OfferKey, socket: SocketId, fragment: &Fragment) {
        if self.moves.is_forgotten(key) {
            self.counters.refused[RefuseCause::Late as usize - 1] += 1;
            return self.send(key, LccpCommand::Refuse(socket, RefuseCause::Late));
        }
        self.counters.offered += 1;
        let refusal = match () {
            () if !self.is_open => Some(RefuseCause::NotServing),
            () if self.flows.contains_key(&socket) => Some(RefuseCause::Busy),
            () if self.flows.len() >= MOVES_IN_FLIGHT_MAX => Some(RefuseCause::Full),
            () => None,
        };
        if let Some(cause) = refusal {
            let answer = Answer::Refuse(cause);
            self.counters.refused[cause as usize - 1] += 1;
            return self.answer_unknown(now, key, socket, answer);
        }
        let mut assembly = Assembly::new(fragment.count);
        let whole = assembly.take(fragment);
        let state = State::Assembling { since: now, assembly };
        self.flows.insert(socket, key);
        self.moves.insert(key, Slot { socket, state });
        self.set_timer(key);
        if let Some(whole) = whole {
            self.offered(now, key, socket, now, &whole);
        }
    }

    /// All fragments of an offer were received.
    fn offered(&mut self, now: Now, key: OfferKey, socket: SocketId, since: Now, whole: &[u8]) {
        match HandoffInfo::decode(whole) {
            Ok(info) => {
                self.set_state(key, State::Creating { since });
                self.actions.push_back(ReceiverAction::Create(key, socket, Box::new(info)));
            }
            Err(_) => self.refuse(now, key, socket, RefuseCause::Malformed),
        }
    }

    fn go(&mut self, now: Now, key: OfferKey, socket: SocketId) {
        match self.moves.get(key).map(|slot| &slot.state) {
            Some(State::Ready { .. }) => {
                self.set_state(key, State::Starting);
                self.actions.push_back(ReceiverAction::Start(key, socket));
            }
            Some(State::Starting) => {}
            Some(State::Ended(Answer::Done)) => self.send(key, LccpCommand::Done(socket)),
            // The donor received READY from a previous process, and this one has only its repeated
            // offer.
            Some(State::Assembling { .. }) => {
                self.counters.gone += 1;
                self.end(now, key, Answer::Gone);
                self.send(key, LccpCommand::Gone(socket));
            }
            Some(State::Creating { .. }) => {
                self.counters.gone += 1;
                self.set_state(key, State::Abandoned { answer: Answer::Gone });
                self.send(key, LccpCommand::Gone(socket));
            }
            Some(State::Abandoned { .. } | State::Resetting | State::Ended(_)) => {
                self.send(key, LccpCommand::Gone(socket));
            }
            None => {
                self.counters.gone += 1;
                self.answer_unknown(now, key, socket, Answer::Gone);
            }
        }
    }

    fn abort(&mut self, now: Now, key: OfferKey, socket: SocketId) {
        match self.moves.get(key).map(|slot| &slot.state) {
            None => return self.answer_unknown(now, key, socket, Answer::Aborted),
            Some(State::Assembling { .. }) => self.end(now, key, Answer::Aborted),
            Some(State::Creating { .. }) => {
                self.set_state(key, State::Abandoned { answer: Answer::Aborted });
            }
            Some(State::Ready { .. }) => {
                self.actions.push_back(ReceiverAction::Discard(key, socket));
                self.end(now, key, Answer::Aborted);
            }
            // No correct donor sends both GO and ABORT.
            Some(State::Starting | State::Ended(Answer::Done)) => {
                return self.counters.unexpected += 1;
            }
            Some(State::Abandoned { .. } | State::Resetting | State::Ended(_)) => {
                return self.send(key, LccpCommand::Aborted(socket));
            }
        }
        self.counters.aborted += 1;
        self.send(key, LccpCommand::Aborted(socket));
    }

    /// The donor's previous process is gone: it will send no decision.
    fn donor_restarted(&mut self, now: Now, donor: PeerId) {
        for key in self.moves.earlier(donor) {
            let Some(Slot { socket, state }) = self.moves.get(key) else { continue };
            let socket = *socket;
            match state {
                State::Assembling { .. } => self.end(now, key, Answer::Gone),
                State::Creating { .. } => {
                    self.set_state(key, State::Abandoned { answer: Answer::Gone });
                }
                State::Ready { .. } => {
                    self.counters.undecided += 1;
                    self.reset(key, socket);
                }
                State::Abandoned { .. } | State::Starting | State::Resetting | State::Ended(_) => {}
            }
        }
    }

    /// Handles an expired timer of a move.
    fn due(&mut self, now: Now, key: OfferKey) {
        let Some(Slot { socket, state }) = self.moves.get_mut(key) else { return };
        let socket = *socket;
        match state {
            State::Assembling { .. } => self.refuse(now, key, socket, RefuseCause::Late),
            State::Ready { retry } if retry.age_ms(now) >= UNDECIDED_MS => {
                self.counters.undecided += 1;
                self.reset(key, socket);
            }
            State::Ready { retry } => {
                if retry.is_due(now) {
                    self.send(key, LccpCommand::Ready(socket));
                }
            }
            State::Creating { .. }
            | State::Abandoned { .. }
            | State::Starting
            | State::Resetting
            | State::Ended(_) => {}
        }
    }

    fn reset(&mut self, key: OfferKey, socket: SocketId) {
        self.set_state(key, State::Resetting);
        self.actions.push_back(ReceiverAction::Reset(key, socket));
    }

    fn refuse(&mut self, now: Now, key: OfferKey, socket: SocketId, cause: RefuseCause) {
        self.counters.refused[cause as usize - 1] += 1;
        self.end(now, key, Answer::Refuse(cause));
        self.send(key, LccpCommand::Refuse(socket, cause));
    }

    /// Records an unknown move as ended, so that a late offer of it is refused.
    fn answer_unknown(&mut self, now: Now, key: OfferKey, socket: SocketId, answer: Answer) {
        if !self.moves.is_forgotten(key) {
            self.moves.insert(key, Slot { socket, state: State::Ended(answer) });
            self.moves.ended(now, key);
        }
        self.send(key, answer.command(socket));
    }

    fn end(&mut self, now: Now, key: OfferKey, answer: Answer) {
        self.timers.set(key, None);
        let Some(slot) = self.moves.get_mut(key) else { return };
        slot.state = State::Ended(answer);
        self.flows.remove(&slot.socket);
        self.moves.ended(now, key);
    }

    fn send(&mut self, key: OfferKey, command: LccpCommand) {
        self.actions.push_back(ReceiverAction::Send(key.donor, Lccp { id: key.id, command }));
    }

    fn set_state(&mut self, key: OfferKey, state: State) {
        if let Some(slot) = self.moves.get_mut(key) {
            slot.state = state;
        }
        self.set_timer(key);
    }

    fn set_timer(&mut self, key: OfferKey) {
        let due = self.moves.get(key).and_then(|slot| slot.state.due(self.ready_ms));
        self.timers.set(key, due);
    }

    /// Checks the moves in progress; all of them are in `flows`.
    fn check_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        debug_assert!(self.flows.len() <= MOVES_IN_FLIGHT_MAX, "{} moves", self.flows.len());
        debug_assert!(self.moves.ends() <= REMEMBERED_MAX, "{} ends", self.moves.ends());
        for (socket, key) in &self.flows {
            let slot = self.moves.get(*key);
            let is_open = slot.is_some_and(|it| it.socket == *socket && !it.state.has_ended());
            debug_assert!(is_open, "{key:?} has ended, or is of another connection");
        }
        let is_open = |key: &OfferKey| self.moves.get(*key).is_some_and(|it| !it.state.has_ended());
        debug_assert!(self.timers.keys().all(is_open), "a timer of a move that has ended");
    }
}
