//! Conflicts over virtual addresses with machines outside the cluster (RFC 5227, 2.4).

use skep_units::Now;
use skep_wire::message::Mac;

use super::state::{Follows, State};
use super::{AddressConflict, Failover, FailoverAction, FailoverNote, StepDownReason};
use crate::limits::{ADDRESS_CONFLICT_HOLD_MS, DEFEND_INTERVAL_MS};

impl Failover {
    /// Another machine holds or claims a virtual address. This dispatcher never gives way to a
    /// machine of the cluster (`is_known`: a node; dispatchers are known here).
    pub fn conflict(
        &mut self,
        now: Now,
        conflict: AddressConflict,
        is_known: bool,
    ) -> Vec<FailoverAction> {
        let listened = self.listening.at(now);
        if conflict.mac == self.settings.mac || self.state.is_stopped() {
            return Vec::new();
        }
        match self.state {
            State::Active { announce_at, .. } if is_known || self.peers.owns(conflict.mac) => {
                // Clients that have cached its answers must be redirected here.
                if announce_at.is_none() {
                    self.announce(listened);
                }
            }
            _ if is_known || self.peers.owns(conflict.mac) => {}
            State::Active { .. } if self.settings.mac < conflict.mac => {
                self.defend(listened, conflict);
            }
            _ => self.give_way(listened, conflict),
        }
        self.drain()
    }

    /// Ends an address conflict if the other machine turns out to belong to the cluster. A
    /// dispatcher counts as known even while its process is paused or dead, since its machine may
    /// still answer for the addresses.
    pub fn end_conflict(&mut self, is_known: impl Fn(Mac) -> bool) {
        let peers = &self.peers;
        self.conflicts.end_if(|mac| is_known(mac) || peers.owns(mac));
    }

    pub(super) fn expire_conflict(&mut self, listened: Now) {
        let is_vacant = match self.state {
            State::Joining { .. } => true,
            State::Standby { follows, .. } => matches!(follows, Follows::Nobody { .. }),
            State::Active { .. } | State::Stopped { .. } => false,
        };
        if self.conflicts.expire(listened) && is_vacant {
            // Probes again before it claims.
            self.state = State::Joining { since: listened };
            self.outputs.push(FailoverAction::Probe);
        }
    }

    fn defend(&mut self, listened: Now, conflict: AddressConflict) {
        if self.conflicts.may_defend(listened) {
            self.announce(listened);
            self.log(FailoverNote::InUse { conflict, is_defended: true });
        }
    }

    fn give_way(&mut self, listened: Now, conflict: AddressConflict) {
        let is_news = self.conflicts.give_way(listened, conflict);
        if matches!(self.state, State::Active { .. }) {
            self.step_down(listened, StepDownReason::AddressConflict(conflict));
        } else if is_news {
            self.log(FailoverNote::InUse { conflict, is_defended: false });
        }
    }
}

/// The conflict to which this dispatcher gives way, and its last defence.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Conflicts {
    current: Option<(AddressConflict, Now)>,
    defended_at: Option<Now>,
}

impl Conflicts {
    /// Whether another machine was recently seen to hold an address.
    pub(super) fn is_any(&self) -> bool {
        self.current.is_some()
    }

    /// Gives way for some time. Returns whether this conflict is new.
    pub(super) fn give_way(&mut self, listened: Now, conflict: AddressConflict) -> bool {
        let is_new = self.current.is_none_or(|(known, _)| known != conflict);
        self.current = Some((conflict, listened.plus_ms(ADDRESS_CONFLICT_HOLD_MS)));
        is_new
    }

    /// Ends the conflict if the other machine `is_known`.
    fn end_if(&mut self, is_known: impl Fn(Mac) -> bool) {
        self.current.take_if(|(conflict, _)| is_known(conflict.mac));
    }

    /// Whether an address may be defended now; defences are rate-limited.
    pub(super) fn may_defend(&mut self, listened: Now) -> bool {
        let is_due = |at| listened.since_ms(at) >= DEFEND_INTERVAL_MS;
        let is_due = self.defended_at.is_none_or(is_due);
        if is_due {
            self.defended_at = Some(listened);
        }
        is_due
    }

    /// Whether the time to give way has just ended.
    pub(super) fn expire(&mut self, listened: Now) -> bool {
        self.current.take_if(|(_, until)| listened >= *until).is_some()
    }
}
