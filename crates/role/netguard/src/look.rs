//! Looks at what orders have put on this machine: when devices or addresses change, and every
//! second.

use std::time::{Duration, Instant};

use skep_netif::LinkWatch;
use skep_wire::guard::{MachineState, OrderReply, VipHolder};

use crate::error::NetguardError;
use crate::limits::LOOK_MS;

/// What was found at the last look.
pub(crate) struct Look {
    watch: LinkWatch,
    last: Option<(Instant, State)>,
}

/// What is there of what one side has put on the machine.
#[derive(Clone, Copy)]
pub(crate) struct State {
    pub(crate) has_addresses: bool,
    pub(crate) is_attached: bool,
}

impl State {
    /// The answer to an order to look.
    pub(crate) fn told(self, owners: Vec<VipHolder>, has_changed: bool) -> OrderReply {
        let Self { has_addresses, is_attached } = self;
        OrderReply::Machine(MachineState { owners, has_addresses, is_attached, has_changed })
    }
}

impl Look {
    pub(crate) fn new() -> Result<Self, NetguardError> {
        Ok(Self { watch: LinkWatch::open()?, last: None })
    }

    /// The state, by another look if the last one is old or something has changed since; and whether
    /// something has.
    pub(crate) fn state(
        &mut self,
        look: impl FnOnce() -> Result<State, NetguardError>,
    ) -> Result<(State, bool), NetguardError> {
        let has_changes = self.watch.has_changes()?;
        let is_recent = |at: &Instant| at.elapsed() < Duration::from_millis(LOOK_MS);
        if let Some((_, state)) = self.last.as_ref().filter(|(at, _)| is_recent(at) && !has_changes)
        {
            return Ok((*state, false));
        }
        let state = look()?;
        self.last = Some((Instant::now(), state));
        Ok((state, has_changes))
    }
}
