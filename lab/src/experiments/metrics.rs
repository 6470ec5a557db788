//! Metrics of a node: counters, and quantiles of histograms.

/// The metrics of a node, as text.
pub(super) struct NodeMetrics(String);

/// Quantiles of the times of a step, in microseconds, from the buckets of a histogram: within a bucket,
/// values are assumed to be equally distributed.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct Quantiles {
    pub(super) count: u64,
    pub(super) p10_us: f64,
    pub(super) p50_us: f64,
    pub(super) p90_us: f64,
    pub(super) p99_us: f64,
    pub(super) mean_us: f64,
}

/// Cumulative counts by upper bound in microseconds, and the sum of all values.
#[derive(Clone, Debug, Default)]
pub(super) struct Buckets {
    bounds: Vec<(f64, u64)>,
    sum_us: f64,
}

impl NodeMetrics {
    pub(super) fn new(text: String) -> Self {
        Self(text)
    }

    /// The value of a sample, given as it is in the text with its labels; 0 if there is none.
    pub(super) fn value(&self, sample: &str) -> f64 {
        let of_line = |line: &str| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok();
        self.0.lines().find_map(of_line).unwrap_or(0.0)
    }

    /// The samples of a metric, by their only label.
    pub(super) fn by_label(&self, name: &str, label: &str) -> Vec<(String, f64)> {
        let begin = format!("{name}{{{label}=\"");
        let of_line = |line: &str| {
            let (value, count) = line.strip_prefix(begin.as_str())?.split_once("\"} ")?;
            Some((value.to_owned(), count.parse().ok()?))
        };
        self.0.lines().filter_map(of_line).collect()
    }

    /// A histogram; `labels` are those before `le`.
    pub(super) fn histogram(&self, name: &str, labels: &str) -> Buckets {
        let comma = if labels.is_empty() { "" } else { "," };
        let begin = format!("{name}_bucket{{{labels}{comma}le=\"");
        let bucket = |line: &str| {
            let (bound, count) = line.strip_prefix(begin.as_str())?.split_once("\"} ")?;
            let bound: f64 = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
            Some((bound * 1e6, count.parse().ok()?))
        };
        let braced = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let sum_us = self.value(&format!("{name}_sum{braced}")) * 1e6;
        Buckets { bounds: self.0.lines().filter_map(bucket).collect(), sum_us }
    }
}

impl Buckets {
    /// The counts since an earlier reading.
    pub(super) fn since(mut self, before: &Self) -> Self {
        for ((_, now), (_, then)) in self.bounds.iter_mut().zip(&before.bounds) {
            *now = now.saturating_sub(*then);
        }
        self.sum_us -= before.sum_us;
        self
    }

    /// The sum of both histograms.
    pub(super) fn with(mut self, other: &Self) -> Self {
        if self.bounds.is_empty() {
            return other.clone();
        }
        for ((_, own), (_, theirs)) in self.bounds.iter_mut().zip(&other.bounds) {
            *own += theirs;
        }
        self.sum_us += other.sum_us;
        self
    }

    pub(super) fn quantiles(&self) -> Quantiles {
        let count = self.bounds.last().map_or(0, |(_, count)| *count);
        Quantiles {
            count,
            p10_us: self.at(0.1),
            p50_us: self.at(0.5),
            p90_us: self.at(0.9),
            p99_us: self.at(0.99),
            mean_us: self.sum_us / count.max(1) as f64,
        }
    }

    /// The value below which this share of all values is.
    fn at(&self, share: f64) -> f64 {
        let rank = self.bounds.last().map_or(0.0, |(_, count)| *count as f64 * share);
        let (mut low, mut below) = (0.0, 0.0);
        for &(bound, count) in &self.bounds {
            let count = count as f64;
            if count >= rank && count > below {
                let bound = if bound.is_finite() { bound } else { low };
                return low + (bound - low) * (rank - below) / (count - below);
            }
            (low, below) = (bound, count);
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_within_their_buckets() {
        let text = "skep_x_bucket{step=\"a\",le=\"0.00001\"} 0\nskep_x_bucket{step=\"a\",le=\"0.00002\"} 50\n\
                    skep_x_bucket{step=\"a\",le=\"0.00004\"} 100\nskep_x_bucket{step=\"a\",le=\"+Inf\"} 100\n\
                    skep_x_sum{step=\"a\"} 0.0021\nskep_x_bucket{le=\"1\"} 7\nskep_y{outcome=\"moved\"} 3\n";
        let metrics = NodeMetrics::new(text.to_owned());
        assert_eq!(metrics.value("skep_y{outcome=\"moved\"}"), 3.0);
        assert_eq!(metrics.by_label("skep_y", "outcome"), [("moved".to_owned(), 3.0)]);
        let found = metrics.histogram("skep_x", "step=\"a\"");
        let quantiles = found.quantiles();
        assert_eq!((quantiles.count, quantiles.mean_us.round()), (100, 21.0));
        assert_eq!([quantiles.p10_us, quantiles.p50_us, quantiles.p90_us], [12.0, 20.0, 36.0]);
        assert_eq!(found.clone().since(&found).quantiles().count, 0);
        assert_eq!(found.clone().with(&found).quantiles().count, 200);
    }
}
