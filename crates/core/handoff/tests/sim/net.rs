//! The network between machines: reachability, and the fate of each message.

use skep_units::Rng;

use crate::kernel::Id;

/// How the network treats messages.
#[derive(Clone, Debug)]
pub(crate) struct Net {
    loss_percent: u64,
    twice_percent: u64,
    /// Longest delay, in milliseconds: each message has its own, so they overtake each other.
    delay_ms_max: u64,
    /// Longest delay of the second copy.
    twice_ms_max: u64,
    /// `cut[a][b]`: no messages reach `b` from `a`.
    cut: Vec<Vec<bool>>,
}

impl Net {
    pub(crate) fn new(machines: usize, rng: &mut Rng) -> Self {
        let pick = |rng: &mut Rng, of: &[u64]| of[rng.below(of.len() as u64) as usize];
        Self {
            loss_percent: pick(rng, &[0, 0, 1, 5, 20]),
            twice_percent: pick(rng, &[0, 10, 30]),
            delay_ms_max: pick(rng, &[1, 2, 5, 20, 60]),
            twice_ms_max: pick(rng, &[1, 30, 300]),
            // The dispatcher is an additional machine.
            cut: vec![vec![false; machines + 1]; machines + 1],
        }
    }

    /// The arrival times of the copies of a message sent now: zero, one or two delays.
    pub(crate) fn send(&self, from: Id, to: Id, rng: &mut Rng) -> Vec<u64> {
        let first = rng.below(self.delay_ms_max);
        let second = rng.below(self.delay_ms_max + self.twice_ms_max);
        let is_lost = rng.below(100) < self.loss_percent;
        let is_twice = rng.below(100) < self.twice_percent;
        match (self.cut[from][to], is_lost, is_twice) {
            (true, ..) => Vec::new(),
            (_, false, false) => vec![first],
            (_, false, true) => vec![first, second],
            (_, true, true) => vec![second],
            (_, true, false) => Vec::new(),
        }
    }

    pub(crate) fn delay(&self, rng: &mut Rng) -> u64 {
        rng.below(self.delay_ms_max)
    }

    pub(crate) fn cut(&mut self, a: Id, b: Id, both: bool) {
        self.cut[a][b] = true;
        self.cut[b][a] |= both;
    }

    pub(crate) fn heal(&mut self) {
        self.cut.iter_mut().flatten().for_each(|cut| *cut = false);
    }
}
