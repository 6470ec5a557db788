//! Whether this node is on, for all its threads.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use skep_wire::cache::PowerStage;

/// The thread of the links decides.
#[derive(Debug, Default)]
pub(crate) struct NodePower {
    stage: AtomicU8,
    /// How often it went off.
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

    /// It is off, unless it was switched on meanwhile.
    pub(crate) fn stopped(&self) {
        let (stopping, off) = (number(PowerStage::Stopping), number(PowerStage::Off));
        // A worker that sees it before sees it at its next look.
        self.releases.fetch_add(1, Ordering::Release);
        let _ = self.stage.compare_exchange(stopping, off, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// How often it went off: what a worker keeps for itself goes each time.
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
