//! Turns: which of the nodes that want more have the slots that cannot be divided evenly. Round
//! robin, as for processes that outnumber the processors: a turn has a length, but requests that
//! began in it are not interrupted.
//!
//! ```text
//!   waits --a slot is free, nobody waits longer--> has its turn
//!     ^                                              | SLOT_TURN_MS, and somebody waits
//!     +---its requests have ended-- gives way <------+
//! ```
//!
//! The order does not depend on the length of requests: a node that has given way waits until all
//! others that want a turn have had one.

use skep_units::Now;

use crate::limits::SLOT_TURN_MS;

/// The turn of a node at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// When its turn began; `None` if it has none.
    began: Option<Now>,
    /// When it last had more than is due to it without a turn.
    had: Now,
}

/// A node that wants more than is due to it.
#[derive(Debug)]
pub(super) struct TurnCandidate<'a> {
    pub(super) turn: &'a mut Turn,
    /// Whether it may still use more slots than are due to it without a turn.
    pub(super) has_more: bool,
}

impl Turn {
    /// The turn of a new node: after those of the others.
    pub(super) fn new(now: Now) -> Self {
        Self { began: None, had: now }
    }

    pub(super) fn end(&mut self) {
        self.began = None;
    }

    /// Slots beyond those that are due to it without a turn.
    pub(super) fn slots(self) -> u32 {
        u32::from(self.began.is_some())
    }

    /// The key by which nodes are served: those that have waited longest first.
    pub(super) fn had(self) -> Now {
        self.had
    }
}

/// Begins turns, at most `rest` in all, if slots are `free`. Slots that were withdrawn from nodes
/// are not free as long as the nodes may still use them.
pub(super) fn begin(now: Now, rest: usize, free: u32, candidates: &mut [TurnCandidate<'_>]) {
    candidates.sort_by_key(|candidate| candidate.turn.had);
    for candidate in candidates.iter_mut().filter(|it| it.has_more || it.turn.began.is_some()) {
        candidate.turn.had = now;
    }
    let mut turns = candidates.iter().filter(|candidate| candidate.turn.began.is_some()).count();
    let mut free = free as usize;
    let mut is_anyone_waiting = false;
    for candidate in candidates.iter_mut().filter(|it| !it.has_more && it.turn.began.is_none()) {
        if turns < rest && free > 0 {
            *candidate.turn = Turn { began: Some(now), had: now };
            (turns, free) = (turns + 1, free - 1);
        } else {
            is_anyone_waiting = true;
        }
    }
    // Slots that nobody waits for stay where they are.
    let keeping = if is_anyone_waiting { 0 } else { rest.saturating_sub(turns) };
    let leaving = candidates.iter_mut().filter(|it| it.has_more && it.turn.began.is_none());
    leaving.take(keeping).for_each(|candidate| candidate.turn.began = Some(now));
}

/// Ends turns: those beyond `rest`, and expired ones if more nodes wait than slots are `coming`.
pub(super) fn end(now: Now, rest: usize, coming: u32, candidates: &mut [TurnCandidate<'_>]) {
    let is_waiting =
        |candidate: &&TurnCandidate<'_>| !candidate.has_more && candidate.turn.began.is_none();
    let unserved = candidates.iter().filter(is_waiting).count().saturating_sub(coming as usize);
    let mut having: Vec<_> = candidates.iter_mut().filter(|it| it.turn.began.is_some()).collect();
    having.sort_by_key(|candidate| candidate.turn.began);
    let surplus = having.len().saturating_sub(rest);
    for (place, candidate) in having.into_iter().enumerate() {
        let is_over = candidate.turn.began.is_some_and(|it| now >= it.plus_ms(SLOT_TURN_MS));
        if place < surplus || (place < surplus + unserved && is_over) {
            candidate.turn.end();
        }
    }
}
