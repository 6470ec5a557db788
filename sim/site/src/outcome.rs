//! What came of a run: response times, hit ratios, balance.

use hdrhistogram::Histogram;

use crate::byte_sources::BytesBySource;
use crate::elastic::ElasticOutcome;
use crate::limits::{RESPONSE_DIGITS, SIZE_CLASSES};
use crate::loss::LossOutcome;
use crate::traffic::CoordinatorTraffic;

/// The measured part of a run: what belongs to the warm-up is not in it, nor what comes after a loss of nodes, which has
/// an outcome of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOutcome {
    pub all: ResponseTimes,
    /// By decade of the response's bytes: class `n` has sizes from `10^n`.
    pub classes: Vec<ResponseTimes>,
    pub bytes: BytesBySource,
    /// Responses whose first segment was in the node's memory.
    pub hits: u64,
    /// Bytes that the busiest link sent for its rate, to clients and nodes, over the mean; between the first and the last
    /// measured arrival.
    pub busiest_over_mean: f64,
    /// The mean share of the links' rates that was used then.
    pub link_use: f64,
    /// The most requests in progress at a time, warm-up included.
    pub in_progress_most: usize,
    /// Measured requests per second of virtual time.
    pub requests_per_s: f64,
    /// Of all requests, warm-up included.
    pub totals: RunTotals,
    /// The same at the first measured arrival.
    pub warm_up_totals: RunTotals,
    /// What elasticity did, where there is any.
    pub elastic: Option<ElasticOutcome>,
    /// What the coordinator was told and asked, where there is a cluster cache.
    pub coordinator: CoordinatorTraffic,
    /// What came of a loss of nodes, where there was any.
    pub loss: Option<LossOutcome>,
}

/// Sums over a whole run, which must agree with each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTotals {
    pub requests: u64,
    pub asked_bytes: u64,
    /// By links, to clients.
    pub sent_bytes: u64,
    /// By links, to other nodes.
    pub peer_bytes: u64,
    /// From disks or the origin.
    pub fetched_bytes: u64,
    pub fetches: u64,
    /// Requests that waited for a fetch of another.
    pub joined: u64,
    /// What the links have moved, by the times that they were busy: `sent_bytes` and `peer_bytes`.
    pub link_bytes: u64,
}

/// Response times, from the request's arrival to the last byte.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponseTimes {
    sum_ns: f64,
    histogram: Histogram<u64>,
}

impl RunOutcome {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            all: ResponseTimes::new(),
            classes: (0..SIZE_CLASSES).map(|_| ResponseTimes::new()).collect(),
            bytes: BytesBySource::default(),
            hits: 0,
            busiest_over_mean: f64::NAN,
            link_use: f64::NAN,
            in_progress_most: 0,
            requests_per_s: f64::NAN,
            totals: RunTotals::default(),
            warm_up_totals: RunTotals::default(),
            elastic: None,
            coordinator: CoordinatorTraffic::default(),
            loss: None,
        }
    }

    /// Counts a response.
    pub(crate) fn record(&mut self, object_bytes: u64, response_ns: u64, bytes: BytesBySource) {
        self.all.record(response_ns);
        self.classes[size_class(object_bytes)].record(response_ns);
        self.bytes.add(bytes);
    }
}

/// The class of a size.
fn size_class(bytes: u64) -> usize {
    (bytes.max(1).ilog10() as usize).min(SIZE_CLASSES - 1)
}

impl ResponseTimes {
    fn new() -> Self {
        #[expect(clippy::expect_used, reason = "a constant that it accepts")]
        let histogram = Histogram::new(RESPONSE_DIGITS).expect("a valid number of digits");
        Self { sum_ns: 0.0, histogram }
    }

    fn record(&mut self, response_ns: u64) {
        self.sum_ns += response_ns as f64;
        // One that grows has room for every value.
        let _ = self.histogram.record(response_ns);
    }

    /// Responses.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The mean, in seconds; no number without responses.
    pub fn mean_s(&self) -> f64 {
        self.sum_ns / self.count() as f64 / 1e9
    }

    /// A quantile, in seconds; no number without responses.
    pub fn quantile_s(&self, quantile: f64) -> f64 {
        match self.count() {
            0 => f64::NAN,
            _ => self.histogram.value_at_quantile(quantile) as f64 / 1e9,
        }
    }
}
