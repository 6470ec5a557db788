//! The handover between two dispatchers that were both active, as the network was split.
//!
//! The one that is outranked steps down at once, but its clients send packets to it until the other
//! one announces the addresses, and it steers them to their owners. It sends its table to the other
//! one, and keeps to it ([`LastTable`]) until the other's has its nodes. The other one merges it
//! (`TablePublisher::merge`), and announces the addresses once all nodes steer by what came of it
//! ([`Handover`]): before, they would refuse packets of connections that are with nodes they do not
//! know of.
//!
//! Both wait for a bounded time. What is not heard of in it is taken to be gone.

use std::sync::Arc;

use skep_units::Now;
use skep_wire::limits::DISPATCHERS_MAX;
use skep_wire::steer::ForwardingState;
use skep_wire::table::{Table, TableNode, TableVersion};

use crate::failure_detector::FailureDetector;
use crate::limits::{HANDOVER_MS_MAX, LAST_TABLE_MS_MAX, LAST_TABLE_RESEND_MS};
use crate::table_publisher::author;

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

/// Puts announcements of the virtual addresses off while another dispatcher hands over.
#[derive(Clone, Debug, Default)]
pub struct Handover {
    awaited: Option<Awaited>,
    /// The last term of each dispatcher whose table was awaited: each is once.
    terms: [u64; DISPATCHERS_MAX],
    /// An announcement waits.
    is_announcement_due: bool,
}

#[derive(Clone, Copy, Debug)]
enum Awaited {
    /// The table of one whose term has ended.
    Table { until: Now },
    /// That all nodes apply a later table than this: it was merged into that.
    Nodes { after: TableVersion, until: Now },
}

impl Handover {
    /// The dispatcher at position `sender` in the config reports a table that did not go into the
    /// present one: if it is of its own term, it will hand it over.
    pub fn await_table(&mut self, now: Now, sender: usize, table: TableVersion) {
        let term = &mut self.terms[sender];
        if author(table) != sender || table.epoch <= *term {
            return;
        }
        *term = table.epoch;
        self.awaited.get_or_insert(Awaited::Table { until: now.plus_ms(HANDOVER_MS_MAX) });
    }

    /// Its table was merged into the one that will follow `present`.
    pub fn merged(&mut self, now: Now, present: TableVersion) {
        let until = now.plus_ms(HANDOVER_MS_MAX);
        self.awaited = Some(Awaited::Nodes { after: present, until });
    }

    /// Its table came, and was known.
    pub fn known(&mut self) {
        self.awaited.take_if(|awaited| matches!(awaited, Awaited::Table { .. }));
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
        self.awaited = self.awaited.filter(|awaited| match *awaited {
            Awaited::Table { until } => now < until,
            Awaited::Nodes { after, until } => {
                let has_applied = |version: TableVersion| version > after;
                let open = table.nodes.iter().filter(|node| node.state != ForwardingState::Down);
                let versions = open.map(|node| detector.beat(&node.name).map(|beat| beat.table));
                let are_done = has_applied(table.version)
                    && has_applied(applied)
                    && versions.into_iter().all(|version| version.is_some_and(has_applied));
                now < until && !are_done
            }
        });
        self.awaited.is_none() && std::mem::take(&mut self.is_announcement_due)
    }
}
