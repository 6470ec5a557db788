//! Switches the node off and on: it is off while all linked coordinators want it off.
//!
//! ```text
//!   On --all want it--> Stopping: remove segments, offer those that no other node has
//!    ^                      | none is left, or the deadline has passed
//!    |                      v
//!    |                  a thread frees heads, tables and the workers' memory
//!    |                      v
//!    +--one does not--  Off: the agent still runs, and serves requests that arrive from its disk and the origins
//! ```
//!
//! Invariant: without a link the node is on: clients that can reach it may be unable to reach any other.

use std::thread;

use skep_peer::stream::{LinkId, Outbox};
use skep_serve::monotonic_ms;
use skep_wire::cache::{PowerStage, SegmentName, ToCoordinator};
use skep_wire::limits::TAIL_MAX;

use super::CoordinatorLinks;
use crate::limits::HAND_OVER_MS_MAX;

/// Progress of switching the node off.
#[derive(Default)]
pub(super) struct Stopping {
    /// Time after which segments not handed over are dropped, by the monotonic clock in milliseconds.
    until_ms: u64,
    /// The coordinator asked about the oldest segments that has not answered yet.
    asked: Option<LinkId>,
    /// Whether the memory of workers and tables is being returned.
    is_releasing: bool,
    /// The stage last reported to coordinators.
    told: PowerStage,
}

impl CoordinatorLinks {
    /// Handles a coordinator's message on whether it wants the node off.
    pub(super) fn power(&mut self, link: LinkId, is_off: bool, outbox: &mut Outbox<ToCoordinator>) {
        let Some(coordinator) = self.links.get_mut(&link) else { return };
        coordinator.wants_off = Some(is_off);
        self.follow_power(outbox);
        self.tell_power(link, outbox);
    }

    /// Switches the node as all coordinators want it, and continues what is in progress.
    pub(super) fn follow_power(&mut self, outbox: &mut Outbox<ToCoordinator>) {
        let wants_off = |wanted: Option<bool>| wanted == Some(true);
        let is_off =
            !self.links.is_empty() && self.links.values().all(|it| wants_off(it.wants_off));
        match (is_off, self.node_power.stage()) {
            (true, PowerStage::On) => self.stop(),
            (false, PowerStage::Stopping | PowerStage::Off) => self.wake(),
            _ => {}
        }
        // A node that was switched off, on, and off again in quick succession may be off with segments left.
        let is_over = self.node_power.stage() == PowerStage::On || self.stopping.is_releasing;
        if !is_over {
            self.let_go(outbox);
        }
        let stage = self.node_power.stage();
        if std::mem::replace(&mut self.stopping.told, stage) != stage {
            let told: Vec<_> = self.links.keys().copied().collect();
            told.into_iter().for_each(|link| self.tell_power(link, outbox));
        }
    }

    /// Handles a coordinator's report on which of the oldest segments other nodes hold.
    pub(super) fn tail_of_stopping(
        &mut self,
        link: LinkId,
        names: &[SegmentName],
        outbox: &mut Outbox<ToCoordinator>,
    ) {
        if self.node_power.stage() == PowerStage::On || self.stopping.asked != Some(link) {
            return;
        }
        self.stopping.asked = None;
        // Without names, or if not all could be let go, continues with the next tick: the answer would arrive
        // at once.
        if !names.is_empty() && self.store.let_go(names, true) {
            self.let_go(outbox);
        }
    }

    fn stop(&mut self) {
        tracing::info!("off: nothing is kept any more, and what no other node has is handed over");
        self.store.close();
        self.node_power.set_stage(PowerStage::Stopping);
        let until_ms = monotonic_ms() + HAND_OVER_MS_MAX;
        self.stopping = Stopping { until_ms, told: self.stopping.told, ..Stopping::default() };
    }

    fn wake(&mut self) {
        tracing::info!("on: segments are kept again");
        self.node_power.set_stage(PowerStage::On);
        self.store.open();
    }

    fn let_go(&mut self, outbox: &mut Outbox<ToCoordinator>) {
        let names = self.store.oldest(TAIL_MAX);
        if monotonic_ms() < self.stopping.until_ms && !self.store.is_empty() {
            // Waits for an active coordinator. Without names, the answer states which node has room for the
            // segments still offered.
            if let Some(link) = self.active().filter(|link| self.stopping.asked != Some(*link)) {
                self.stopping.asked = Some(link);
                let _ = outbox.send(link, &ToCoordinator::Tail { names });
            }
            return;
        }
        self.store.end_offers();
        self.store.let_go(&names, false);
        if self.store.oldest(1).is_empty() {
            self.release();
        }
    }

    /// Returns all other memory on a thread of its own: with millions of heads this takes longer than a link
    /// may be silent.
    fn release(&mut self) {
        self.stopping.is_releasing = true;
        let (release, power) = (self.release.clone(), self.node_power.clone());
        let store = self.store.clone();
        let run = move || {
            release();
            store.shrink();
            power.stopped();
            skep_memory::return_unused();
        };
        if let Err(error) = thread::Builder::new().name("skep-off".into()).spawn(run) {
            tracing::warn!("off: no thread to return memory: {error}");
            self.node_power.stopped();
        }
        skep_memory::return_unused();
    }

    fn tell_power(&self, link: LinkId, outbox: &mut Outbox<ToCoordinator>) {
        if self.links.get(&link).is_some_and(|it| it.wants_off.is_some()) {
            let (stage, capacity_bytes) = (self.node_power.stage(), self.store.index_bytes_max());
            // A link with a full queue ends, and starts over.
            let _ = outbox.send(link, &ToCoordinator::Power { stage, capacity_bytes });
        }
    }
}
