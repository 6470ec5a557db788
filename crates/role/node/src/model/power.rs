//! Whether this node is switched on; shared by all threads.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use skep_wire::cache::PowerStage;

/// Set by the link thread.
#[derive(Debug, Default)]
pub(crate) struct NodePower {
    stage: AtomicU8,
    /// Number of times that the node was switched off.
    releases: AtomicU64,
}

impl NodePower {
    pub(crate) fn stage(&self) -> PowerStage {
        match self.stage.load(Ordering::Acquire) {
            0 => PowerStage::On,
            1 => PowerStage::Stopping,
            _ => PowerStage::Off,
        }
    }

    pub(crate) fn set_stage(&self, stage: PowerStage) {
        self.stage.store(number(stage), Ordering::Release);
    }

    /// Marks the node as off, unless it was switched on meanwhile.
    pub(crate) fn stopped(&self) {
        let (stopping, off) = (number(PowerStage::Stopping), number(PowerStage::Off));
        // A worker that reads the count too early sees the change at its next check.
        self.releases.fetch_add(1, Ordering::Release);
        let _ = self.stage.compare_exchange(stopping, off, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Number of times that the node was switched off: a worker releases its own memory each time.
    pub(crate) fn releases(&self) -> u64 {
        self.releases.load(Ordering::Acquire)
    }
}

fn number(stage: PowerStage) -> u8 {
    match stage {
        PowerStage::On => 0,
        PowerStage::Stopping => 1,
        PowerStage::Off => 2,
    }
}
