//! Means over seeds with confidence intervals.

use skep_units::student_t_975;

/// The mean of some values with the half-width of its 95 % confidence interval, which is infinite for a
/// single value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub mean: f64,
    pub half_width: f64,
}

impl Estimate {
    /// The estimate for these values, at least one. Values that are not finite are ignored.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        let count = values.len();
        if count == 0 {
            return Self { mean: f64::NAN, half_width: f64::NAN };
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        if count == 1 {
            return Self { mean, half_width: f64::INFINITY };
        }
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let error = (squares / (count - 1) as f64 / count as f64).sqrt();
        Self { mean, half_width: student_t_975(count - 1) * error }
    }
}

/// The ratio of measures of the same seeds, paired: the geometric mean with its 95 % confidence interval,
/// computed from the logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatioEstimate {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}

impl RatioEstimate {
    /// The estimate for these pairs of value and base, at least one.
    pub fn of(pairs: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let logs = Estimate::of(pairs.into_iter().map(|(value, base)| (value / base).ln()));
        let Estimate { mean, half_width } = logs;
        Self { mean: mean.exp(), low: (mean - half_width).exp(), high: (mean + half_width).exp() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_units::Rng;

    #[test]
    fn estimates_are_those_of_the_textbook() {
        let seen = Estimate::of([4.0, 6.0, 8.0]);
        assert_eq!(seen.mean, 6.0);
        assert!((seen.half_width - 4.303 * 2.0 / 3f64.sqrt()).abs() < 1e-9);
        assert_eq!(Estimate::of([3.0]), Estimate { mean: 3.0, half_width: f64::INFINITY });
        let ratio = RatioEstimate::of([(2.0, 1.0), (20.0, 10.0), (0.2, 0.1)]);
        assert!([ratio.mean, ratio.low, ratio.high].iter().all(|it| (it - 2.0).abs() < 1e-9));
        let ratio = RatioEstimate::of([(1.0, 1.0), (4.0, 1.0), (2.0, 1.0)]);
        assert!((ratio.mean - 2.0).abs() < 1e-9 && (ratio.low * ratio.high - 4.0).abs() < 1e-9);
        assert!((ratio.high - 2.0 * 2f64.powf(4.303 / 3f64.sqrt())).abs() < 1e-6);
    }

    #[test]
    fn nineteen_intervals_of_twenty_contain_the_mean() {
        let mut rng = Rng::new(9);
        let runs = 4_000;
        let contain = |_: &u32| {
            // Sums of twelve uniform numbers are nearly normally distributed, with mean 6.
            let mut value = || (0..12).map(|_| rng.unit()).sum::<f64>();
            let values: Vec<f64> = (0..5).map(|_| value()).collect();
            let seen = Estimate::of(values);
            (seen.mean - 6.0).abs() <= seen.half_width
        };
        let contained = (0..runs).filter(contain).count() as f64 / f64::from(runs);
        assert!((contained - 0.95).abs() < 0.012, "{contained}");
    }
}
