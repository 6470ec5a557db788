//! Which hours were light and which heavy: split at the median of the nodes' mean load.

use std::collections::BTreeMap;

use crate::statistics::median;

/// Milliseconds of an hour.
pub(super) const HOUR_MS: u64 = 3_600_000;

/// Hours since 1970, with the mean load of the nodes in each.
#[derive(Default)]
pub(super) struct Hours {
    loads: BTreeMap<u64, Vec<f64>>,
    median: Option<f64>,
}

impl Hours {
    /// What one file says of an hour.
    pub(super) fn add(&mut self, hour: u64, load: f64) {
        self.loads.entry(hour).or_default().push(load);
    }

    /// To be called after the last [`Self::add`].
    pub(super) fn split(&mut self) {
        let loads: Vec<f64> = self.loads.keys().filter_map(|hour| self.load(*hour)).collect();
        let is_flat = loads.windows(2).all(|pair| pair[0] == pair[1]);
        self.median = median(loads).filter(|_| !is_flat);
    }

    pub(super) fn is_split(&self) -> bool {
        self.median.is_some()
    }

    /// Why hours are not told apart; `None`: they are.
    pub(super) fn why_not_split(&self) -> Option<&'static str> {
        match (self.median, self.loads.len()) {
            (Some(_), _) => None,
            (None, 0) => Some("the files have no samples of recorders"),
            (None, _) => Some("all hours with loads of nodes had the same"),
        }
    }

    pub(super) fn is_light(&self, hour: u64) -> bool {
        self.load(hour).zip(self.median).is_some_and(|(load, median)| load <= median)
    }

    pub(super) fn is_heavy(&self, hour: u64) -> bool {
        self.load(hour).zip(self.median).is_some_and(|(load, median)| load > median)
    }

    fn load(&self, hour: u64) -> Option<f64> {
        let loads = self.loads.get(&hour)?;
        Some(loads.iter().sum::<f64>() / loads.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(loads: &[f64]) -> Hours {
        let mut hours = Hours::default();
        for (hour, load) in (0..).zip(loads) {
            hours.add(hour, *load);
        }
        hours.split();
        hours
    }

    #[test]
    fn hours_are_split_at_the_median() {
        let hours = hours(&[1.0, 5.0, 3.0]);
        assert_eq!([0, 1, 2, 3].map(|hour| hours.is_light(hour)), [true, false, true, false]);
        assert_eq!([0, 1, 2, 3].map(|hour| hours.is_heavy(hour)), [false, true, false, false]);
    }

    #[test]
    fn without_differences_there_is_no_split() {
        assert!(!hours(&[]).is_split() && hours(&[]).why_not_split().is_some());
        assert!(!hours(&[2.0, 2.0]).is_split());
        assert!(hours(&[2.0, 2.5]).why_not_split().is_none());
    }
}
