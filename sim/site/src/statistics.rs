//! Means over seeds with their confidence intervals.

/// The mean of some values with the half-width of its 95 % confidence interval; infinite for a single value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub mean: f64,
    pub half_width: f64,
}

/// Student's t for 95 %, two-sided, by degrees of freedom from 1.
const STUDENT_T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// Of more degrees of freedom than the table has: a little wide.
const STUDENT_T_BEYOND: f64 = 2.042;

impl Estimate {
    /// Of these values, of which there is one at least. Values that are no numbers are left out.
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
        let t = STUDENT_T.get(count - 2).copied().unwrap_or(STUDENT_T_BEYOND);
        Self { mean, half_width: t * error }
    }

    /// The ratio of two measures of the same seeds, paired: the geometric mean, and its interval's half-width.
    pub fn of_ratios(pairs: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let logs = Self::of(pairs.into_iter().map(|(value, base)| (value / base).ln()));
        let mean = logs.mean.exp();
        Self { mean, half_width: mean * (logs.half_width.exp() - 1.0) }
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
        let ratio = Estimate::of_ratios([(2.0, 1.0), (20.0, 10.0), (0.2, 0.1)]);
        assert!((ratio.mean - 2.0).abs() < 1e-9 && ratio.half_width.abs() < 1e-9);
    }

    #[test]
    fn nineteen_intervals_of_twenty_contain_the_mean() {
        let mut rng = Rng::new(9);
        let runs = 4_000;
        let contain = |_: &u32| {
            // Sums of twelve uniform numbers are nearly normal, with mean 6.
            let mut value = || (0..12).map(|_| rng.unit()).sum::<f64>();
            let values: Vec<f64> = (0..5).map(|_| value()).collect();
            let seen = Estimate::of(values);
            (seen.mean - 6.0).abs() <= seen.half_width
        };
        let contained = (0..runs).filter(contain).count() as f64 / f64::from(runs);
        assert!((contained - 0.95).abs() < 0.012, "{contained}");
    }
}
