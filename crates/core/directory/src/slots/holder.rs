//! A node's slots of one server of a pool.

use skep_units::Now;
use skep_wire::cache::{ServerKey, SlotUse};

use crate::limits::{SLOTS_FIRST_MS, SLOTS_KEPT_MS, SLOTS_SILENT_MS, SLOTS_WANTED_MS};

/// The slots of a node. The limit of a node that has just started is 0 until a coordinator grants
/// it some, or none is found.
#[derive(Debug)]
pub struct SlotHolder {
    slots_max: u32,
    /// The limit of a node without a coordinator.
    share: u32,
    state: State,
    /// When it last followed a coordinator.
    linked_at: Option<Now>,
    wanted: Peak,
    in_use: u32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Waits for a coordinator.
    Waits { since: Now },
    /// Granted by the coordinator of link `by`.
    Granted { slots: u32, by: u64 },
    /// That link is lost, or the node follows another coordinator, which has granted nothing yet.
    Keeps { slots: u32, by: u64, since: Now },
    /// No coordinator grants slots: the share applies.
    Alone,
}

/// The maximum of the last [`SLOTS_WANTED_MS`].
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    now: u32,
    before: u32,
    began: Option<Now>,
}

impl SlotHolder {
    /// For a server with `slots_max` slots; a node without a coordinator has `share` of them.
    pub fn new(now: Now, slots_max: u32, share: u32) -> Self {
        let state = State::Waits { since: now };
        Self { slots_max, share, state, linked_at: None, wanted: Peak::default(), in_use: 0 }
    }

    /// The config has changed.
    pub fn set_bounds(&mut self, slots_max: u32, share: u32) {
        (self.slots_max, self.share) = (slots_max, share);
    }

    /// The coordinator that the node follows by link `by` has granted this many slots.
    pub fn granted(&mut self, slots: u32, by: u64) {
        self.state = State::Granted { slots, by };
    }

    /// Updates the state: the link of the coordinator that the node follows, the slots in use, and
    /// the number of requests that wait for a slot.
    pub fn look(&mut self, now: Now, followed: Option<u64>, in_use: u32, waiting: u32) {
        self.in_use = in_use;
        self.wanted.see(now, in_use.saturating_add(waiting));
        self.state = match self.state {
            State::Granted { slots, by } if followed != Some(by) => {
                // A process that was paused may have lost the link long ago: count from when it was
                // last seen.
                let lost = if followed.is_none() { self.linked_at } else { None };
                State::Keeps { slots, by, since: lost.unwrap_or(now) }
            }
            State::Keeps { slots, by, .. } if followed == Some(by) => State::Granted { slots, by },
            state => state,
        };
        if self.is_over(now, followed.is_some()) {
            self.state = State::Alone;
        }
        if followed.is_some() {
            self.linked_at = Some(now);
        }
    }

    /// Whether to wait no longer. The wait is bounded, however often links are lost and
    /// re-established.
    fn is_over(&self, now: Now, is_linked: bool) -> bool {
        match self.state {
            State::Waits { since } => {
                let first = since.plus_ms(SLOTS_FIRST_MS);
                let after_link = self.linked_at.map(|at| at.plus_ms(SLOTS_KEPT_MS));
                let until = after_link.map_or(first, |it| it.max(first));
                now >= since.plus_ms(SLOTS_SILENT_MS) || (!is_linked && now >= until)
            }
            State::Keeps { since, .. } => {
                now >= since.plus_ms(if is_linked { SLOTS_SILENT_MS } else { SLOTS_KEPT_MS })
            }
            State::Granted { .. } | State::Alone => false,
        }
    }

    /// The number of requests that the node may have at the server.
    pub fn limit(&self) -> u32 {
        let slots = match self.state {
            State::Waits { .. } => 0,
            State::Granted { slots, .. } | State::Keeps { slots, .. } => slots,
            State::Alone => self.share,
        };
        slots.min(self.slots_max)
    }

    /// Records the slots in use now that the limit is in force; some requests may have begun
    /// before.
    pub fn use_seen(&mut self, in_use: u32) {
        self.in_use = self.in_use.max(in_use);
    }

    /// The report to coordinators.
    pub fn report(&self, server: ServerKey) -> SlotUse {
        SlotUse {
            server,
            slots_max: self.slots_max,
            held: self.limit().max(self.in_use),
            wanted: self.wanted.most().min(self.slots_max),
        }
    }

    /// The report to coordinators about a server that the node no longer counts but still uses.
    pub fn last_report(&self, server: ServerKey, in_use: u32) -> SlotUse {
        SlotUse { server, slots_max: self.slots_max, held: in_use, wanted: 0 }
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
