//! Hits: everything that a reply needs is in memory.

use std::sync::Arc;

use skep_engine::{Quick, Reply};
use skep_http::RequestHead;
use skep_segments::Segment;
use skep_serve::unix_ms;
use skep_telemetry::{CacheResult, Counter};
use skep_units::SEGMENT_BYTES;

use crate::http::compress::Selected;
use crate::http::respond::{
    ReplyLines, ResponsePlan, cache_lines, end_head, is_simple, plan, write_head,
};
use crate::limits::{COPY_BYTES_MAX, QUICK_BYTES_MAX};
use crate::model::resource::Resource;
use crate::model::route::{Backend, Route};
use crate::model::worker_index::Entry;

/// Answers from memory, if everything that the reply needs is there.
pub(super) fn answer_from_memory(
    (resource, entry): (&Arc<Resource>, &Entry),
    request: &RequestHead<'_, '_>,
    reply: &mut Reply<'_>,
    now_ms: u64,
) -> Quick {
    let selected = Selected::of(resource, request);
    let Some((slot, object)) = selected.object() else { return Quick::Later };
    let status = object.status();
    let plan = match is_simple(request) || status != 200 {
        true => ResponsePlan::Whole,
        false => plan(request, object, unix_ms() / 1000),
    };
    let range = match &plan {
        ResponsePlan::Whole => 0..object.bytes(),
        ResponsePlan::Part(part) => part.clone(),
        ResponsePlan::Parts(_) => return Quick::Later,
        _ => 0..0,
    };
    let mut segment = None;
    if reply.body_wanted() && !range.is_empty() {
        if range.end - range.start > QUICK_BYTES_MAX || object.bytes() > SEGMENT_BYTES {
            return Quick::Later;
        }
        let is_whole =
            |found: &Arc<Segment>| found.is_complete() && u64::from(found.len()) == object.bytes();
        segment = entry.segments[slot].upgrade().filter(is_whole);
        if segment.is_none() {
            return Quick::Later;
        }
    }
    resource.mark_used();
    reply.context().counters().inc(Counter::CacheHit);
    reply.summary().cache = CacheResult::Hit;
    match plan {
        ResponsePlan::Whole => {
            reply.prebuilt(status, &object.hit_head);
            if let Some(freshness) = resource.freshness() {
                reply.field_number("Age", freshness.age_s(now_ms));
            }
            end_head(reply, object);
        }
        ref plan => {
            let lines = cache_lines(resource, CacheResult::Hit, now_ms);
            let _ = write_head(reply, object, plan, 200, &ReplyLines::of(object, lines));
        }
    }
    if let Some(segment) = segment {
        skep_cache::CacheEntry::touch(&*segment);
        write_body(reply, &segment, range.start as u32, range.end as u32);
    }
    Quick::Done
}

/// Writes bytes `start..end`, which the segment already has.
fn write_body(reply: &mut Reply<'_>, segment: &Arc<Segment>, start: u32, end: u32) {
    if let Some(bytes) = segment.heap_bytes().filter(|bytes| bytes.len() <= COPY_BYTES_MAX) {
        return reply.body_copy(&bytes[start as usize..end as usize]);
    }
    let mut at = start;
    while let Some(slice) = segment.slice(at, end) {
        at += slice.len();
        reply.body_shared(slice);
    }
    assert_eq!(at, end, "a reply has the bytes that its head says");
}

/// The key of a request in the worker index, if it can be borrowed. `path` is the key of its
/// path, as the client sent it.
pub(super) fn borrowed_key<'a>(
    route: &Route,
    request: &RequestHead<'_, 'a>,
    path: &'a [u8],
) -> Option<&'a [u8]> {
    match (&route.backend, request.query) {
        (Backend::Origin(_), Some(_)) => {
            let target = request.target.as_bytes();
            target.starts_with(b"/").then_some(target)
        }
        // Nothing of it is in memory.
        (Backend::Pool(_) | Backend::Reply(_), _) => None,
        _ => Some(path),
    }
}
