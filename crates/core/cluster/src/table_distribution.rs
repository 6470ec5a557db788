//! Distribution of the table: which version each machine is sent, and whether as a whole or as a
//! delta from a version that it has acknowledged.
//!
//! Heartbeats are the acknowledgements: they report the table that a machine has applied. A new
//! version is sent to every machine at once, as a delta if its last heartbeat reported a table that
//! is still stored here, and again as long as its heartbeats report an earlier one. A machine that
//! takes too long to apply a delta, for example because it has restarted, is sent the whole table,
//! at intervals that grow up to a bound.
//!
//! Invariant: a machine that applies tables slowly, or never, costs a bounded rate of datagrams.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use skep_units::Now;
use skep_wire::delta::TableDelta;
use skep_wire::limits::PEERS_MAX;
use skep_wire::message::Message;
use skep_wire::seal::PeerId;
use skep_wire::table::{Table, TableVersion};

use crate::limits::{
    TABLE_RESEND_DOUBLINGS_MAX, TABLE_RESEND_HEARTBEATS, TABLE_RESEND_MS_MIN, TABLE_STUCK_RESENDS,
    TABLES_RECENT_MAX,
};

/// The latest tables of a machine, the bases of deltas.
#[derive(Clone, Debug, Default)]
pub struct RecentTables {
    /// Oldest first.
    tables: VecDeque<Arc<Table>>,
}

impl RecentTables {
    /// Stores a table; keeps the last [`TABLES_RECENT_MAX`].
    pub fn keep(&mut self, table: Arc<Table>) {
        if self.tables.len() == TABLES_RECENT_MAX {
            self.tables.pop_front();
        }
        self.tables.push_back(table);
    }

    /// The table that a delta results in; `None` if it is not later than the latest one, or its
    /// base is unknown or different.
    pub fn apply(&self, delta: &TableDelta) -> Option<Table> {
        let is_later = self.latest().is_none_or(|latest| delta.version > latest.version);
        is_later.then(|| delta.apply(self.get(delta.base)?).ok()).flatten()
    }

    fn get(&self, version: TableVersion) -> Option<&Arc<Table>> {
        self.tables.iter().rfind(|table| table.version == version)
    }

    fn latest(&self) -> Option<&Arc<Table>> {
        self.tables.back()
    }
}

/// A message and its recipients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableUpdate {
    pub to: Vec<PeerId>,
    pub message: Arc<Message>,
}

/// Distributes the tables of a dispatcher while it is active.
#[derive(Clone, Debug)]
pub struct TableDistributor {
    /// Interval after which a table is sent again.
    resend_ms: u64,
    /// Recent tables; the last one is the one to distribute.
    recent: RecentTables,
    /// The state of transmissions by machine, at most [`PEERS_MAX`].
    sent: BTreeMap<PeerId, Sent>,
    /// The encoded messages of the last table.
    messages: BTreeMap<Form, Arc<Message>>,
}

/// The form in which a table is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    Whole,
    /// As a delta from this version.
    Since(TableVersion),
}

/// What a machine was sent since its heartbeats first reported the table `has`.
#[derive(Clone, Copy, Debug)]
struct Sent {
    has: TableVersion,
    first_at: Now,
    last_at: Now,
    /// The time of the last whole table, and the number of whole tables.
    whole: Option<(Now, u32)>,
}

impl TableDistributor {
    /// A distributor for machines that send a heartbeat every `heartbeat_ms`.
    pub fn new(heartbeat_ms: u64) -> Self {
        Self {
            resend_ms: (TABLE_RESEND_HEARTBEATS * heartbeat_ms).max(TABLE_RESEND_MS_MIN),
            recent: RecentTables::default(),
            sent: BTreeMap::new(),
            messages: BTreeMap::new(),
        }
    }

    /// The recent tables of all dispatchers.
    pub fn recent(&self) -> &RecentTables {
        &self.recent
    }

    /// The table of another dispatcher was adopted.
    pub fn adopted(&mut self, table: Arc<Table>) {
        self.recent.keep(table);
        self.messages.clear();
        self.sent.clear();
    }

    /// A new table was made: returns the messages for machines with the given tables.
    pub fn publish(
        &mut self,
        now: Now,
        table: Arc<Table>,
        peers: impl IntoIterator<Item = (PeerId, TableVersion)>,
    ) -> Vec<TableUpdate> {
        self.recent.keep(table);
        self.messages.clear();
        let before = std::mem::take(&mut self.sent);
        let mut by_form: BTreeMap<Form, Vec<PeerId>> = BTreeMap::new();
        for (peer, has) in peers.into_iter().take(PEERS_MAX) {
            let mut sent = Sent::since(before.get(&peer), now, has);
            if let Some(form) = sent.form(now, self.resend_ms, self.recent.get(has).is_some()) {
                sent.note(now, form);
                by_form.entry(form).or_default().push(peer);
            }
            self.sent.insert(peer, sent);
        }
        let update = |(form, to)| Some(TableUpdate { to, message: self.message(form)? });
        let updates = by_form.into_iter().filter_map(update).collect();
        self.check_invariants();
        updates
    }

    /// A machine's heartbeat reports its table: returns the message that it must be sent now, if
    /// any.
    pub fn heard(&mut self, now: Now, from: PeerId, has: TableVersion) -> Option<Arc<Message>> {
        if has >= self.recent.latest()?.version {
            self.sent.remove(&from);
            return None;
        }
        let before = self.sent.get(&from);
        let is_full = before.is_none() && self.sent.len() >= PEERS_MAX;
        let is_early = before.is_some_and(|sent| now.since_ms(sent.last_at) < self.resend_ms);
        let mut sent = Sent::since(before, now, has);
        let form = sent.form(now, self.resend_ms, self.recent.get(has).is_some());
        let form = form.filter(|_| !is_early && !is_full);
        if let Some(form) = form {
            sent.note(now, form);
        }
        if before.is_some() || form.is_some() {
            self.sent.insert(from, sent);
        }
        let message = self.message(form?);
        self.check_invariants();
        message
    }

    /// Checks the invariants: memory is bounded for any senders of heartbeats.
    fn check_invariants(&self) {
        debug_assert!(self.sent.len() <= PEERS_MAX, "{} machines", self.sent.len());
        let forms = self.messages.len();
        debug_assert!(forms <= TABLES_RECENT_MAX + 1, "{forms} forms of one table");
        debug_assert!(self.recent.tables.len() <= TABLES_RECENT_MAX, "bases of deltas");
    }

    /// The message of the last table in this form.
    fn message(&mut self, form: Form) -> Option<Arc<Message>> {
        if let Some(message) = self.messages.get(&form) {
            return Some(Arc::clone(message));
        }
        let table = self.recent.latest()?;
        let message = Arc::new(match form {
            Form::Since(base) => {
                Message::TableDelta(TableDelta::between(self.recent.get(base)?, table))
            }
            Form::Whole => Message::Table(Table::clone(table)),
        });
        self.messages.insert(form, Arc::clone(&message));
        Some(message)
    }
}

impl Sent {
    /// The state of transmissions to a machine that reports this table now.
    fn since(before: Option<&Self>, now: Now, has: TableVersion) -> Self {
        match before {
            Some(before) if before.has == has => *before,
            // It has applied something: deltas do arrive.
            before => {
                let last_at = before.map_or(now, |before| before.last_at);
                Self { has, first_at: now, last_at, whole: None }
            }
        }
    }

    /// The form in which the machine may be sent the last table now.
    fn form(&self, now: Now, resend_ms: u64, is_base_known: bool) -> Option<Form> {
        let patience_ms = |times: u32| resend_ms << (times - 1).min(TABLE_RESEND_DOUBLINGS_MAX);
        let may_be_whole =
            self.whole.is_none_or(|(at, times)| now.since_ms(at) >= patience_ms(times));
        let is_stuck = now.since_ms(self.first_at) >= TABLE_STUCK_RESENDS * resend_ms;
        match is_base_known {
            true if is_stuck && may_be_whole => Some(Form::Whole),
            true => Some(Form::Since(self.has)),
            false => may_be_whole.then_some(Form::Whole),
        }
    }

    fn note(&mut self, now: Now, form: Form) {
        self.last_at = now;
        if form == Form::Whole {
            let times = self.whole.map_or(0, |(_, times)| times);
            self.whole = Some((now, times.saturating_add(1)));
        }
    }
}
