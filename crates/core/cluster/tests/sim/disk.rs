//! A dispatcher's disk: persisted epochs outlive the process, unless the file is lost.

use skep_units::Rng;

/// How a disk behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskMode {
    Fast,
    /// Answers within seconds.
    Slow,
    /// Every write fails.
    Failing,
}

/// How the file is lost while no process has it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileLoss {
    /// It is replaced by an earlier copy.
    OldCopy,
    /// It is missing, or damaged and moved aside: a new one is created.
    Gone,
}

#[derive(Clone, Debug)]
pub(crate) struct Disk {
    pub(crate) mode: DiskMode,
    /// All epochs that were persisted or restored, in order: the last one is in the file, the
    /// others may be in a backup.
    written: Vec<u64>,
    /// Writes of processes up to this life went to the lost file.
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

    /// Completes a write of the process of this life.
    pub(crate) fn write(&mut self, life: u64, epoch: u64) {
        if life > self.lost_life && epoch > self.epoch() {
            self.written.push(epoch);
        }
    }

    /// Loses the file of the process of this life.
    pub(crate) fn lose(&mut self, life: u64, how: FileLoss, rng: &mut Rng) {
        self.lost_life = life;
        let restored = match how {
            FileLoss::OldCopy => self.written[rng.below(self.written.len() as u64) as usize],
            FileLoss::Gone => 0,
        };
        self.written.push(restored);
    }
}
