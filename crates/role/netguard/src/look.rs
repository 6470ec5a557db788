//! Checks the state of what orders have put on this machine: when devices or addresses change,
//! and every second.

use std::time::{Duration, Instant};

use skep_netif::LinkWatch;
use skep_wire::guard::MachineState;

use crate::error::NetguardError;
use crate::limits::LOOK_MS;

/// The result of the last look.
pub(crate) struct Look {
    watch: LinkWatch,
    last: Option<(Instant, MachineState)>,
}

impl Look {
    pub(crate) fn new() -> Result<Self, NetguardError> {
        Ok(Self { watch: LinkWatch::open()?, last: None })
    }

    /// Returns the state of devices, addresses and program; looks again if the last result is
    /// old or something has changed since.
    pub(crate) fn state(
        &mut self,
        look: impl FnOnce() -> Result<MachineState, NetguardError>,
    ) -> Result<MachineState, NetguardError> {
        let has_changed = self.watch.has_changes()?;
        let is_recent = |at: &Instant| at.elapsed() < Duration::from_millis(LOOK_MS);
        if let Some((_, state)) = self.last.as_ref().filter(|(at, _)| is_recent(at) && !has_changed)
        {
            return Ok(state.clone());
        }
        let state = look()?;
        self.last = Some((Instant::now(), state.clone()));
        Ok(MachineState { has_changed, ..state })
    }
}
