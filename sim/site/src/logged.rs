//! A part of an access log as a workload.
//!
//! A body that was sent completely (200) has the logged number of bytes; if a larger body of the same object
//! was logged, they are its first bytes. For parts (206) the log does not contain their offsets: the parts of
//! an object follow each other, and begin again at its end. Responses without a body (304, HEAD, errors) need
//! no bytes of the object. A gap of more than ten minutes without requests counts as ten minutes: a line with
//! a wrong year costs no more.

use std::ops::Range;

use skep_units::SEGMENT_BYTES;
use skep_workload::{LogTrace, LoggedObject, LoggedRequest, Popularity};

use crate::limits::{LOG_GAP_NS_MAX, NS_PER_US, SITE_SEGMENTS_MAX};
use crate::part::ObjectPart;
use crate::timed_request::TimedRequest;
use crate::workload::{SiteObject, SiteWorkload};

/// The objects are too many or too large for a run's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the objects have {segments} segments of 4 MiB or less: expected at most {SITE_SEGMENTS_MAX}, so fewer requests"
)]
pub struct SiteTooLarge {
    pub segments: u64,
}

/// The objects of a window, numbered in the order of their first requests.
struct Objects<'a> {
    logged: &'a [LoggedObject],
    /// By the number in the log: the number in the window, and where the next part begins.
    numbers: Vec<Option<(u32, u64)>>,
    all: Vec<SiteObject>,
    counts: Vec<f64>,
    segments: u64,
}

impl SiteWorkload {
    /// The requests of a trace with the numbers in `window`, `speed` times as fast as logged; `seed`
    /// determines what the log does not contain: when within a second each request arrived.
    ///
    /// # Errors
    /// The objects are too many or too large.
    ///
    /// # Panics
    /// The window is empty, or the trace does not contain it.
    pub fn of_log(
        trace: &LogTrace,
        window: Range<usize>,
        speed: f64,
        seed: u64,
    ) -> Result<Self, SiteTooLarge> {
        assert!(!window.is_empty(), "there is something to ask for");
        let mut objects = Objects::of(trace.objects());
        let requests = &trace.requests()[window.clone()];
        let mut logged = Vec::with_capacity(requests.len());
        let (mut at_ns, mut last_us) = (0, None);
        for (request, at_us) in requests.iter().zip(trace.times_us(window.start, seed)) {
            let gap_us = at_us - last_us.replace(at_us).unwrap_or(at_us);
            let gap_ns = (gap_us as f64 / speed * NS_PER_US as f64) as u64;
            at_ns += gap_ns.min(LOG_GAP_NS_MAX);
            let (object, part) = objects.part(request)?;
            logged.push(TimedRequest { at_ns, client: request.client, object, part });
        }
        Ok(Self {
            popularity: Popularity::weighted(objects.counts),
            segments: objects.segments as u32,
            objects: objects.all,
            logged,
        })
    }

    /// The number of requests of the log.
    pub fn logged_requests(&self) -> u64 {
        self.logged.len() as u64
    }

    /// The number of bytes that they request.
    pub fn logged_bytes(&self) -> u64 {
        self.logged.iter().map(|request| request.part.bytes()).sum()
    }

    /// Time from the first request to the last, in seconds.
    pub fn logged_s(&self) -> f64 {
        self.logged.last().map_or(0.0, |request| request.at_ns as f64 / 1e9)
    }
}

impl<'a> Objects<'a> {
    fn of(logged: &'a [LoggedObject]) -> Self {
        let numbers = vec![None; logged.len()];
        Self { logged, numbers, all: Vec::new(), counts: Vec::new(), segments: 0 }
    }

    /// Returns the object of a request, and the part of it that was sent.
    fn part(&mut self, request: &LoggedRequest) -> Result<(u32, ObjectPart), SiteTooLarge> {
        let at = request.object as usize;
        let (number, begin) = match self.numbers[at] {
            Some(known) => known,
            None => (self.add(at)?, 0),
        };
        self.counts[number as usize] += 1.0;
        let object_bytes = self.all[number as usize].bytes;
        let bytes = if request.has_body() { request.bytes.min(object_bytes) } else { 0 };
        let is_part = request.status == 206;
        // A part that does not fit after the preceding one begins at offset 0.
        let from = if is_part && begin + bytes <= object_bytes { begin } else { 0 };
        let part = ObjectPart { from, end: from + bytes };
        self.numbers[at] = Some((number, if is_part { part.end } else { begin }));
        Ok((number, part))
    }

    fn add(&mut self, at: usize) -> Result<u32, SiteTooLarge> {
        let LoggedObject { path, bytes } = &self.logged[at];
        let segment_first = self.segments as u32;
        self.segments += bytes.div_ceil(SEGMENT_BYTES);
        if self.segments > SITE_SEGMENTS_MAX {
            return Err(SiteTooLarge { segments: self.segments });
        }
        self.all.push(SiteObject::at_path(path.as_bytes().into(), *bytes, segment_first));
        self.counts.push(0.0);
        Ok(self.all.len() as u32 - 1)
    }
}
