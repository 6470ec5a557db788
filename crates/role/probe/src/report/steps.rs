//! Divides steps of time into those of light and of heavy load, at the median of the nodes' mean load.

use std::collections::BTreeMap;

use crate::statistics::median;

/// Steps since 1970, such as hours, with the mean load of the nodes in each.
#[derive(Default)]
pub(super) struct Steps {
    loads: BTreeMap<u64, f64>,
    median: Option<f64>,
}

impl Steps {
    pub(super) fn of(loads: Vec<(u64, f64)>) -> Self {
        let values: Vec<f64> = loads.iter().map(|(_, load)| *load).collect();
        let is_flat = values.windows(2).all(|pair| pair[0] == pair[1]);
        Self { median: median(values).filter(|_| !is_flat), loads: loads.into_iter().collect() }
    }

    pub(super) fn is_split(&self) -> bool {
        self.median.is_some()
    }

    /// Why steps are not divided; `None`: they are.
    pub(super) fn why_not_split(&self) -> Option<&'static str> {
        match (self.median, self.loads.len()) {
            (Some(_), _) => None,
            (None, 0) => Some("the files have no samples of recorders"),
            (None, _) => Some(
                "all steps with samples of recorders had the same load: with --step they can be shorter",
            ),
        }
    }

    pub(super) fn is_light(&self, step: u64) -> bool {
        self.load(step).zip(self.median).is_some_and(|(load, median)| load <= median)
    }

    pub(super) fn is_heavy(&self, step: u64) -> bool {
        self.load(step).zip(self.median).is_some_and(|(load, median)| load > median)
    }

    /// The first step with a load.
    pub(super) fn first(&self) -> Option<u64> {
        self.loads.keys().next().copied()
    }

    fn load(&self, step: u64) -> Option<f64> {
        self.loads.get(&step).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(loads: &[f64]) -> Steps {
        Steps::of((0..).zip(loads.iter().copied()).collect())
    }

    #[test]
    fn steps_are_split_at_the_median() {
        let steps = steps(&[1.0, 5.0, 3.0]);
        assert_eq!([0, 1, 2, 3].map(|step| steps.is_light(step)), [true, false, true, false]);
        assert_eq!([0, 1, 2, 3].map(|step| steps.is_heavy(step)), [false, true, false, false]);
    }

    #[test]
    fn without_differences_there_is_no_split() {
        assert!(!steps(&[]).is_split() && steps(&[]).why_not_split().is_some());
        assert!(!steps(&[2.0, 2.0]).is_split());
        assert!(steps(&[2.0, 2.5]).why_not_split().is_none());
    }
}
