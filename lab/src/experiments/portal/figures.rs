//! The figures for each number of nodes: medians over all rounds, and the requirements on them.

use super::limits::{LIGHT_LATENCY_PART_MAX, LINEAR_PART_MIN, NODES_MAX};
use super::load::{LoadKind, PortalRun};

/// The figures of all runs.
pub(super) struct Figures<'r> {
    runs: &'r [PortalRun],
}

/// The median of some values, with minimum and maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl<'r> Figures<'r> {
    pub(super) fn of(runs: &'r [PortalRun]) -> Self {
        Self { runs }
    }

    /// The runs of a load with this number of nodes.
    pub(super) fn runs(&self, load: LoadKind, nodes: usize) -> impl Iterator<Item = &'r PortalRun> {
        let is_it = move |run: &&PortalRun| run.load == Some(load) && run.nodes.len() == nodes;
        self.runs.iter().filter(is_it)
    }

    /// The runs before the measurement.
    pub(super) fn warm_ups(&self) -> impl Iterator<Item = &'r PortalRun> {
        self.runs.iter().filter(|run| run.load.is_none())
    }

    /// A figure over all runs of a load with this number of nodes.
    pub(super) fn spread(
        &self,
        (load, nodes): (LoadKind, usize),
        figure: impl Fn(&PortalRun) -> f64,
    ) -> Spread {
        Spread::of(self.runs(load, nodes).map(figure).collect())
    }

    /// Pages per second.
    pub(super) fn rate(&self, load: LoadKind, nodes: usize) -> Spread {
        self.spread((load, nodes), |run| run.seen.requests_per_s)
    }

    /// Pages per second relative to one node.
    pub(super) fn speed_up(&self, load: LoadKind, nodes: usize) -> f64 {
        self.rate(load, nodes).median / self.rate(load, 1).median
    }

    /// The mean latency of the median run, in ms.
    pub(super) fn latency_ms(&self, load: LoadKind, nodes: usize) -> f64 {
        self.spread((load, nodes), |run| run.seen.total_us.mean / 1e3).median
    }

    /// Bytes per page.
    pub(super) fn page_bytes(&self) -> f64 {
        let sum = |of: fn(&PortalRun) -> u64| self.runs.iter().map(of).sum::<u64>() as f64;
        sum(|run| run.seen.bytes) / sum(|run| run.seen.succeeded).max(1.0)
    }

    pub(super) fn failed(&self, load: LoadKind, nodes: usize) -> u64 {
        self.runs(load, nodes).map(|run| run.seen.failed).sum()
    }

    /// The requirements that are not met; short runs indicate nothing about speed.
    pub(super) fn troubles(&self, is_quick: bool) -> Vec<String> {
        let mut troubles = Vec::new();
        for run in self.runs.iter().filter(|it| it.load != Some(LoadKind::HeavyWithoutQueue)) {
            let (seen, nodes) = (&run.seen, run.nodes.len());
            if seen.failed > 0 || seen.cookies_set < seen.succeeded {
                troubles.push(format!(
                    "{:?}, {nodes} nodes, round {}: {} of {} failed, {} sessions: {:?}",
                    run.load,
                    run.round,
                    seen.failed,
                    seen.requests,
                    seen.cookies_set,
                    seen.examples
                ));
            }
        }
        if !is_quick {
            (2..=NODES_MAX).for_each(|nodes| troubles.extend(self.slow(nodes)));
        }
        troubles
    }

    fn slow(&self, nodes: usize) -> Vec<String> {
        let part = self.speed_up(LoadKind::Heavy, nodes) / nodes as f64;
        let of_light = |nodes| self.latency_ms(LoadKind::Light, nodes);
        let latency = of_light(nodes) / of_light(1);
        let heavy = (part < LINEAR_PART_MIN)
            .then(|| format!("{nodes} nodes, heavy: {part:.2} of linear, below {LINEAR_PART_MIN}"));
        let light = (latency > LIGHT_LATENCY_PART_MAX)
            .then(|| format!("{nodes} nodes, light: {latency:.2} of the latency of one node"));
        heavy.into_iter().chain(light).collect()
    }
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |place: usize| values.get(place).copied().unwrap_or(f64::NAN);
        let last = values.len().saturating_sub(1);
        let median = f64::midpoint(at(last / 2), at(last.div_ceil(2)));
        Self { median, least: at(0), most: at(last) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_two() {
        let spread = Spread::of(vec![9.0, 1.0, 2.0, 4.0]);
        assert_eq!(spread, Spread { median: 3.0, least: 1.0, most: 9.0 });
        assert_eq!(Spread::of(vec![5.0, 1.0, 7.0]).median, 5.0);
        assert!(Spread::of(Vec::new()).median.is_nan());
    }
}
