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

/// The next action. `P` identifies a node in the caller's terms, equal for
/// the same node. (Numbers of members are not enough: they differ between
/// coordinators, and each must get its own.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchAction<P> {
    /// Ask the active coordinator, then [`FetchEvent::Answer`]; or [`FetchEvent::NoAnswer`]
    /// after a bounded time, or at once if none is linked.
    Ask,
    /// Fetch the bytes from `from` on, then [`FetchEvent::Fetched`].
    FetchFrom {
        /// The node to fetch from.
        peer: P,
        /// Bytes that are there.
        from: u32,
        /// Whether to name the source of the segment, so that the other node fills
        /// it if it must.
        with_origin: bool,
    },
    /// Read the origin from `from` on, then [`FetchEvent::Filled`]. Under a lease,
    /// renew the lease while you do.
    FillFromOrigin {
        /// Bytes that are there.
        from: u32,
        /// Under this lease, if any.
        lease: Option<LeaseId>,
    },
    /// Report to the coordinator that named it that `peer` does not serve this,
    /// then [`FetchEvent::Told`].
    TellNotThere { peer: P },
    /// Report to the coordinator that granted it that the lease has ended, then
    /// [`FetchEvent::Told`].
    TellEnded {
        lease: LeaseId,
        /// Whether all bytes are there. (Tell it that the segment is held only
        /// if it is kept, too.)
        is_whole: bool,
    },
    /// Wait so long, then [`FetchEvent::Waited`].
    Wait {
        /// How long.
        ms: u64,
    },
    /// All bytes are there.
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
        /// Whether it is taken for the owner, in the absence of a coordinator.
        is_owner: bool,
    },
    /// A remote fill: another node reads the segment from its own disk or from an origin,
    /// and depends on no other node.
    RemoteFill { id: P },
}

impl<P: Copy> FetchAction<P> {
    /// The source of the next bytes, if there are to be more.
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
    /// The same in other words for nodes.
    pub fn map<Q>(self, word: impl FnOnce(P) -> Q) -> FillSource<Q> {
        match self {
            Self::Local => FillSource::Local,
            Self::Peer { id, is_owner } => FillSource::Peer { id: word(id), is_owner },
            Self::RemoteFill { id } => FillSource::RemoteFill { id: word(id) },
        }
    }
}

impl<P: PartialEq> FillSource<P> {
    /// Whether `peer` may read what grows here. Not if we wait for it in turn; and not
    /// if we hang on an owner by our own reckoning, since its reckoning may differ: all
    /// other waits follow the order of the coordinator's answers, and can't form a
    /// circle. Who reads a disk or an origin waits for nobody.
    pub fn may_serve(&self, peer: &P) -> bool {
        match self {
            Self::Local => true,
            Self::RemoteFill { id } => id != peer,
            Self::Peer { id, is_owner } => !is_owner && id != peer,
        }
    }
}

/// How it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchEvent<P> {
    /// The first one.
    Begin,
    /// An answer came in time.
    Answer(ResolvedAnswer<P>),
    /// None came, or it was a refusal.
    NoAnswer {
        /// Who owns the segment among the nodes that are known
        /// ([`RendezvousHash::owner`](crate::RendezvousHash::owner)); `None` if it is this one.
        owner: Option<P>,
    },
    /// A fetch from a node is over.
    Fetched {
        /// Bytes that are there now, those before included.
        filled: u32,
        /// How it ended.
        end: FetchOutcome,
    },
    /// Reading the origin is over.
    Filled {
        /// Bytes that are there now; all of them, or it failed.
        filled: u32,
    },
    /// The coordinator was told (or is not linked, and can't be).
    Told,
    /// The time is over.
    Waited,
}

/// An answer, with nodes in the terms of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolvedAnswer<P> {
    /// These hold it.
    Have {
        /// The one to try first is the first.
        holders: Vec<P>,
    },
    /// It fills it.
    Busy { leader: P },
    /// We fill it.
    Grant {
        /// Under this lease.
        lease: LeaseId,
    },
    /// It may be known in a moment.
    Later,
}

/// How a fetch from a node ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchOutcome {
    /// With all bytes.
    Whole,
    /// The node refused.
    Refused(PeerRefusal),
    /// Not reached, silent, broken off or not to be understood.
    Lost,
    /// The request was not sent: this node has no connection to spare. This does not affect
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
    /// Whether the coordinator learnt something from the last answer's failure,
    /// so that asking again makes sense.
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
    /// A fetch of a segment of `bytes` bytes, of which none are there.
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

    /// The same, for a node that takes us for the owner: we do not send on to
    /// whom we take for it.
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
                // From the end, the first one first.
                holders.reverse();
                self.holders = holders;
                self.next_holder(now)
            }
            ResolvedAnswer::Busy { leader } => self.fetch(leader, PeerRole::Leader),
            ResolvedAnswer::Grant { lease } => self.fill(Some(lease), now),
            ResolvedAnswer::Later => self.later(now),
        }
    }

    /// Waits until it is better to ask, which does not count then.
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
                // Twice as long each time; it is worth it, since who fills for
                // itself fills it once more for all.
                FetchAction::Wait { ms: OVERLOADED_WAIT_MS << (ASKS_MAX - 1 - self.asks_left) }
            }
            // The first to report that a leader is gone gets its lease.
            (PeerRole::Leader, _) => self.tell_not_there(peer, role),
            (
                PeerRole::Holder,
                FetchOutcome::Refused(PeerRefusal::NotThere | PeerRefusal::Mismatch),
            ) => self.tell_not_there(peer, role),
            // Others may reach it.
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
