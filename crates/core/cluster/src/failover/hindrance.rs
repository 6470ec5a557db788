//! Whether this machine can steer as the active dispatcher must: its netguard may refuse or not
//! answer, or its device may be gone.

use skep_units::Now;

use super::lasting::Lasting;
use crate::limits::{HINDERED_HOLD_MS, HINDERED_MS_MAX, HINDERED_WAIT_MS};

/// Whether this machine is hindered, and until when it leaves the term to others for that reason.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hindrance {
    hindered: Option<Lasting>,
    held_until: Option<Now>,
}

impl Hindrance {
    /// Records whether it is hindered at this moment.
    pub(super) fn see(&mut self, listened: Now, is_hindered: bool) {
        self.hindered = Lasting::look(self.hindered, is_hindered, listened, HINDERED_MS_MAX);
        self.held_until.take_if(|until| listened >= *until);
    }

    /// Whether it has been hindered for so long that another dispatcher should be active.
    pub(super) fn is_lasting(&self) -> bool {
        self.hindered.is_some_and(|it| it.is_long)
    }

    /// Called when it has stepped down for that reason: without the addresses it cannot detect
    /// whether it is still hindered, and must not become active again at once.
    pub(super) fn hold(&mut self, listened: Now) {
        *self = Self { hindered: None, held_until: Some(listened.plus_ms(HINDERED_HOLD_MS)) };
    }

    /// Whether it leaves the term to others: it stepped down recently, or could not steer if it
    /// were active.
    pub(super) fn yields(&self) -> bool {
        self.held_until.is_some() || self.is_lasting()
    }

    /// How much longer than others it waits before it takes over, in milliseconds: a hindered
    /// dispatcher is better than none.
    pub(super) fn wait_ms(&self) -> u64 {
        if self.yields() { HINDERED_WAIT_MS } else { 0 }
    }

    /// Called when it becomes active again because no other dispatcher did.
    pub(super) fn release(&mut self) {
        self.held_until = None;
    }
}
