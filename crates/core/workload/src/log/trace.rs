//! A trace: the objects and requests of a log.

use skep_units::Rng;

use super::summary::LogSummary;

/// The requests of a site according to a log.
#[derive(Clone, Debug)]
pub struct LogTrace {
    pub(super) objects: Vec<LoggedObject>,
    pub(super) requests: Vec<LoggedRequest>,
    pub(super) resolution_ms: u32,
    pub(super) summary: LogSummary,
}

/// An object, identified by path and query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedObject {
    /// Begins with a slash.
    pub path: Box<str>,
    /// Size of the largest body with status 200; without any, of the largest part (206). 0 if no
    /// body of it was logged.
    pub bytes: u64,
}

/// A GET or HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedRequest {
    /// When it began, relative to the first request; for logs with a resolution of a second, the
    /// second. Servers that do not log the duration of a request mostly log its end.
    pub at_ms: u64,
    /// Number of the client, counted from 0.
    pub client: u32,
    /// Number of the object.
    pub object: u32,
    /// Bytes of the body that was sent.
    pub bytes: u64,
    pub status: u16,
    pub is_head: bool,
}

impl LogTrace {
    pub fn objects(&self) -> &[LoggedObject] {
        &self.objects
    }

    /// Ordered by time. There is at least one.
    pub fn requests(&self) -> &[LoggedRequest] {
        &self.requests
    }

    /// Counts of what was read and what was skipped.
    pub fn summary(&self) -> &LogSummary {
        &self.summary
    }

    /// Time from the first to the last request, in milliseconds.
    pub fn length_ms(&self) -> u64 {
        self.requests.last().map_or(0, |request| request.at_ms)
    }

    /// Resolution of the log's times, in milliseconds: 1000 or 1.
    pub fn resolution_ms(&self) -> u32 {
        self.resolution_ms
    }

    /// Times of the requests from number `first` on, in microseconds since the first request of the
    /// trace. Requests that the log assigns to the same second are spread over it at random
    /// (Poisson arrivals, given their number), in order.
    pub fn times_us(&self, first: usize, seed: u64) -> impl Iterator<Item = u64> + '_ {
        let mut rng = Rng::new(seed ^ 0x71_3e5);
        let resolution_us = f64::from(self.resolution_ms) * 1e3;
        let mut times = Vec::new();
        self.requests[first..].chunk_by(|a, b| a.at_ms == b.at_ms).flat_map(move |together| {
            times.clear();
            times.extend(together.iter().map(|_| (rng.unit() * resolution_us) as u64));
            times.sort_unstable();
            let begin_us = together[0].at_ms * 1_000;
            times.iter().map(|it| begin_us + it).collect::<Vec<_>>()
        })
    }
}

impl LoggedRequest {
    /// Whether a body was sent that is the object, entirely or in part.
    pub fn has_body(&self) -> bool {
        !self.is_head && matches!(self.status, 200 | 206) && self.bytes > 0
    }
}
