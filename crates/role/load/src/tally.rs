//! The counts of a load, over its clients and its processes.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use skep_probe::clean;

use crate::failure::RequestFailure;
use crate::limits::{EXAMPLES_MAX, LATE_US};

/// The result of a load, or of a part of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LoadTally {
    /// Correct responses to requests of the measured window.
    pub succeeded: u64,
    /// Failures, by kind.
    pub failures: BTreeMap<String, u64>,
    /// Descriptions of the first failures.
    pub examples: Vec<String>,
    /// Bytes of bodies of correct responses.
    pub bytes: u64,
    /// Redirects that were followed for them.
    pub redirects: u64,
    /// Correct responses that set a cookie, that is, began a session.
    pub cookies_set: u64,
    /// Connections opened over the whole run, and kept ones that were found closed and replaced.
    pub connections: u64,
    pub reopened: u64,
    /// Planned requests that began more than a millisecond late.
    pub late: u64,
    /// Length of the window, in milliseconds.
    pub measured_ms: u64,
    /// Time from the beginning of a request, planned or not, to the end of the body.
    pub total_us: LatencyTimes,
    /// The same up to the response's head.
    pub first_byte_us: LatencyTimes,
    /// Delay with which planned requests began.
    pub late_us: LatencyTimes,
    /// Seconds of the whole run, including the warm-up, by the end of the responses.
    pub seconds: Vec<SecondTally>,
    /// Whether it was stopped early.
    pub is_stopped: bool,
}

/// One second of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecondTally {
    pub succeeded: u64,
    pub failed: u64,
    pub bytes: u64,
}

/// Latencies in microseconds; passed between processes as values with their counts.
#[derive(Clone, Debug)]
pub struct LatencyTimes(pub(crate) Histogram<u64>);

/// A correct response.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) bytes: u64,
    pub(crate) first_byte_us: u64,
    pub(crate) total_us: u64,
    pub(crate) redirects: u32,
    pub(crate) sets_cookie: bool,
}

impl LoadTally {
    /// Number of all requests that count.
    pub fn requests(&self) -> u64 {
        self.succeeded + self.failed()
    }

    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Failures whose body differs from the expected one.
    pub fn wrong_bodies(&self) -> u64 {
        self.failures.get("wrong-body").copied().unwrap_or(0)
    }

    pub(crate) fn answered(&mut self, answer: Answer) {
        self.succeeded += 1;
        self.bytes += answer.bytes;
        self.redirects += u64::from(answer.redirects);
        self.cookies_set += u64::from(answer.sets_cookie);
        self.total_us.record(answer.total_us);
        self.first_byte_us.record(answer.first_byte_us);
    }

    pub(crate) fn failed_by(&mut self, path: &str, failure: &RequestFailure) {
        *self.failures.entry(failure.kind().to_owned()).or_default() += 1;
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(clean(&format!("{path}: {failure}")));
        }
    }

    pub(crate) fn began_late_by(&mut self, us: u64) {
        self.late += u64::from(us > LATE_US);
        self.late_us.record(us);
    }

    /// The row of a second.
    pub(crate) fn second(&mut self, second: usize) -> &mut SecondTally {
        if self.seconds.len() <= second {
            self.seconds.resize(second + 1, SecondTally::default());
        }
        &mut self.seconds[second]
    }

    /// Adds the counts of another process for the same time.
    pub fn add(&mut self, other: Self) {
        self.succeeded += other.succeeded;
        self.bytes += other.bytes;
        self.redirects += other.redirects;
        self.cookies_set += other.cookies_set;
        self.connections += other.connections;
        self.reopened += other.reopened;
        self.late += other.late;
        self.measured_ms = self.measured_ms.max(other.measured_ms);
        self.is_stopped |= other.is_stopped;
        for (kind, count) in other.failures {
            *self.failures.entry(kind).or_default() += count;
        }
        let room = EXAMPLES_MAX.saturating_sub(self.examples.len());
        self.examples.extend(other.examples.into_iter().take(room));
        self.total_us.add(&other.total_us);
        self.first_byte_us.add(&other.first_byte_us);
        self.late_us.add(&other.late_us);
        for (at, second) in other.seconds.into_iter().enumerate() {
            let sum = self.second(at);
            sum.succeeded += second.succeeded;
            sum.failed += second.failed;
            sum.bytes += second.bytes;
        }
    }
}

impl LatencyTimes {
    /// Three significant digits; the range grows as needed, up to an hour.
    fn record(&mut self, us: u64) {
        // A histogram that grows has room for every value.
        let _ = self.0.record(us);
    }

    fn add(&mut self, other: &Self) {
        // Both have the same precision, and this one grows.
        let _ = self.0.add(&other.0);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    pub fn mean_us(&self) -> f64 {
        self.0.mean()
    }

    /// A quantile, in microseconds; 0 without values.
    pub fn quantile_us(&self, quantile: f64) -> u64 {
        self.0.value_at_quantile(quantile)
    }
}

impl Default for LatencyTimes {
    fn default() -> Self {
        #[expect(clippy::expect_used, reason = "3 is a number of digits that it takes")]
        let times = Histogram::new(3).expect("three significant digits");
        Self(times)
    }
}

impl Serialize for LatencyTimes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let values = self.0.iter_recorded();
        serializer.collect_seq(values.map(|it| (it.value_iterated_to(), it.count_at_value())))
    }
}

impl<'de> Deserialize<'de> for LatencyTimes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut times = Self::default();
        for (value, count) in Vec::<(u64, u64)>::deserialize(deserializer)? {
            times.0.record_n(value, count).map_err(serde::de::Error::custom)?;
        }
        Ok(times)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn tally(times: &[u64]) -> LoadTally {
        let mut tally = LoadTally::default();
        for &total_us in times {
            tally.answered(Answer { bytes: 10, total_us, ..Answer::default() });
            tally.second(total_us as usize % 3).succeeded += 1;
        }
        tally
    }

    #[test]
    fn processes_together_have_counted_what_one_would_have() {
        let (one, other) = ([5, 70, 1_000_000], [7, 123_456, 90_000_000]);
        let mut sum = tally(&one);
        let text = serde_json::to_string(&tally(&other)).unwrap();
        sum.add(serde_json::from_str(&text).unwrap());
        let all = tally(&[one, other].concat());
        assert_eq!((sum.succeeded, sum.bytes, &sum.seconds), (6, 60, &all.seconds));
        for quantile in [0.0, 0.5, 0.9, 1.0] {
            assert_eq!(sum.total_us.quantile_us(quantile), all.total_us.quantile_us(quantile));
        }
    }
}
