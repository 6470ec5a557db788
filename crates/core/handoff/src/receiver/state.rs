//! The states of a move at its receiver.

use skep_units::Now;
use skep_wire::handoff::SocketId;
use skep_wire::handoff::fragments::Assembly;
use skep_wire::handoff::lccp::{LccpCommand, RefuseCause};

use crate::limits::UNDECIDED_MS;
use crate::retry::Retry;

#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) socket: SocketId,
    pub(super) state: State,
}

#[derive(Clone, Debug)]
pub(super) enum State {
    /// Fragments of the offer are missing.
    Assembling { since: Now, assembly: Assembly },
    /// The creation of the socket is ordered; the connection will be restored in it.
    Creating { since: Now },
    /// The same, but the connection is no longer wanted.
    Abandoned { answer: Answer },
    /// The connection is restored, silent and blocked.
    Ready { retry: Retry },
    /// GO was received; the start is ordered.
    Starting,
    /// The RST is ordered.
    Resetting,
    /// The move has ended. Further messages are answered with this.
    Ended(Answer),
}

/// The final answer of a receiver about a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Refuse(RefuseCause),
    Done,
    Gone,
    Aborted,
}

impl Answer {
    pub(super) fn command(self, socket: SocketId) -> LccpCommand {
        match self {
            Self::Refuse(cause) => LccpCommand::Refuse(socket, cause),
            Self::Done => LccpCommand::Done(socket),
            Self::Gone => LccpCommand::Gone(socket),
            Self::Aborted => LccpCommand::Aborted(socket),
        }
    }
}

impl State {
    pub(super) fn has_ended(&self) -> bool {
        matches!(self, Self::Ended(_))
    }

    /// When its timer expires.
    pub(super) fn due(&self, ready_ms: u64) -> Option<Now> {
        match self {
            Self::Assembling { since, .. } => Some(since.plus_ms(ready_ms + 1)),
            Self::Ready { retry } => Some(retry.next.min(retry.since.plus_ms(UNDECIDED_MS))),
            Self::Creating { .. }
            | Self::Abandoned { .. }
            | Self::Starting
            | Self::Resetting
            | Self::Ended(_) => None,
        }
    }
}
