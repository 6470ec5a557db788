//! The summary of a run or a file, by URL.

use std::collections::BTreeMap;

use crate::sample::{ProbePhase, ProbeSample};
use crate::statistics::{SampleTimes, median};

/// Measurements of several URLs, in order of first appearance.
#[derive(Clone, Debug, Default)]
pub struct ProbeSummary {
    /// One summary per URL.
    pub urls: Vec<UrlSummary>,
    /// Number of turns that were skipped.
    pub turns_skipped: u64,
    /// Whether phases and sizes are ignored, since a run may last indefinitely.
    is_of_totals: bool,
    at: BTreeMap<String, usize>,
}

/// The measurements of one URL. Times are those of complete responses with a status of success.
#[derive(Clone, Debug, Default)]
pub struct UrlSummary {
    /// The URL as given.
    pub url: String,
    /// Number of samples.
    pub samples: u64,
    /// Samples that failed, by kind.
    pub failures: BTreeMap<String, FailureCount>,
    /// Each phase, in the order of [`ProbePhase::ALL`].
    pub phases: [SampleTimes; ProbePhase::COUNT],
    /// All phases together.
    pub total: SampleTimes,
    sizes: Vec<u64>,
}

/// Samples that failed in the same way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureCount {
    /// Number of samples.
    pub samples: u64,
    /// Text of the latest failure.
    pub latest_text: String,
}

impl ProbeSummary {
    /// A summary without phases and sizes.
    pub(crate) fn of_totals() -> Self {
        Self { is_of_totals: true, ..Self::default() }
    }

    pub(crate) fn add(&mut self, sample: &ProbeSample) {
        let at = match self.at.get(&sample.url) {
            Some(at) => *at,
            None => {
                self.at.insert(sample.url.clone(), self.urls.len());
                self.urls.push(UrlSummary { url: sample.url.clone(), ..UrlSummary::default() });
                self.urls.len() - 1
            }
        };
        self.urls[at].add(sample, self.is_of_totals);
    }
}

impl UrlSummary {
    fn add(&mut self, sample: &ProbeSample, is_of_totals: bool) {
        self.samples += 1;
        if let Some(failure) = &sample.failure {
            let count = self.failures.entry(failure.kind.clone()).or_default();
            count.samples += 1;
            count.latest_text.clone_from(&failure.text);
            return;
        }
        self.total.add(sample.total_us);
        if is_of_totals {
            return;
        }
        for (times, us) in self.phases.iter_mut().zip(sample.phases_us) {
            if let Some(us) = us {
                times.add(us);
            }
        }
        self.sizes.push(sample.body_bytes);
    }

    /// Number of samples that failed.
    pub fn failed(&self) -> u64 {
        self.failures.values().map(|it| it.samples).sum()
    }

    /// Median size of the bodies; `None`: none was complete.
    pub fn size_bytes(&self) -> Option<u64> {
        median(self.sizes.iter().map(|size| *size as f64).collect()).map(|size| size as u64)
    }
}
