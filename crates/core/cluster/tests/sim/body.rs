//! Common parts of all machines: a clock, pauses, and datagrams that arrive meanwhile.

use std::collections::VecDeque;
use std::sync::Arc;

use skep_units::{Now, Rng};
use skep_wire::message::{DispatcherHeartbeat, Message, Name, NodeHeartbeat};
use skep_wire::seal::{PeerId, Stamp};

use crate::net::Id;

/// The contents of a datagram.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Dispatcher(Arc<DispatcherHeartbeat>, Stamp),
    Node(Arc<NodeHeartbeat>, Stamp),
    /// A table, as a whole or as a delta.
    Table(Arc<Message>),
}

/// A machine's own clock: with an arbitrary offset, slightly fast or slow. It never goes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    offset_ms: u64,
    permille: u64,
    /// Milliseconds for which it has stood still.
    stood_ms: u64,
}

impl Clock {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        // More than it will ever stand still.
        let offset_ms = (1 << 20) + rng.below(1 << 40);
        Self { offset_ms, permille: 990 + rng.below(21), stood_ms: 0 }
    }

    pub(crate) fn at(&self, real_ms: u64) -> Now {
        let own_ms = |real_ms: u64| real_ms * self.permille / 1_000;
        Now(self.offset_ms + own_ms(real_ms) - own_ms(self.stood_ms))
    }
}

/// Most datagrams queued for a process that does not run; further ones are lost.
const INBOX_MAX: usize = 1_000;

/// A datagram in the queue of a socket.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    /// When it arrived.
    pub(crate) at: u64,
    /// The same, by the machine's clock.
    pub(crate) now: Now,
    pub(crate) from: Id,
    pub(crate) said: Said,
}

/// What is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// A process. Datagrams that arrive meanwhile are queued.
    Process,
    /// A machine, suspended by its own kernel: no datagrams arrive, and its clock
    /// (`CLOCK_BOOTTIME`) includes the pause.
    Machine,
    /// A virtual machine, paused by its host: no datagrams arrive, and its clock stands still, so
    /// it cannot notice.
    VirtualMachine,
}

/// Common parts of dispatchers and nodes.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    pub(crate) name: Name,
    pub(crate) peer: PeerId,
    pub(crate) clock: Clock,
    pub(crate) is_alive: bool,
    /// Paused until then.
    pub(crate) paused_until: u64,
    /// What is paused until then, and since when.
    pause: Pause,
    paused_at: u64,
    /// Length of the last pause.
    pub(crate) paused_ms: u64,
    /// Datagrams that arrived during the pause.
    inbox: VecDeque<Arrived>,
    pub(crate) stamp: Stamp,
    /// Number of starts, so that timers of an earlier life have no effect.
    pub(crate) life: u64,
    /// Since when it has run without a pause.
    pub(crate) runs_since: u64,
    /// Since when it has run without a pause that it could notice.
    pub(crate) knows_since: u64,
    /// Until when its clock stood still, if it did.
    pub(crate) stood_until: Option<u64>,
}

impl Body {
    pub(crate) fn new(name: &str, rng: &mut Rng) -> Self {
        let name = Name::new(name).unwrap();
        Self {
            peer: name.peer(),
            name,
            clock: Clock::new(rng),
            is_alive: true,
            paused_until: 0,
            pause: Pause::Process,
            paused_at: 0,
            paused_ms: 0,
            inbox: VecDeque::new(),
            stamp: Stamp { incarnation: 1, sequence: 0 },
            life: 1,
            runs_since: 0,
            knows_since: 0,
            stood_until: None,
        }
    }

    pub(crate) fn runs(&self, at: u64) -> bool {
        self.is_alive && at >= self.paused_until
    }

    /// Pauses it for `ms` milliseconds. Returns false if it does not run anyway.
    pub(crate) fn pause(&mut self, at: u64, ms: u64, pause: Pause) -> bool {
        let runs = self.runs(at);
        if runs {
            (self.paused_at, self.paused_until, self.pause) = (at, at + ms, pause);
            self.clock.stood_ms += if self.stands_still() { ms } else { 0 };
        }
        runs
    }

    /// Whether its pause ends exactly now: it may have been woken before.
    pub(crate) fn is_to_wake(&self, at: u64) -> bool {
        self.is_alive && self.paused_until == at
    }

    /// Ends the pause, perhaps early; returns the datagrams that arrived meanwhile.
    pub(crate) fn wake(&mut self, at: u64) -> VecDeque<Arrived> {
        let early_ms = self.paused_until.saturating_sub(at);
        self.clock.stood_ms -= if self.stands_still() { early_ms } else { 0 };
        self.paused_until = self.paused_until.min(at);
        (self.runs_since, self.paused_ms) = (at, at - self.paused_at);
        match self.stands_still() {
            true => self.stood_until = Some(at),
            false => self.knows_since = at,
        }
        self.pause = Pause::Process;
        std::mem::take(&mut self.inbox)
    }

    /// Whether its machine is suspended, too.
    pub(crate) fn is_suspended(&self) -> bool {
        self.pause != Pause::Process
    }

    fn stands_still(&self) -> bool {
        self.pause == Pause::VirtualMachine
    }

    /// Moves the clock ahead.
    pub(crate) fn leap(&mut self, ms: u64) {
        self.clock.offset_ms += ms;
    }

    /// Queues a datagram while it does not run.
    pub(crate) fn keep(&mut self, at: u64, from: Id, said: Said) {
        if !self.is_suspended() && self.inbox.len() < INBOX_MAX {
            let now = self.clock.at(at);
            self.inbox.push_back(Arrived { at, now, from, said });
        }
    }

    /// Since when it has run; perhaps since this very millisecond, before it has noticed.
    pub(crate) fn woke_at(&self) -> u64 {
        self.runs_since.max(self.paused_until)
    }

    pub(crate) fn next_stamp(&mut self) -> Stamp {
        self.stamp.sequence += 1;
        self.stamp
    }

    pub(crate) fn restart(&mut self, at: u64) {
        self.is_alive = true;
        (self.paused_until, self.pause) = (0, Pause::Process);
        self.inbox.clear();
        self.stamp = Stamp { incarnation: self.stamp.incarnation + 1, sequence: 0 };
        self.life += 1;
        (self.runs_since, self.knows_since) = (at, at);
    }
}
