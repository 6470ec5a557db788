//! The outcome of a run: response times, hit ratios, balance.

use hdrhistogram::Histogram;

use crate::byte_sources::BytesBySource;
use crate::elastic::ElasticOutcome;
use crate::limits::{RESPONSE_DIGITS, SIZE_CLASSES};
use crate::loss::LossOutcome;
use crate::traffic::CoordinatorTraffic;

/// The measured part of a run: without the warm-up, and without what follows a loss of nodes, which has a
/// separate outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOutcome {
    pub all: ResponseTimes,
    /// By decade of the response's size: class `n` has sizes from `10^n` bytes on.
    pub classes: Vec<ResponseTimes>,
    pub bytes: BytesBySource,
    /// Responses whose first segment was in the node's memory.
    pub hits: u64,
    /// Bytes that the busiest link sent for its rate, to clients and nodes, over the mean; between the first and the last
    /// measured arrival.
    pub busiest_over_mean: f64,
    /// The mean utilisation of the links in that time.
    pub link_use: f64,
    /// The maximum number of requests in progress, including the warm-up.
    pub in_progress_most: usize,
    /// Measured requests per second of virtual time.
    pub requests_per_s: f64,
    /// Sums over all requests, including the warm-up.
    pub totals: RunTotals,
    /// The same at the first measured arrival.
    pub warm_up_totals: RunTotals,
    /// What elasticity did, where there is any.
    pub elastic: Option<ElasticOutcome>,
    /// The coordinator's messages, if there is a cluster cache.
    pub coordinator: CoordinatorTraffic,
    /// The outcome of a loss of nodes, if there was one.
    pub loss: Option<LossOutcome>,
}

/// Sums over a whole run, which must be consistent with each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTotals {
    pub requests: u64,
    pub asked_bytes: u64,
    /// Sent by links to clients.
    pub sent_bytes: u64,
    /// Sent by links to other nodes.
    pub peer_bytes: u64,
    /// Read from disks or the origin.
    pub fetched_bytes: u64,
    pub fetches: u64,
    /// Requests that waited for a fetch of another request.
    pub joined: u64,
    /// Bytes moved by the links, computed from their busy times: `sent_bytes` and `peer_bytes`.
    pub link_bytes: u64,
}

/// Response times, from the request's arrival to the last byte.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponseTimes {
    sum_ns: f64,
    histogram: Histogram<u64>,
}

impl RunOutcome {
    /// An empty outcome.
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

    /// Records a response.
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
        // A resizable histogram has room for every value.
        let _ = self.histogram.record(response_ns);
    }

    /// The number of responses.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The mean, in seconds; NaN without responses.
    pub fn mean_s(&self) -> f64 {
        self.sum_ns / self.count() as f64 / 1e9
    }

    /// A quantile, in seconds; NaN without responses.
    pub fn quantile_s(&self, quantile: f64) -> f64 {
        match self.count() {
            0 => f64::NAN,
            _ => self.histogram.value_at_quantile(quantile) as f64 / 1e9,
        }
    }
}
