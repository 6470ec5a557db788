//! The witness state of a node: the dispatchers whose heartbeats it receives, and its reports.

use std::collections::BTreeMap;

use skep_units::Now;
use skep_wire::limits::DISPATCHERS_MAX;
use skep_wire::message::{DispatcherHeartbeat, Hears, Stage};
use skep_wire::seal::{PeerId, Stamp};

/// The last heartbeat of each dispatcher, which shows whether the active one is alive.
#[derive(Clone, Debug, Default)]
pub struct WitnessState {
    last: BTreeMap<PeerId, Heard>,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    stamp: Stamp,
    stage: Stage,
    epoch: u64,
    at: Now,
}

impl WitnessState {
    /// Records a dispatcher's heartbeat that was received at `arrived`; it must be authentic and
    /// fresh. Returns false if a later one was received before, or if there would be too many
    /// dispatchers.
    pub fn heard(
        &mut self,
        arrived: Now,
        heartbeat: &DispatcherHeartbeat,
        from: PeerId,
        stamp: Stamp,
    ) -> bool {
        let known = self.last.get(&from);
        let is_old = known.is_some_and(|heard| stamp <= heard.stamp);
        if is_old || (known.is_none() && self.last.len() >= DISPATCHERS_MAX) {
            return false;
        }
        self.last.insert(
            from,
            Heard { stamp, stage: heartbeat.stage, epoch: heartbeat.epoch, at: arrived },
        );
        true
    }

    /// The active dispatcher with the latest epoch, of those whose heartbeats are at most
    /// `fresh_ms` old.
    pub fn hears(&self, now: Now, fresh_ms: u64) -> Option<Hears> {
        let is_heard =
            |heard: &Heard| heard.stage == Stage::Active && now.since_ms(heard.at) <= fresh_ms;
        let active = self.last.iter().filter(|(_, heard)| is_heard(heard));
        let (&dispatcher, heard) = active.max_by_key(|(_, heard)| (heard.epoch, heard.at))?;
        let ago_ms = u32::try_from(now.since_ms(heard.at)).unwrap_or(u32::MAX);
        Some(Hears { dispatcher, epoch: heard.epoch, ago_ms })
    }
}
