//! What a run, or a file, says of each URL.

use std::collections::BTreeMap;

use crate::sample::{ProbePhase, ProbeSample};
use crate::statistics::{SampleTimes, median};

/// What was measured of several URLs, in the order in which they first appeared.
#[derive(Clone, Debug, Default)]
pub struct ProbeSummary {
    /// By URL.
    pub urls: Vec<UrlSummary>,
    /// Turns that did not take place.
    pub turns_skipped: u64,
    at: BTreeMap<String, usize>,
}

/// What was measured of one URL. Times are those of whole responses with a status of success.
#[derive(Clone, Debug, Default)]
pub struct UrlSummary {
    /// As it was given.
    pub url: String,
    /// All samples.
    pub samples: u64,
    /// Samples that failed, by word.
    pub failures: BTreeMap<String, u64>,
    /// Each phase, by [`ProbePhase::ALL`].
    pub phases: [SampleTimes; ProbePhase::COUNT],
    /// All phases together.
    pub total: SampleTimes,
    sizes: Vec<u64>,
}

impl ProbeSummary {
    pub(crate) fn add(&mut self, sample: &ProbeSample) {
        let at = match self.at.get(&sample.url) {
            Some(at) => *at,
            None => {
                self.at.insert(sample.url.clone(), self.urls.len());
                self.urls.push(UrlSummary { url: sample.url.clone(), ..UrlSummary::default() });
                self.urls.len() - 1
            }
        };
        self.urls[at].add(sample);
    }
}

impl UrlSummary {
    fn add(&mut self, sample: &ProbeSample) {
        self.samples += 1;
        if let Some((word, _)) = &sample.failure {
            *self.failures.entry(word.clone()).or_default() += 1;
            return;
        }
        for (times, us) in self.phases.iter_mut().zip(sample.phases_us) {
            if let Some(us) = us {
                times.add(us);
            }
        }
        self.total.add(sample.total_us);
        self.sizes.push(sample.body_bytes);
    }

    /// Samples that failed.
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Median size of the bodies; `None`: there was no whole one.
    pub fn size_bytes(&self) -> Option<u64> {
        median(self.sizes.iter().map(|size| *size as f64).collect()).map(|size| size as u64)
    }
}
