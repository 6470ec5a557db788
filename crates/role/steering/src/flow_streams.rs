//! Replication of the flow table to the standbys, with one source for each.

use std::collections::BTreeMap;

use skep_cluster::flows::FlowSource;
use skep_units::Now;
use skep_wire::message::{FlowBatch, FlowsTaken};
use skep_wire::seal::PeerId;
use skep_wire::steer::Flow;

use crate::limits::FLOW_DUMP_PATIENCE_MS;

#[derive(Debug, Default)]
pub(crate) struct FlowStreams {
    sources: BTreeMap<PeerId, StandbySync>,
    /// Number of the next dump; differs from those of earlier processes, since it begins with the
    /// time.
    dump: u64,
}

#[derive(Debug)]
struct StandbySync {
    source: FlowSource,
    began: Now,
    /// Whether a dump of the whole table is being sent to it.
    is_listing: bool,
}

impl FlowStreams {
    /// No standby yet; `seed` grows from process to process.
    pub(crate) fn new(seed: u64) -> Self {
        Self { sources: BTreeMap::new(), dump: seed }
    }

    /// Handles a heartbeat of a standby; `is_synced`: it has all flows. Returns true if the table
    /// must be dumped for it, including the case that its flows are of an earlier term, or from
    /// before it was paused.
    pub(crate) fn heard(&mut self, now: Now, from: PeerId, is_synced: bool) -> bool {
        let known = self.sources.get(&from);
        let is_stuck = known.is_some_and(|known| {
            known.source.is_hopeless() || now.since_ms(known.began) > FLOW_DUMP_PATIENCE_MS
        });
        let is_needed = known.is_none() || is_stuck && !is_synced;
        // One list at a time: it is sent to all standbys that wait for one.
        if !is_needed || self.sources.values().any(|source| source.is_listing) {
            return false;
        }
        self.dump += 1;
        let source = FlowSource::new(now, self.dump);
        self.sources.insert(from, StandbySync { source, began: now, is_listing: true });
        true
    }

    pub(crate) fn list(&mut self, flows: &[Flow]) {
        for source in self.sources.values_mut().filter(|source| source.is_listing) {
            source.source.list(flows);
            source.is_listing = !flows.is_empty();
        }
    }

    /// The listing of the table failed: standbys that wait for it get another dump.
    pub(crate) fn list_failed(&mut self) {
        self.sources.retain(|_, source| !source.is_listing);
    }

    pub(crate) fn begin(&mut self, flows: &[Flow]) {
        self.sources.values_mut().for_each(|source| source.source.begin(flows));
        // A standby that stops reading gets a new dump when it sends again.
        self.sources.retain(|_, source| !source.source.is_hopeless());
    }

    pub(crate) fn taken(&mut self, now: Now, from: PeerId, taken: FlowsTaken) {
        if let Some(source) = self.sources.get_mut(&from) {
            source.source.taken(now, taken);
        }
    }

    pub(crate) fn due(&mut self, now: Now) -> Vec<(PeerId, FlowBatch)> {
        let due = |(to, source): (&PeerId, &mut StandbySync)| {
            let to = *to;
            source.source.due(now).into_iter().map(move |batch| (to, batch)).collect::<Vec<_>>()
        };
        self.sources.iter_mut().flat_map(due).collect()
    }

    pub(crate) fn clear(&mut self) {
        self.sources.clear();
    }
}
