//! Replication of the flow table to a standby: first the whole table, then new flows.
//!
//! A [`FlowSource`] numbers batches and keeps each until it is acknowledged; a
//! [`FlowSink`] accepts them in order and acknowledges the last one. Lost batches are
//! sent again from there (go-back-n): flows are many, small and idempotent, and
//! datagrams of a cluster are rarely lost.

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
    /// Batches that were not taken yet.
    kept: VecDeque<FlowBatch>,
    /// Number of the next batch made.
    next: u64,
    /// Number of the next batch to send.
    unsent: u64,
    /// When something was taken last, or sent again.
    moved_at: Now,
    /// Whether the whole table was listed.
    is_listed: bool,
    /// Flows that began while it was being listed.
    later: Vec<Flow>,
}

impl FlowSource {
    /// A source whose `dump` differs from all previous ones.
    pub fn new(now: Now, dump: u64) -> Self {
        let kept = VecDeque::new();
        Self { dump, kept, next: 0, unsent: 0, moved_at: now, is_listed: false, later: Vec::new() }
    }

    /// A piece of the flow table's list; an empty one is its end.
    pub fn list(&mut self, flows: &[Flow]) {
        if self.is_listed {
            return;
        }
        self.add(flows);
        if flows.is_empty() {
            self.is_listed = true;
            // An end of its own, so that an empty table has one too.
            self.push(Vec::new());
            let later = std::mem::take(&mut self.later);
            self.add(&later);
        }
    }

    /// Flows began.
    pub fn begin(&mut self, flows: &[Flow]) {
        match self.is_listed {
            true => self.add(flows),
            false => self.later.extend_from_slice(flows),
        }
    }

    /// The standby took all batches up to one.
    pub fn taken(&mut self, now: Now, taken: FlowsTaken) {
        let is_known = taken.dump == self.dump && taken.number < self.unsent;
        while is_known && self.kept.front().is_some_and(|batch| batch.number <= taken.number) {
            self.kept.pop_front();
            self.moved_at = now;
        }
    }

    /// What to send now.
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

    /// Whether all was taken that there is.
    pub fn is_idle(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether so much waits that a new dump is the shorter way.
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
    /// Number of the batch that is next.
    next: u64,
    is_synced: bool,
}

impl FlowSink {
    /// Accepts a batch if it is the next one: returns the flows to keep, and the acknowledgement.
    /// An earlier batch is acknowledged again, since that answer was lost.
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

    /// Whether an acknowledgement is of the present dump.
    pub fn is_of(&self, taken: FlowsTaken) -> bool {
        self.dump == taken.dump
    }

    /// Whether the whole table came, and all since then.
    pub fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// The sender is gone, or another is active now: what comes next is new.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}
