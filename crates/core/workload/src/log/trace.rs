//! A trace: the objects and requests of a log.

use skep_units::Rng;

use super::summary::LogSummary;

/// What a log says was asked of a site.
#[derive(Clone, Debug)]
pub struct LogTrace {
    pub(super) objects: Vec<LoggedObject>,
    pub(super) requests: Vec<LoggedRequest>,
    pub(super) resolution_ms: u32,
    pub(super) summary: LogSummary,
}

/// An object, which is a path with its query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedObject {
    /// Begins with a slash.
    pub path: Box<str>,
    /// Of the largest body with status 200; without any, of the largest part (206). 0: no body of it was logged.
    pub bytes: u64,
}

/// A GET or HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedRequest {
    /// When it began, since the first one: of a log in seconds, the second. Servers that do not log how long a request took
    /// log its end, mostly.
    pub at_ms: u64,
    /// Number of the client, from 0.
    pub client: u32,
    /// Number of the object.
    pub object: u32,
    /// Of the body that was sent.
    pub bytes: u64,
    pub status: u16,
    pub is_head: bool,
}

impl LogTrace {
    pub fn objects(&self) -> &[LoggedObject] {
        &self.objects
    }

    /// In the order of their times. There is one at least.
    pub fn requests(&self) -> &[LoggedRequest] {
        &self.requests
    }

    /// What was read, and what of it was left out.
    pub fn summary(&self) -> &LogSummary {
        &self.summary
    }

    /// From the first request to the last, in milliseconds.
    pub fn length_ms(&self) -> u64 {
        self.requests.last().map_or(0, |request| request.at_ms)
    }

    /// What the log's times have, in milliseconds: a second or one.
    pub fn resolution_ms(&self) -> u32 {
        self.resolution_ms
    }

    /// Times of the requests from number `first` on, in microseconds since the first request of the trace. Those that the log
    /// puts into one second are spread over it at random (Poisson's arrivals, given their number), in their order.
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
    /// Whether a body was sent that is the object's, as a whole or in part.
    pub fn has_body(&self) -> bool {
        !self.is_head && matches!(self.status, 200 | 206) && self.bytes > 0
    }
}
