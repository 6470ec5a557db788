//! The handover between dispatchers that were active at the same time because the network was
//! split.
//!
//! Each dispatcher that is outranked steps down at once, but its clients send packets to it until
//! the winner announces the addresses, and it continues to steer them. It sends its table to the
//! winner, and steers by it ([`LastTable`]) until the winner's table contains its nodes. The winner
//! merges each table (`TablePublisher::merge`), and announces the addresses once all tables were
//! received and all nodes steer by the result ([`Handover`]): before that, they would refuse
//! packets of connections at nodes that they do not know.
//!
//! Every wait is bounded. Machines not heard from by then are assumed to be gone.

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

/// The last table of a term that has ended, used until the next active dispatcher's table is
/// applied.
#[derive(Clone, Debug)]
pub struct LastTable {
    table: Arc<Table>,
    sent_at: Option<Now>,
    /// Since when tables of another dispatcher have been deferred.
    waits_since: Option<Now>,
}

impl LastTable {
    /// The last table of the term.
    pub fn new(table: Arc<Table>) -> Self {
        Self { table, sent_at: None, waits_since: None }
    }

    /// The table, if it must be sent to the active dispatcher now.
    pub fn due(&mut self, now: Now) -> Option<&Table> {
        if self.sent_at.is_some_and(|at| now.since_ms(at) < LAST_TABLE_RESEND_MS) {
            return None;
        }
        self.sent_at = Some(now);
        Some(&self.table)
    }

    /// Whether the active dispatcher's table may be applied: it contains the nodes of this one, or
    /// has not received them in time.
    pub fn yields_to(&mut self, now: Now, table: &Table) -> bool {
        let is_open = |node: &TableNode| node.state != ForwardingState::Down;
        let mut open = self.table.nodes.iter().filter(|node| is_open(node));
        let since = *self.waits_since.get_or_insert(now);
        now.since_ms(since) >= LAST_TABLE_MS_MAX
            || open.all(|node| table.node(node.name.as_str()).is_some_and(is_open))
    }
}

/// Defers announcements of the virtual addresses while other dispatchers hand over.
#[derive(Clone, Debug, Default)]
pub struct Handover {
    /// By number of the dispatcher whose table was awaited; at most [`DISPATCHERS_MAX`].
    terms: BTreeMap<u16, EndedTerm>,
    /// Merged tables that not all nodes may have applied yet.
    merged: Option<MergedTables>,
    /// Whether an announcement is pending.
    is_announcement_due: bool,
}

/// The last term of a dispatcher that hands over; its table is awaited once.
#[derive(Clone, Copy, Debug)]
struct EndedTerm {
    epoch: u64,
    /// Until when to wait for the table; `None` once it was received.
    until: Option<Now>,
}

/// All nodes must apply a table later than `after`.
#[derive(Clone, Copy, Debug)]
struct MergedTables {
    after: TableVersion,
    until: Now,
}

impl Handover {
    /// The dispatcher `sender` reports a table that was not merged into the current one: if it is
    /// of its own term, it will hand it over.
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

    /// A table of another dispatcher was merged into the one that follows `present`.
    pub fn merged(&mut self, now: Now, table: TableVersion, present: TableVersion) {
        self.known(table);
        self.merged = Some(MergedTables { after: present, until: now.plus_ms(HANDOVER_MS_MAX) });
    }

    /// A table of another dispatcher was received that was known already.
    pub fn known(&mut self, table: TableVersion) {
        let term = self.terms.get_mut(&owner(table.epoch));
        if let Some(term) = term.filter(|term| table.epoch >= term.epoch) {
            term.until = None;
        }
    }

    /// Requests an announcement of the addresses.
    pub fn announce(&mut self) {
        self.is_announcement_due = true;
    }

    /// This dispatcher is no longer active.
    pub fn step_down(&mut self) {
        *self = Self::default();
    }

    /// Whether to announce the addresses now; true once for one or more calls of
    /// [`Handover::announce`]. `table` is the last published one, and `applied` the one that this
    /// machine steers by.
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

/// Whether this machine and all nodes of `table` that are not down steer by tables later than
/// `after`.
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
