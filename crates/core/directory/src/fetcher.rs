//! How a node gets a segment that it does not have.
//!
//! One [`Fetcher`] for each growing segment. It returns the next action; the caller
//! performs it and reports the result:
//!
//! ```text
//!   Ask --Have--> FetchFrom 1st --> FetchFrom 2nd --> Ask again | FillFromOrigin
//!    |---Busy---> FetchFrom leader --> TellNotThere, Ask again at the offset
//!    |---Grant--> FillFromOrigin, under a lease --> TellEnded
//!    |---Later--> Wait, Ask again; so, too, without a connection to spare
//!    +-silence--> FetchFrom owner --> FillFromOrigin
//! ```
//!
//! Invariants: every fetch ends, after a bounded number of attempts; bytes that
//! have arrived are never requested again; the end of a granted lease is always
//! reported.

use skep_units::Now;
use skep_wire::cache::{LeaseId, PeerRefusal};
use skep_wire::limits::HOLDERS_TOLD_MAX;

use crate::limits::{ASKS_MAX, GIVE_UP_MS, LATER_MS, LATERS_MAX, OVERLOADED_WAIT_MS};

/// The next action. `P` identifies a node in the caller's terms, equal for the same node. (Member
/// numbers are not sufficient: they differ between coordinators, and each must receive its own.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchAction<P> {
    /// Ask the active coordinator, then [`FetchEvent::Answer`]; or [`FetchEvent::NoAnswer`]
    /// after a bounded time, or at once if none is linked.
    Ask,
    /// Fetch the bytes from `from` on, then [`FetchEvent::Fetched`].
    FetchFrom {
        /// The node to fetch from.
        peer: P,
        /// Bytes that have already arrived.
        from: u32,
        /// Whether to name the source of the segment, so that the other node fills
        /// it if it must.
        with_origin: bool,
    },
    /// Read the origin from `from` on, then [`FetchEvent::Filled`]. Under a lease, renew the lease
    /// meanwhile.
    FillFromOrigin {
        /// Bytes that have already arrived.
        from: u32,
        /// The lease, if any.
        lease: Option<LeaseId>,
    },
    /// Report to the coordinator that named `peer` that it does not serve the segment, then
    /// [`FetchEvent::Told`].
    TellNotThere { peer: P },
    /// Report to the coordinator that granted the lease that it has ended, then
    /// [`FetchEvent::Told`].
    TellEnded {
        lease: LeaseId,
        /// Whether all bytes have arrived. (Report the segment as held only if it is also kept.)
        is_whole: bool,
    },
    /// Wait for `ms`, then [`FetchEvent::Waited`].
    Wait {
        /// Milliseconds.
        ms: u64,
    },
    /// All bytes have arrived.
    Done,
    /// The bytes are unavailable. Readers get only those that have arrived.
    Failed,
}

/// The source of the next bytes of a growing segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FillSource<P> {
    /// This node's own disk, or its origin; or there is none yet.
    #[default]
    Local,
    /// Another node.
    Peer {
        id: P,
        /// Whether it is assumed to be the owner, in the absence of a coordinator.
        is_owner: bool,
    },
    /// A remote fill: another node reads the segment from its own disk or from an origin,
    /// and depends on no other node.
    RemoteFill { id: P },
}

impl<P: Copy> FetchAction<P> {
    /// The source of the next bytes, if more are expected.
    pub fn fill_source(&self) -> Option<FillSource<P>> {
        match *self {
            Self::FetchFrom { peer: id, with_origin: is_owner, .. } => {
                Some(FillSource::Peer { id, is_owner })
            }
            Self::Ask | Self::Wait { .. } | Self::FillFromOrigin { .. } => Some(FillSource::Local),
            _ => None,
        }
    }
}

impl<P> FillSource<P> {
    /// The same, with nodes identified by another type.
    pub fn map<Q>(self, word: impl FnOnce(P) -> Q) -> FillSource<Q> {
        match self {
            Self::Local => FillSource::Local,
            Self::Peer { id, is_owner } => FillSource::Peer { id: word(id), is_owner },
            Self::RemoteFill { id } => FillSource::RemoteFill { id: word(id) },
        }
    }
}

impl<P: PartialEq> FillSource<P> {
    /// Whether `peer` may read the segment while it grows. Not if we wait for it in turn; and not
    /// if we wait for an owner that this node computed itself, since other nodes may compute
    /// another one: all other waits follow the order of the coordinator's answers, and cannot form
    /// a cycle. A node that reads a disk or an origin waits for no other node.
    pub fn may_serve(&self, peer: &P) -> bool {
        match self {
            Self::Local => true,
            Self::RemoteFill { id } => id != peer,
            Self::Peer { id, is_owner } => !is_owner && id != peer,
        }
    }
}

/// The result of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchEvent<P> {
    /// The initial event.
    Begin,
    /// An answer was received in time.
    Answer(ResolvedAnswer<P>),
    /// No answer was received, or it was a refusal.
    NoAnswer {
        /// The owner of the segment among the known nodes
        /// ([`RendezvousHash::owner`](crate::RendezvousHash::owner)); `None` if it is this node.
        owner: Option<P>,
    },
    /// A fetch from a node has ended.
    Fetched {
        /// Bytes that have arrived in all.
        filled: u32,
        /// How it ended.
        end: FetchOutcome,
    },
    /// Reading the origin has ended.
    Filled {
        /// Bytes that have arrived in all; if not all, it failed.
        filled: u32,
    },
    /// The report was sent to the coordinator, or cannot be, since it is not linked.
    Told,
    /// The wait is over.
    Waited,
}

/// An answer, with nodes in the caller's terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolvedAnswer<P> {
    /// These nodes hold it.
    Have {
        /// In the order in which to try them.
        holders: Vec<P>,
    },
    /// `leader` fills it.
    Busy { leader: P },
    /// This node fills it.
    Grant {
        /// The lease of the fill.
        lease: LeaseId,
    },
    /// The answer may be known in a moment.
    Later,
}

/// How a fetch from a node ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchOutcome {
    /// All bytes were received.
    Whole,
    /// The node refused.
    Refused(PeerRefusal),
    /// The node could not be reached, was silent, broke off or sent an invalid reply.
    Lost,
    /// The request was not sent, since this node has no free connection. This does not depend on
    /// the other node.
    Crowded,
}

#[derive(Clone, Debug)]
pub struct Fetcher<P> {
    bytes: u32,
    filled: u32,
    step: Step<P>,
    /// Holders that were named and not yet tried.
    holders: Vec<P>,
    /// Whether a failure was reported to the coordinator since its last answer, so that asking
    /// again makes sense.
    has_told: bool,
    asks_left: u32,
    laters_left: u32,
    is_for_peer: bool,
    give_up_at: Now,
}

/// The action in progress, or returned last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step<P> {
    Begin,
    Asking,
    Fetching(P, PeerRole),
    Filling(Option<LeaseId>),
    TellingNotThere(PeerRole),
    TellingEnded { is_whole: bool },
    Waiting,
    Over,
}

/// Why a node is fetched from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerRole {
    Holder,
    Leader,
    Owner,
}

impl<P: Copy + PartialEq> Fetcher<P> {
    /// A fetch of a segment of `bytes` bytes, none of which have arrived.
    pub fn new(bytes: u32, now: Now) -> Self {
        assert!(bytes > 0, "nothing to fetch");
        Self {
            bytes,
            filled: 0,
            step: Step::Begin,
            holders: Vec::new(),
            has_told: false,
            asks_left: ASKS_MAX,
            laters_left: LATERS_MAX,
            is_for_peer: false,
            give_up_at: now.plus_ms(GIVE_UP_MS),
        }
    }

    /// The same, for a node that considers this node the owner: the request is not forwarded to the
    /// node that this node considers the owner.
    pub fn for_peer(bytes: u32, now: Now) -> Self {
        Self { is_for_peer: true, ..Self::new(bytes, now) }
    }

    /// The next action, after the result of the last one, `event`.
    ///
    /// # Panics
    /// If the event is no result of the last action.
    pub fn next(&mut self, event: FetchEvent<P>, now: Now) -> FetchAction<P> {
        match (self.step, event) {
            (Step::Begin, FetchEvent::Begin) | (Step::Waiting, FetchEvent::Waited) => self.ask(now),
            (Step::Asking, FetchEvent::Answer(reply)) => self.answered(reply, now),
            (Step::Asking, FetchEvent::NoAnswer { owner }) => match owner {
                Some(owner) if !self.is_for_peer => self.fetch(owner, PeerRole::Owner),
                _ => self.fill(None, now),
            },
            (Step::Fetching(peer, role), FetchEvent::Fetched { filled, end }) => {
                self.has(filled);
                self.fetched(peer, role, end, now)
            }
            (Step::TellingNotThere(PeerRole::Holder), FetchEvent::Told) => self.next_holder(now),
            (Step::TellingNotThere(_), FetchEvent::Told) => self.ask(now),
            (Step::Filling(lease), FetchEvent::Filled { filled }) => {
                self.has(filled);
                self.origin_ended(lease)
            }
            (Step::TellingEnded { is_whole }, FetchEvent::Told) => self.over(is_whole),
            _ => unreachable!("the event is no result of the last action"),
        }
    }

    fn ask(&mut self, now: Now) -> FetchAction<P> {
        if self.asks_left == 0 {
            return self.fill(None, now);
        }
        if now >= self.give_up_at {
            return self.over(false);
        }
        self.asks_left -= 1;
        self.has_told = false;
        self.step = Step::Asking;
        FetchAction::Ask
    }

    fn answered(&mut self, reply: ResolvedAnswer<P>, now: Now) -> FetchAction<P> {
        match reply {
            ResolvedAnswer::Have { mut holders } => {
                holders.truncate(HOLDERS_TOLD_MAX);
                // They are taken from the end.
                holders.reverse();
                self.holders = holders;
                self.next_holder(now)
            }
            ResolvedAnswer::Busy { leader } => self.fetch(leader, PeerRole::Leader),
            ResolvedAnswer::Grant { lease } => self.fill(Some(lease), now),
            ResolvedAnswer::Later => self.later(now),
        }
    }

    /// Waits and asks again; this does not count as one of the requests.
    fn later(&mut self, now: Now) -> FetchAction<P> {
        if self.laters_left == 0 {
            return self.fill(None, now);
        }
        self.laters_left -= 1;
        self.asks_left += 1;
        self.step = Step::Waiting;
        FetchAction::Wait { ms: LATER_MS }
    }

    fn next_holder(&mut self, now: Now) -> FetchAction<P> {
        match self.holders.pop() {
            Some(holder) => self.fetch(holder, PeerRole::Holder),
            None if self.has_told => self.ask(now),
            None => self.fill(None, now),
        }
    }

    fn fetch(&mut self, peer: P, role: PeerRole) -> FetchAction<P> {
        self.step = Step::Fetching(peer, role);
        FetchAction::FetchFrom { peer, from: self.filled, with_origin: role == PeerRole::Owner }
    }

    fn fetched(&mut self, peer: P, role: PeerRole, end: FetchOutcome, now: Now) -> FetchAction<P> {
        if self.filled == self.bytes {
            return self.over(true);
        }
        let is_overloaded = end == FetchOutcome::Refused(PeerRefusal::Overloaded);
        match (role, end) {
            (_, FetchOutcome::Crowded) => self.later(now),
            (PeerRole::Owner, _) => self.fill(None, now),
            (PeerRole::Leader, _) if is_overloaded => {
                self.step = Step::Waiting;
                // Twice as long each time. Waiting pays off, since every node that fills the
                // segment for itself costs one more fill.
                FetchAction::Wait { ms: OVERLOADED_WAIT_MS << (ASKS_MAX - 1 - self.asks_left) }
            }
            // The first to report that a leader is gone gets its lease.
            (PeerRole::Leader, _) => self.tell_not_there(peer, role),
            (
                PeerRole::Holder,
                FetchOutcome::Refused(PeerRefusal::NotThere | PeerRefusal::Mismatch),
            ) => self.tell_not_there(peer, role),
            // Other nodes may reach it.
            (PeerRole::Holder, _) => self.next_holder(now),
        }
    }

    fn tell_not_there(&mut self, peer: P, role: PeerRole) -> FetchAction<P> {
        self.has_told = true;
        self.step = Step::TellingNotThere(role);
        FetchAction::TellNotThere { peer }
    }

    fn fill(&mut self, lease: Option<LeaseId>, now: Now) -> FetchAction<P> {
        if lease.is_none() && now >= self.give_up_at {
            return self.over(false);
        }
        self.step = Step::Filling(lease);
        FetchAction::FillFromOrigin { from: self.filled, lease }
    }

    fn origin_ended(&mut self, lease: Option<LeaseId>) -> FetchAction<P> {
        let is_whole = self.filled == self.bytes;
        let Some(lease) = lease else { return self.over(is_whole) };
        self.step = Step::TellingEnded { is_whole };
        FetchAction::TellEnded { lease, is_whole }
    }

    fn over(&mut self, is_whole: bool) -> FetchAction<P> {
        self.step = Step::Over;
        if is_whole { FetchAction::Done } else { FetchAction::Failed }
    }

    fn has(&mut self, filled: u32) {
        let range = self.filled..=self.bytes;
        assert!(range.contains(&filled), "{filled} bytes of {range:?}");
        self.filled = filled;
    }
}
