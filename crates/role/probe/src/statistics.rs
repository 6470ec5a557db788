//! Statistics of a series of times: mean, its confidence interval, quantiles.

use skep_units::student_t_975;

/// Times in microseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampleTimes {
    us: Vec<u64>,
    is_sorted: bool,
}

impl SampleTimes {
    pub(crate) fn add(&mut self, us: u64) {
        self.us.push(us);
        self.is_sorted = false;
    }

    pub(crate) fn add_all(&mut self, others: &Self) {
        self.us.extend(&others.us);
        self.is_sorted = false;
    }

    /// Number of times.
    pub fn count(&self) -> u64 {
        self.us.len() as u64
    }

    /// Their mean; `None` if there are none.
    pub fn mean_us(&self) -> Option<f64> {
        let sum: f64 = self.us.iter().map(|us| *us as f64).sum();
        (!self.us.is_empty()).then(|| sum / self.us.len() as f64)
    }

    /// Half the width of the mean's 95 % confidence interval (Student's t); `None` if there are
    /// fewer than two.
    pub fn half_interval_us(&self) -> Option<f64> {
        let mean = self.mean_us()?;
        let freedom = self.us.len().checked_sub(1).filter(|it| *it > 0)?;
        let squares: f64 = self.us.iter().map(|us| (*us as f64 - mean).powi(2)).sum();
        let count = freedom as f64;
        Some(student_t_975(freedom) * (squares / count / (count + 1.0)).sqrt())
    }

    /// The time that `share` of them do not exceed (nearest rank); `None` if there are none.
    pub fn quantile_us(&mut self, share: f64) -> Option<u64> {
        if !self.is_sorted {
            self.us.sort_unstable();
            self.is_sorted = true;
        }
        let rank = (share * self.us.len() as f64).ceil().max(1.0) as usize;
        self.us.get(rank - 1).copied()
    }
}

/// The median of `values`; `None` if there are none.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        _ if values.is_empty() => None,
        0 => Some((values[middle - 1] + values[middle]) / 2.0),
        _ => Some(values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(us: &[u64]) -> SampleTimes {
        SampleTimes { us: us.to_vec(), is_sorted: false }
    }

    #[test]
    fn quantiles_are_times_that_were_measured() {
        let mut all = times(&[5, 1, 4, 2, 3]);
        assert_eq!(
            [0.0, 0.2, 0.5, 0.99, 1.0].map(|it| all.quantile_us(it)),
            [1, 1, 3, 5, 5].map(Some)
        );
        all.add(0);
        assert_eq!(all.quantile_us(0.01), Some(0));
        assert_eq!(times(&[]).quantile_us(0.5), None);
    }

    /// From the tables of Student's distribution: 10, 12, 14 have the deviation 2.
    #[test]
    fn intervals_are_students() {
        assert_eq!(times(&[10, 12, 14]).mean_us(), Some(12.0));
        let half = times(&[10, 12, 14]).half_interval_us().unwrap_or_default();
        assert!((half - 4.303 * 2.0 / 3f64.sqrt()).abs() < 1e-9, "{half}");
        assert_eq!(times(&[7]).half_interval_us(), None);
        assert_eq!(times(&[]).mean_us(), None);
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
