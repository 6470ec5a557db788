//! A node's slots of one server.

use skep_units::Now;
use skep_wire::cache::{ServerKey, SlotUse};

use crate::limits::{SLOTS_FIRST_MS, SLOTS_KEPT_MS, SLOTS_SILENT_MS, SLOTS_WANTED_MS};

/// See the module. The limit of a node that has just started is 0, until a coordinator grants it
/// some, or none is there.
#[derive(Debug)]
pub struct SlotHolder {
    slots_max: u32,
    /// Of a node without a coordinator.
    share: u32,
    state: State,
    followed: Option<u64>,
    /// When it followed one last.
    linked_at: Option<Now>,
    wanted: Peak,
    in_use: u32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// For a coordinator, until then.
    Waits {
        until: Now,
    },
    Granted(u32),
    /// The coordinator was lost; until then its grant is in force.
    Keeps {
        slots: u32,
        until: Now,
    },
    /// No coordinator.
    Alone,
}

/// The most of the last [`SLOTS_WANTED_MS`].
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    now: u32,
    before: u32,
    began: Option<Now>,
}

impl SlotHolder {
    /// Of a server with `slots_max` slots, of which a node without a coordinator has `share`.
    pub fn new(now: Now, slots_max: u32, share: u32) -> Self {
        let state = State::Waits { until: now.plus_ms(SLOTS_FIRST_MS) };
        Self {
            slots_max,
            share,
            state,
            followed: None,
            linked_at: None,
            wanted: Peak::default(),
            in_use: 0,
        }
    }

    /// The config has changed.
    pub fn set_bounds(&mut self, slots_max: u32, share: u32) {
        (self.slots_max, self.share) = (slots_max, share);
    }

    /// The coordinator that the node follows has granted so many.
    pub fn granted(&mut self, slots: u32) {
        self.state = State::Granted(slots);
    }

    /// What is true now: the term of the coordinator that the node follows, what it uses, and how many
    /// requests wait for more.
    pub fn look(&mut self, now: Now, followed: Option<u64>, in_use: u32, waiting: u32) {
        self.in_use = in_use;
        self.wanted.see(now, in_use.saturating_add(waiting));
        let is_linked = followed.is_some();
        self.state = match self.state {
            State::Waits { .. } if followed != self.followed => {
                let wait_ms = if is_linked { SLOTS_SILENT_MS } else { SLOTS_KEPT_MS };
                State::Waits { until: now.plus_ms(wait_ms) }
            }
            State::Waits { until } if now >= until => State::Alone,
            State::Granted(slots) if !is_linked => {
                // Of a process that was paused nobody else knows that it was here until now.
                let since = self.linked_at.unwrap_or(now);
                State::Keeps { slots, until: since.plus_ms(SLOTS_KEPT_MS) }
            }
            State::Keeps { slots, .. } if is_linked => State::Granted(slots),
            state => state,
        };
        // One that is found lost late is not used any more.
        if let State::Keeps { until, .. } = self.state
            && now >= until
            && !is_linked
        {
            self.state = State::Alone;
        }
        self.followed = followed;
        if is_linked {
            self.linked_at = Some(now);
        }
    }

    /// Requests that the node may have at the server.
    pub fn limit(&self) -> u32 {
        let slots = match self.state {
            State::Waits { .. } => 0,
            State::Granted(slots) | State::Keeps { slots, .. } => slots,
            State::Alone => self.share,
        };
        slots.min(self.slots_max)
    }

    /// What coordinators are told.
    pub fn report(&self, server: ServerKey) -> SlotUse {
        SlotUse {
            server,
            slots_max: self.slots_max,
            held: self.limit().max(self.in_use),
            wanted: self.wanted.most().min(self.slots_max),
        }
    }
}

impl Peak {
    fn see(&mut self, now: Now, value: u32) {
        let began = *self.began.get_or_insert(now);
        if now.since_ms(began) >= SLOTS_WANTED_MS / 2 {
            (self.before, self.now, self.began) = (self.now, 0, Some(now));
        }
        self.now = self.now.max(value);
    }

    fn most(self) -> u32 {
        self.now.max(self.before)
    }
}
