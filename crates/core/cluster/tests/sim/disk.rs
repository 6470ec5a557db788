//! A dispatcher's disk: what it has persisted outlives its process, unless the file is lost.

use skep_units::Rng;

/// How a disk answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskMode {
    Fast,
    /// Within seconds.
    Slow,
    /// It is full.
    Failing,
}

/// What becomes of the file while no process has it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileLoss {
    /// An earlier copy takes its place.
    OldCopy,
    /// It is gone, or damaged, and moved aside: a new one is begun.
    Gone,
}

#[derive(Clone, Debug)]
pub(crate) struct Disk {
    pub(crate) mode: DiskMode,
    /// All epochs that were persisted one after the other, or were restored: the last one is in the
    /// file. What a backup may hold.
    written: Vec<u64>,
    /// Writes of processes up to that life went into the file that is lost.
    lost_life: u64,
}

impl Default for Disk {
    fn default() -> Self {
        Self { mode: DiskMode::Fast, written: vec![0], lost_life: 0 }
    }
}

impl Disk {
    /// The last epoch that was persisted.
    pub(crate) fn epoch(&self) -> u64 {
        self.written.last().copied().unwrap_or_default()
    }

    /// A write of the process of this life ends.
    pub(crate) fn write(&mut self, life: u64, epoch: u64) {
        if life > self.lost_life && epoch > self.epoch() {
            self.written.push(epoch);
        }
    }

    /// The file that the process of this life had is lost.
    pub(crate) fn lose(&mut self, life: u64, how: FileLoss, rng: &mut Rng) {
        self.lost_life = life;
        let restored = match how {
            FileLoss::OldCopy => self.written[rng.below(self.written.len() as u64) as usize],
            FileLoss::Gone => 0,
        };
        self.written.push(restored);
    }
}
