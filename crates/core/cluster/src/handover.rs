//! The handover between dispatchers that were active at the same time, as the network was split.
//!
//! Each one that is outranked steps down at once, but its clients send packets to it until the winner
//! announces the addresses, and it steers them to their owners. It sends its table to the winner, and
//! keeps to it ([`LastTable`]) until the winner's has its nodes. The winner merges each table
//! (`TablePublisher::merge`), and announces the addresses once all have come and all nodes steer by
//! the result ([`Handover`]): before, they would refuse packets of connections that are with nodes
//! they do not know of.
//!
//! All wait for a bounded time. What is not heard of in it is taken to be gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use skep_units::{Now, dispatcher_number};
use skep_wire::limits::DISPATCHERS_MAX;
use skep_wire::message::Name;
use skep_wire::steer::ForwardingState;
use skep_wire::table::{Table, TableNode, TableVersion};

use crate::epoch::owner;
use crate::failure_detector::FailureDetector;
use crate::limits::{HANDOVER_MS_MAX, LAST_TABLE_MS_MAX, LAST_TABLE_RESEND_MS};

/// The last table of a term that has ended, until the next active dispatcher's is steered by.
#[derive(Clone, Debug)]
pub struct LastTable {
    table: Arc<Table>,
    sent_at: Option<Now>,
    /// Since when tables of another dispatcher were put off.
    waits_since: Option<Now>,
}

impl LastTable {
    /// The term ended with this one.
    pub fn new(table: Arc<Table>) -> Self {
        Self { table, sent_at: None, waits_since: None }
    }

    /// The table, if it is to be sent to the active dispatcher now.
    pub fn due(&mut self, now: Now) -> Option<&Table> {
        if self.sent_at.is_some_and(|at| now.since_ms(at) < LAST_TABLE_RESEND_MS) {
            return None;
        }
        self.sent_at = Some(now);
        Some(&self.table)
    }

    /// Whether packets may be steered by the active dispatcher's table: it has the nodes of this one,
    /// or does not get them.
    pub fn yields_to(&mut self, now: Now, table: &Table) -> bool {
        let is_open = |node: &TableNode| node.state != ForwardingState::Down;
        let mut open = self.table.nodes.iter().filter(|node| is_open(node));
        let since = *self.waits_since.get_or_insert(now);
        now.since_ms(since) >= LAST_TABLE_MS_MAX
            || open.all(|node| table.node(node.name.as_str()).is_some_and(is_open))
    }
}

/// Puts announcements of the virtual addresses off while other dispatchers hand over.
#[derive(Clone, Debug, Default)]
pub struct Handover {
    /// By the numbers of the dispatchers whose tables were awaited; at most [`DISPATCHERS_MAX`].
    terms: BTreeMap<u16, EndedTerm>,
    /// Tables were merged, which not all nodes may have applied yet.
    merged: Option<MergedTables>,
    /// An announcement waits.
    is_announcement_due: bool,
}

/// The last term of a dispatcher that hands over: its table is awaited once.
#[derive(Clone, Copy, Debug)]
struct EndedTerm {
    epoch: u64,
    /// Until when the table is awaited, unless it came.
    until: Option<Now>,
}

/// All nodes are to apply a later table than `after`.
#[derive(Clone, Copy, Debug)]
struct MergedTables {
    after: TableVersion,
    until: Now,
}

impl Handover {
    /// The dispatcher `sender` reports a table that did not go into the present one: if it is of its
    /// own term, it will hand it over.
    pub fn await_table(&mut self, now: Now, sender: &Name, table: TableVersion) {
        let number = dispatcher_number(sender.as_str());
        let is_crowded = self.terms.len() >= DISPATCHERS_MAX && !self.terms.contains_key(&number);
        let term = self.terms.get(&number);
        let is_known = term.is_some_and(|term| table.epoch <= term.epoch);
        if owner(table.epoch) != number || is_known || is_crowded {
            return;
        }
        let until = Some(now.plus_ms(HANDOVER_MS_MAX));
        self.terms.insert(number, EndedTerm { epoch: table.epoch, until });
    }

    /// This table of another dispatcher was merged into the one that will follow `present`.
    pub fn merged(&mut self, now: Now, table: TableVersion, present: TableVersion) {
        self.known(table);
        self.merged = Some(MergedTables { after: present, until: now.plus_ms(HANDOVER_MS_MAX) });
    }

    /// This table of another dispatcher came, and was known.
    pub fn known(&mut self, table: TableVersion) {
        let term = self.terms.get_mut(&owner(table.epoch));
        if let Some(term) = term.filter(|term| table.epoch >= term.epoch) {
            term.until = None;
        }
    }

    /// The addresses are to be announced.
    pub fn announce(&mut self) {
        self.is_announcement_due = true;
    }

    /// This dispatcher is no longer active.
    pub fn step_down(&mut self) {
        *self = Self::default();
    }

    /// Whether to announce the addresses now, true once for one or more [`Handover::announce`].
    /// `table` was published last, and `applied` is the one that this machine steers by.
    pub fn may_announce(
        &mut self,
        now: Now,
        table: &Table,
        applied: TableVersion,
        detector: &FailureDetector,
    ) -> bool {
        for term in self.terms.values_mut() {
            term.until = term.until.filter(|&until| now < until);
        }
        let is_open = |merged: &MergedTables| {
            now < merged.until && !are_applied(merged.after, table, applied, detector)
        };
        self.merged = self.merged.filter(is_open);
        let waits = self.merged.is_some() || self.terms.values().any(|term| term.until.is_some());
        !waits && std::mem::take(&mut self.is_announcement_due)
    }
}

/// Whether this machine and all nodes of `table` that are not down steer by later tables than `after`.
fn are_applied(
    after: TableVersion,
    table: &Table,
    applied: TableVersion,
    detector: &FailureDetector,
) -> bool {
    let mut open = table.nodes.iter().filter(|node| node.state != ForwardingState::Down);
    let has_applied = |node: &TableNode| {
        detector.heartbeat(&node.name).is_some_and(|heartbeat| heartbeat.table > after)
    };
    table.version > after && applied > after && open.all(has_applied)
}
