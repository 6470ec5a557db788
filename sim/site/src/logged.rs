//! What an access log says was asked of a site: a part of it as a workload.
//!
//! A body that was sent as a whole (200) has as many bytes as were logged; of an object whose largest body is longer, these are
//! its first ones. Of parts (206) the log does not say where they begin: those of an object follow each other, and begin again
//! at its end. Answers without a body (304, HEAD, errors) need no bytes of the object. Where nobody asks for more than ten
//! minutes, ten minutes pass: a line whose year is wrong costs no more.

use std::ops::Range;

use skep_units::SEGMENT_BYTES;
use skep_workload::{LogTrace, LoggedObject, LoggedRequest, Popularity};

use crate::limits::{LOG_GAP_NS_MAX, NS_PER_US, SITE_SEGMENTS_MAX};
use crate::part::ObjectPart;
use crate::timed_request::TimedRequest;
use crate::workload::{SiteObject, SiteWorkload};

/// More objects, or larger ones, than a run has memory for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the objects have {segments} segments of 4 MiB or less: expected at most {SITE_SEGMENTS_MAX}, so fewer requests"
)]
pub struct SiteTooLarge {
    pub segments: u64,
}

/// The objects of a window, numbered as they come.
struct Objects<'a> {
    logged: &'a [LoggedObject],
    /// By the number in the log: the number in the window, and where the next part begins.
    numbers: Vec<Option<(u32, u64)>>,
    all: Vec<SiteObject>,
    counts: Vec<f64>,
    segments: u64,
}

impl SiteWorkload {
    /// The requests of a trace that have these numbers, `speed` times as fast as logged; `seed` draws what the log does not
    /// say: when in a second each came.
    ///
    /// # Errors
    /// Its objects are too many, or too large.
    ///
    /// # Panics
    /// The window is empty, or the trace has no such requests.
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

    /// Requests of the log.
    pub fn logged_requests(&self) -> u64 {
        self.logged.len() as u64
    }

    /// Bytes that they ask for.
    pub fn logged_bytes(&self) -> u64 {
        self.logged.iter().map(|request| request.part.bytes()).sum()
    }

    /// From the first of them to the last, in seconds.
    pub fn logged_s(&self) -> f64 {
        self.logged.last().map_or(0.0, |request| request.at_ns as f64 / 1e9)
    }
}

impl<'a> Objects<'a> {
    fn of(logged: &'a [LoggedObject]) -> Self {
        let numbers = vec![None; logged.len()];
        Self { logged, numbers, all: Vec::new(), counts: Vec::new(), segments: 0 }
    }

    /// The object of a request, and which part of it was sent.
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
        // What does not fit behind the part before it begins at the beginning.
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
