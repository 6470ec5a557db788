//! The states of a dispatcher, each with its own data.

use skep_units::Now;
use skep_wire::seal::PeerId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No heartbeat of an active dispatcher has been received.
    Joining { since: Now },
    Standby {
        since: Now,
        follows: Follows,
        /// Whether it has all flows of the active dispatcher, or of the last one.
        flows_synced: bool,
    },
    Active {
        epoch: u64,
        announce_at: Option<Now>,
        /// Since when a later epoch is known.
        outdated_since: Option<Now>,
    },
    Stopped {
        /// The active dispatcher at that time.
        active: Option<Seen>,
    },
}

/// The dispatcher that a standby follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follows {
    /// The active dispatcher, as long as it is assumed to be alive.
    Active(Seen),
    /// No dispatcher is active.
    Nobody { since: Now },
}

/// An active dispatcher, known from its own heartbeats or through witnesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) id: PeerId,
    pub(super) epoch: u64,
    pub(super) at: Now,
}

impl State {
    pub(super) fn standby(since: Now, follows: Follows) -> Self {
        Self::Standby { since, follows, flows_synced: false }
    }

    /// The active dispatcher, if it is not this one.
    pub(super) fn followed(&self) -> Option<Seen> {
        match *self {
            Self::Standby { follows: Follows::Active(seen), .. } => Some(seen),
            Self::Stopped { active } => active,
            Self::Joining { .. } | Self::Standby { .. } | Self::Active { .. } => None,
        }
    }

    pub(super) fn flows_synced(&self) -> bool {
        matches!(self, Self::Standby { flows_synced: true, .. })
    }

    pub(super) fn is_stopped(&self) -> bool {
        matches!(self, Self::Stopped { .. })
    }
}
