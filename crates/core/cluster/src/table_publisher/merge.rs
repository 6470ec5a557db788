//! Merging the table of a dispatcher that was also active while the network was split.
//!
//! Its clients' connections are at nodes whose heartbeats this dispatcher has not received, by
//! memberships that this one does not know. A merge puts both into the table: the memberships
//! follow the current one, and the nodes keep their connections, as in that table, for as long as a
//! node may be silent. They receive new flows only once their heartbeats are received: they may
//! have died long ago.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use skep_units::Now;
use skep_wire::limits::{DISPATCHERS_MAX, HISTORY_MAX};
use skep_wire::steer::{ForwardingState, NodeIndex};
use skep_wire::table::{ServiceMembership, Share, Table, TableVersion};

use super::{Known, PublishedChange, TablePublisher, share_membership};
use crate::epoch::owner;
use crate::failure_detector::Liveness;
use crate::service_ids::ServiceKey;

/// The latest merged table of each dispatcher, by its number; at most those of the
/// [`DISPATCHERS_MAX`] latest authors.
pub(super) type Merged = BTreeMap<u16, TableVersion>;

/// Records a merged table. Returns false if that or a later one of its author was merged before.
pub(super) fn note(merged: &mut Merged, version: TableVersion) -> bool {
    let author = owner(version.epoch);
    // Evict before inserting: the new one may itself be the oldest.
    if merged.len() >= DISPATCHERS_MAX && !merged.contains_key(&author) {
        let oldest = merged.iter().min_by_key(|(_, version)| **version).map(|(&number, _)| number);
        oldest.map(|number| merged.remove(&number));
    }
    let last = merged.entry(author).or_default();
    let is_news = version > *last;
    *last = version.max(*last);
    is_news
}

impl TablePublisher {
    /// Merges the table of a dispatcher with a lesser claim; the next tick publishes the result.
    /// Returns false if this dispatcher is not the author, or the table is known or contains
    /// nothing new.
    pub fn merge(&mut self, now: Now, theirs: &Table) -> bool {
        let is_lesser = theirs.version.epoch < self.table.version.epoch;
        if self.author.is_none() || !is_lesser || !note(&mut self.merged, theirs.version) {
            return false;
        }
        let indexes = self.merge_nodes(theirs);
        self.merge_histories(theirs, &indexes);
        self.note_named();
        self.presumed_until = Some(now.plus_ms(self.detector.silence_ms()));
        let has_changed = self.make(self.table.version) != *self.table;
        if has_changed {
            self.changed(PublishedChange::Urgent);
        }
        has_changed
    }

    /// Whether a table was made by this dispatcher, or merged into the current one.
    pub fn knows(&self, version: TableVersion) -> bool {
        let author = owner(version.epoch);
        author == owner(self.table.version.epoch)
            || self.merged.get(&author).is_some_and(|last| version <= *last)
    }

    /// Ends the time for which silent nodes of merged tables keep their connections.
    pub(super) fn expire_presumption(&mut self, now: Now) {
        if self.presumed_until.take_if(|until| now >= *until).is_some() {
            self.nodes.values_mut().for_each(|node| node.is_presumed = false);
            self.changed(PublishedChange::Urgent);
        }
    }

    /// Merges the nodes; returns their indexes here by those in the other table. Both sides may
    /// have assigned the same index to different new nodes.
    fn merge_nodes(&mut self, theirs: &Table) -> HashMap<NodeIndex, NodeIndex> {
        let mut indexes = HashMap::new();
        for node in &theirs.nodes {
            let life = self.detector.life(&node.name);
            let is_heard = matches!(life, Liveness::Alive | Liveness::Leaving);
            let index = self.nodes.get(&node.name).map(|known| known.index);
            let Some(index) = index.or_else(|| self.vacant_index(Some(node.index))) else {
                continue;
            };
            indexes.insert(node.index, index);
            let known = self.nodes.entry(node.name.clone());
            let adopted = ForwardingState::Down;
            let known = known.or_insert_with(|| Known { index, adopted, ..Known::of(node) });
            if !is_heard {
                (known.mac, known.mtu) = (node.mac, node.mtu);
                known.is_presumed |= node.state != ForwardingState::Down;
            }
        }
        indexes
    }

    fn merge_histories(&mut self, theirs: &Table, indexes: &HashMap<NodeIndex, NodeIndex>) {
        let mut shared = HashMap::new();
        for service in &theirs.services {
            let Some(history) = self.histories.get_mut(&ServiceKey::of(&service.service)) else {
                continue;
            };
            let translated = theirs.history(service).map(|it| translate(it, indexes));
            let translated = translated.filter(|it| !it.is_empty());
            let other: Vec<_> = translated.map(|it| share_membership(&mut shared, it)).collect();
            *history = interleave(history, other);
        }
    }
}

/// Translates a membership to the indexes of its nodes here.
fn translate(
    membership: &ServiceMembership,
    indexes: &HashMap<NodeIndex, NodeIndex>,
) -> ServiceMembership {
    let translate = |share: &Share| Some(Share { index: *indexes.get(&share.index)?, ..*share });
    let mut translated: ServiceMembership = membership.iter().filter_map(translate).collect();
    translated.sort_unstable();
    translated
}

/// Merges two histories: the current membership, then alternately the latest of the other and of
/// our own, since rows have no room for all owners.
fn interleave(
    ours: &[Arc<ServiceMembership>],
    theirs: Vec<Arc<ServiceMembership>>,
) -> Vec<Arc<ServiceMembership>> {
    let (mut ours, mut theirs) = (ours.iter().cloned(), theirs.into_iter());
    let mut history: Vec<Arc<ServiceMembership>> = Vec::new();
    loop {
        let pair = [ours.next(), theirs.next()];
        if pair.iter().all(Option::is_none) {
            break;
        }
        for membership in pair.into_iter().flatten() {
            if !history.contains(&membership) {
                history.push(membership);
            }
        }
    }
    history.truncate(HISTORY_MAX);
    history
}
