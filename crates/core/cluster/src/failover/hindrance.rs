//! Whether this machine can steer as the active dispatcher has to: its netguard may refuse or not
//! answer, its device be gone.

use skep_units::Now;

use super::lasting::Lasting;
use crate::limits::{HINDERED_HOLD_MS, HINDERED_MS_MAX, HINDERED_WAIT_MS};

/// What hinders this machine, and for how long it leaves the term to others for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hindrance {
    hindered: Option<Lasting>,
    held_until: Option<Now>,
}

impl Hindrance {
    /// Whether it is hindered at this moment.
    pub(super) fn see(&mut self, listened: Now, is_hindered: bool) {
        self.hindered = Lasting::look(self.hindered, is_hindered, listened, HINDERED_MS_MAX);
        self.held_until.take_if(|until| listened >= *until);
    }

    /// Whether it has been hindered for so long that another dispatcher should be active.
    pub(super) fn is_lasting(&self) -> bool {
        self.hindered.is_some_and(|it| it.is_long)
    }

    /// It has stepped down for that: without the addresses it cannot see whether it still is
    /// hindered, and must not be active again at once.
    pub(super) fn hold(&mut self, listened: Now) {
        *self = Self { hindered: None, held_until: Some(listened.plus_ms(HINDERED_HOLD_MS)) };
    }

    /// Whether it leaves the term to others: it stepped down lately, or could not steer if it were
    /// active.
    pub(super) fn yields(&self) -> bool {
        self.held_until.is_some() || self.is_lasting()
    }

    /// How much longer than others it waits until it takes over, in milliseconds: a hindered
    /// dispatcher is better than none.
    pub(super) fn wait_ms(&self) -> u64 {
        if self.yields() { HINDERED_WAIT_MS } else { 0 }
    }

    /// It is active again, as nobody else was.
    pub(super) fn release(&mut self) {
        self.held_until = None;
    }
}
