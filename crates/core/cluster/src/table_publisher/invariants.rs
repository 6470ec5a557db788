//! Invariants of a publisher between any two calls; checked in debug builds and simulations.

use std::collections::BTreeSet;

use skep_wire::limits::{HISTORY_MAX, PEERS_MAX};
use skep_wire::steer::NODES_MAX;
use skep_wire::table::TableVersion;

use super::TablePublisher;

impl TablePublisher {
    /// Checked after each call: cheap invariants only.
    pub(super) fn check_invariants(&self) {
        debug_assert!(self.nodes.len() <= NODES_MAX, "{} nodes", self.nodes.len());
        debug_assert!(self.refused.len() <= NODES_MAX, "{} refusals", self.refused.len());
        debug_assert!(self.checked.len() <= PEERS_MAX, "{} checked nodes", self.checked.len());
    }

    /// Checked after each table of its own, which follows version `before`.
    pub(super) fn check_table(&self, before: TableVersion) {
        if !cfg!(debug_assertions) {
            return;
        }
        let version = self.table.version;
        debug_assert!(self.author.is_some(), "only an author makes tables");
        let is_presumed = self.nodes.values().any(|node| node.is_presumed);
        debug_assert!(!is_presumed || self.presumed_until.is_some(), "presumed for ever: {self:?}");
        debug_assert!(version > before, "{version:?} follows {before:?}");
        let indexes: BTreeSet<usize> = self.table.nodes.iter().map(|it| it.index.into()).collect();
        debug_assert_eq!(indexes.len(), self.nodes.len(), "two nodes have one index: {self:?}");
        let named = self.table.memberships.iter().flatten();
        let is_known = |index: usize| indexes.contains(&index) && self.is_named[index];
        debug_assert!(
            named.map(|share| share.index.into()).all(is_known),
            "a history names an index that is nobody's: {self:?}"
        );
        for service in &self.table.services {
            let distinct: BTreeSet<&u16> = service.history.iter().collect();
            let history = &service.history;
            debug_assert!(history.len() <= HISTORY_MAX, "{history:?} is too long");
            debug_assert_eq!(distinct.len(), history.len(), "{history:?} has a membership twice");
        }
    }
}
