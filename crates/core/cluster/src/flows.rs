//! Replication of the flow table to a standby: first the whole table, then new flows.
//!
//! A [`FlowSource`] numbers batches and keeps each until it is acknowledged; a [`FlowSink`] accepts
//! them in order and acknowledges the last one. After a loss, batches are sent again from there
//! (go-back-n): flows are many, small and idempotent, and datagrams within a cluster are rarely
//! lost.

use std::collections::VecDeque;

use skep_units::Now;
use skep_wire::limits::FLOWS_PER_BATCH_MAX;
use skep_wire::message::{FlowBatch, FlowsTaken};
use skep_wire::steer::Flow;

use crate::limits::{FLOW_BATCHES_KEPT_MAX, FLOW_RESEND_MS, FLOW_WINDOW};

/// The sending end, for one standby.
#[derive(Clone, Debug)]
pub struct FlowSource {
    dump: u64,
    /// Batches that are not acknowledged yet.
    kept: VecDeque<FlowBatch>,
    /// Number of the next batch to make.
    next: u64,
    /// Number of the next batch to send.
    unsent: u64,
    /// Time of the last acknowledgement or retransmission.
    moved_at: Now,
    /// Whether the whole table has been listed.
    is_listed: bool,
    /// Flows that began during the listing.
    later: Vec<Flow>,
}

impl FlowSource {
    /// A source whose `dump` must differ from all previous ones.
    pub fn new(now: Now, dump: u64) -> Self {
        let kept = VecDeque::new();
        Self { dump, kept, next: 0, unsent: 0, moved_at: now, is_listed: false, later: Vec::new() }
    }

    /// Adds a part of the flow table's listing; an empty one ends it.
    pub fn list(&mut self, flows: &[Flow]) {
        if self.is_listed {
            return;
        }
        self.add(flows);
        if flows.is_empty() {
            self.is_listed = true;
            // The end is a batch of its own, so that an empty table has one, too.
            self.push(Vec::new());
            let later = std::mem::take(&mut self.later);
            self.add(&later);
        }
    }

    /// Adds new flows.
    pub fn begin(&mut self, flows: &[Flow]) {
        match self.is_listed {
            true => self.add(flows),
            false => self.later.extend_from_slice(flows),
        }
    }

    /// The standby has acknowledged all batches up to one.
    pub fn taken(&mut self, now: Now, taken: FlowsTaken) {
        let is_known = taken.dump == self.dump && taken.number < self.unsent;
        while is_known && self.kept.front().is_some_and(|batch| batch.number <= taken.number) {
            self.kept.pop_front();
            self.moved_at = now;
        }
    }

    /// The batches to send now.
    pub fn due(&mut self, now: Now) -> Vec<FlowBatch> {
        let Some(oldest) = self.kept.front().map(|batch| batch.number) else { return Vec::new() };
        let is_stuck = self.unsent > oldest && now.since_ms(self.moved_at) >= FLOW_RESEND_MS;
        if is_stuck || self.unsent <= oldest {
            self.moved_at = now;
            self.unsent = oldest;
        }
        let from = (self.unsent - oldest) as usize;
        let window = FLOW_WINDOW.saturating_sub(from);
        let due: Vec<FlowBatch> = self.kept.iter().skip(from).take(window).cloned().collect();
        self.unsent += due.len() as u64;
        due
    }

    /// Whether everything was acknowledged.
    pub fn is_idle(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether so much is pending that a new dump is cheaper.
    pub fn is_hopeless(&self) -> bool {
        let later = self.later.len() / FLOWS_PER_BATCH_MAX;
        self.kept.len() + later > FLOW_BATCHES_KEPT_MAX
    }

    fn add(&mut self, flows: &[Flow]) {
        for flows in flows.chunks(FLOWS_PER_BATCH_MAX) {
            self.push(flows.to_vec());
        }
    }

    fn push(&mut self, flows: Vec<Flow>) {
        let number = self.next;
        self.next += 1;
        let is_last = self.is_listed && flows.is_empty();
        let is_first = number == 0;
        self.kept.push_back(FlowBatch { dump: self.dump, number, is_first, is_last, flows });
    }
}

/// The receiving end.
#[derive(Clone, Debug, Default)]
pub struct FlowSink {
    dump: u64,
    /// Number of the next expected batch.
    next: u64,
    is_synced: bool,
}

impl FlowSink {
    /// Accepts a batch if it is the next one: returns the flows to store, and the acknowledgement.
    /// An earlier batch is acknowledged again, since that acknowledgement was lost.
    pub fn take(&mut self, batch: FlowBatch) -> (Vec<Flow>, Option<FlowsTaken>) {
        if batch.is_first && batch.dump != self.dump {
            *self = Self { dump: batch.dump, ..Self::default() };
        }
        if batch.dump != self.dump || batch.number > self.next {
            return (Vec::new(), None);
        }
        let is_next = batch.number == self.next;
        if is_next {
            self.next += 1;
            self.is_synced |= batch.is_last;
        }
        let taken = FlowsTaken { dump: self.dump, number: self.next - 1 };
        (if is_next { batch.flows } else { Vec::new() }, Some(taken))
    }

    /// Whether an acknowledgement belongs to the current dump.
    pub fn is_of(&self, taken: FlowsTaken) -> bool {
        self.dump == taken.dump
    }

    /// Whether the whole table was received, and everything since.
    pub fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// The sender is gone, or another one is active: expects a new dump.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}
