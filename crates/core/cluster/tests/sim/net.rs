//! The network: reachability between machines, and the fate of each datagram.

use skep_units::Rng;

/// A dispatcher or node; dispatchers come first.
pub(crate) type Id = usize;

/// The release that a machine runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Release {
    #[default]
    Present,
    /// It does not know table deltas: datagrams that carry one are refused.
    WithoutDeltas,
    /// Its datagrams have another version: it refuses those of other releases, and they refuse its
    /// own.
    Other,
}

/// How the network treats datagrams.
#[derive(Clone, Debug)]
pub(crate) struct Net {
    /// Datagrams lost, in percent.
    pub(crate) loss_percent: u64,
    /// Datagrams duplicated, in percent.
    pub(crate) twice_percent: u64,
    /// Longest delay, in milliseconds: each datagram has its own, so they overtake each other.
    pub(crate) delay_ms_max: u64,
    /// `cut[a][b]`: no datagrams reach `b` from `a`.
    cut: Vec<Vec<bool>>,
    /// The release of each machine.
    releases: Vec<Release>,
}

impl Net {
    /// A network without partitions, with permanent faults such as loss.
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

    /// The arrival times of the copies of a datagram sent now: zero, one or two delays.
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

    /// Whether the two machines reach each other.
    pub(crate) fn joins(&self, a: Id, b: Id) -> bool {
        self.reaches(a, b) && self.reaches(b, a)
    }

    pub(crate) fn release(&self, id: Id) -> Release {
        self.releases[id]
    }

    /// Sets the release that a machine runs.
    pub(crate) fn upgrade(&mut self, id: Id, release: Release) {
        self.releases[id] = release;
    }

    /// The release of most machines, to which the others are upgraded in the end.
    pub(crate) fn release_of_most(&self) -> Release {
        let others = self.releases.iter().filter(|it| **it == Release::Other).count();
        if others > self.releases.len() / 2 { Release::Other } else { Release::Present }
    }

    /// Whether datagrams of `from` arrive at `to`, and have a version that it accepts.
    fn reaches(&self, from: Id, to: Id) -> bool {
        let is_other = |id: Id| self.releases[id] == Release::Other;
        !self.cut[from][to] && is_other(from) == is_other(to)
    }

    /// Whether all machines reach each other.
    pub(crate) fn is_whole(&self) -> bool {
        let machines = 0..self.releases.len();
        machines.clone().all(|a| machines.clone().all(|b| self.reaches(a, b)))
    }

    /// Separates machines on different sides.
    pub(crate) fn part(&mut self, side: &[u64]) {
        for a in 0..side.len() {
            for b in 0..side.len() {
                self.cut[a][b] |= side[a] != side[b];
            }
        }
    }

    /// Cuts the direction from `a` to `b`, and also the reverse if `both`.
    pub(crate) fn cut(&mut self, a: Id, b: Id, both: bool) {
        self.cut[a][b] = true;
        self.cut[b][a] |= both;
    }

    /// Cuts all directions to `to`.
    pub(crate) fn deafen(&mut self, to: Id) {
        self.cut.iter_mut().for_each(|from| from[to] = true);
    }

    /// Removes all cuts.
    pub(crate) fn heal(&mut self) {
        self.cut.iter_mut().flatten().for_each(|cut| *cut = false);
    }

    /// Removes all faults.
    pub(crate) fn mend(&mut self) {
        self.heal();
        (self.loss_percent, self.twice_percent) = (0, 0);
    }
}
