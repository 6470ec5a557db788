//! The network: reachability between machines, and the fate of each datagram.

use skep_units::Rng;

/// A dispatcher or node: dispatchers come first.
pub(crate) type Id = usize;

/// What runs on a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Release {
    #[default]
    Present,
    /// It knows no table deltas: datagrams that carry one are refused.
    WithoutDeltas,
    /// Its datagrams are of another version: it refuses those of others, and others refuse its own.
    Other,
}

/// How the network treats datagrams.
#[derive(Clone, Debug)]
pub(crate) struct Net {
    /// Lost, in percent.
    pub(crate) loss_percent: u64,
    /// Come twice, in percent.
    pub(crate) twice_percent: u64,
    /// Longest delay, in milliseconds: each has its own, so they overtake.
    pub(crate) delay_ms_max: u64,
    /// `cut[a][b]`: nothing comes from `a` to `b`.
    cut: Vec<Vec<bool>>,
    /// What each machine runs.
    releases: Vec<Release>,
}

impl Net {
    /// A whole network, with faults that last.
    pub(crate) fn new(machines: usize, rng: &mut Rng) -> Self {
        let pick = |rng: &mut Rng, of: &[u64]| of[rng.below(of.len() as u64) as usize];
        Self {
            loss_percent: pick(rng, &[0, 0, 0, 5, 15, 30]),
            twice_percent: pick(rng, &[0, 0, 10]),
            delay_ms_max: pick(rng, &[1, 2, 10, 30]),
            cut: vec![vec![false; machines]; machines],
            releases: vec![Release::default(); machines],
        }
    }

    /// When the copies of a datagram sent now arrive: none, one or two delays.
    pub(crate) fn send(
        &self,
        from: Id,
        to: Id,
        rng: &mut Rng,
    ) -> impl Iterator<Item = u64> + use<> {
        let is_lost = !self.reaches(from, to) || rng.below(100) < self.loss_percent;
        let copies = if rng.below(100) < self.twice_percent { 2 } else { 1 };
        let mut delay = || rng.below(self.delay_ms_max) + 1;
        let delays = [delay(), delay()];
        delays.into_iter().take(if is_lost { 0 } else { copies })
    }

    /// Whether both reach each other.
    pub(crate) fn joins(&self, a: Id, b: Id) -> bool {
        self.reaches(a, b) && self.reaches(b, a)
    }

    pub(crate) fn release(&self, id: Id) -> Release {
        self.releases[id]
    }

    /// A machine runs another release from now on.
    pub(crate) fn upgrade(&mut self, id: Id, release: Release) {
        self.releases[id] = release;
    }

    /// That of most machines, to which the others are brought in the end.
    pub(crate) fn release_of_most(&self) -> Release {
        let others = self.releases.iter().filter(|it| **it == Release::Other).count();
        if others > self.releases.len() / 2 { Release::Other } else { Release::Present }
    }

    /// Whether datagrams of `from` are understood at `to`, and come there.
    fn reaches(&self, from: Id, to: Id) -> bool {
        let is_other = |id: Id| self.releases[id] == Release::Other;
        !self.cut[from][to] && is_other(from) == is_other(to)
    }

    /// Whether all reach all.
    pub(crate) fn is_whole(&self) -> bool {
        let machines = 0..self.releases.len();
        machines.clone().all(|a| machines.clone().all(|b| self.reaches(a, b)))
    }

    /// Parts the machines of different sides.
    pub(crate) fn part(&mut self, side: &[u64]) {
        for a in 0..side.len() {
            for b in 0..side.len() {
                self.cut[a][b] |= side[a] != side[b];
            }
        }
    }

    /// Cuts the way from `a` to `b`, and that back if `both`.
    pub(crate) fn cut(&mut self, a: Id, b: Id, both: bool) {
        self.cut[a][b] = true;
        self.cut[b][a] |= both;
    }

    /// Cuts the way to `to` from everybody.
    pub(crate) fn deafen(&mut self, to: Id) {
        self.cut.iter_mut().for_each(|from| from[to] = true);
    }

    /// Makes it whole.
    pub(crate) fn heal(&mut self) {
        self.cut.iter_mut().flatten().for_each(|cut| *cut = false);
    }

    /// Makes it perfect.
    pub(crate) fn mend(&mut self) {
        self.heal();
        (self.loss_percent, self.twice_percent) = (0, 0);
    }
}
