//! Hits: everything that a reply needs is in memory.

use std::borrow::Cow;
use std::sync::{Arc, Weak};

use skep_engine::{Quick, Reply};
use skep_http::RequestHead;
use skep_http::path::Path;
use skep_segments::Segment;
use skep_serve::unix_ms;
use skep_telemetry::{CacheResult, Counter};
use skep_units::{Now, SEGMENT_BYTES};

use super::NodeHandler;
use crate::backend::dynamic::{is_for, is_sent_as_it_is, is_to_be_refreshed};
use crate::http::cacheable::meta_for_cache;
use crate::http::compress::Selected;
use crate::http::respond::{
    ReplyLines, ResponsePlan, StoredStatus, cache_lines, end_head, is_simple, plan, write_head,
};
use crate::limits::{COPY_BYTES_MAX, QUICK_BYTES_MAX};
use crate::model::object::Object;
use crate::model::pool_backend::PoolBackend;
use crate::model::resource::Resource;
use crate::model::route::{Backend, Route};
use crate::model::worker_index::{Entry, WorkerIndex};

/// Answers from memory, if everything that the reply needs is there.
pub(super) fn answer_from_memory(
    (resource, entry): (&Arc<Resource>, &Entry),
    request: &RequestHead<'_, '_>,
    reply: &mut Reply<'_>,
    now_ms: u64,
) -> Quick {
    let selected = Selected::of(resource, request);
    let Some((slot, object)) = selected.object() else { return Quick::Later };
    let hit = Hit { resource, object, segment: &entry.segments[slot], stored: None };
    hit.answer(request, reply, now_ms)
}

/// The parts of a reply that are in memory.
struct Hit<'a> {
    resource: &'a Arc<Resource>,
    object: &'a Object,
    segment: &'a Weak<Segment>,
    /// For a pool: the Cache-Status, which includes the remaining lifetime.
    stored: Option<StoredStatus<'a>>,
}

impl Hit<'_> {
    fn answer(&self, request: &RequestHead<'_, '_>, reply: &mut Reply<'_>, now_ms: u64) -> Quick {
        let Self { resource, object, .. } = self;
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
            let is_whole = |found: &Arc<Segment>| {
                found.is_complete() && u64::from(found.len()) == object.bytes()
            };
            segment = self.segment.upgrade().filter(is_whole);
            if segment.is_none() {
                return Quick::Later;
            }
        }
        resource.mark_used();
        reply.context().counters().inc(Counter::CacheHit);
        reply.summary().cache = CacheResult::Hit;
        match plan {
            ResponsePlan::Whole => self.write_whole_head(status, reply, now_ms),
            ref plan => {
                let cache = self.cache_lines(plan.status(status), now_ms);
                let lines = ReplyLines::of(object, &resource.route, cache);
                let _ = write_head(reply, object, plan, 200, &lines);
            }
        }
        if let Some(segment) = segment {
            skep_cache::CacheEntry::touch(&*segment);
            write_body(reply, &segment, range.start as u32, range.end as u32);
        }
        Quick::Done
    }

    fn write_whole_head(&self, status: u16, reply: &mut Reply<'_>, now_ms: u64) {
        if self.stored.is_some() {
            reply.prebuilt(status, self.object.head_before_cache_status());
            reply.lines(&self.cache_lines(status, now_ms));
        } else {
            reply.prebuilt(status, &self.object.hit_head);
            if let Some(freshness) = self.resource.freshness() {
                reply.field_number("Age", freshness.age_s(now_ms));
            }
        }
        end_head(reply, self.object);
    }

    fn cache_lines(&self, sent: u16, now_ms: u64) -> Cow<'static, [u8]> {
        match &self.stored {
            Some(how) => Cow::Owned(how.lines((self.resource, sent), CacheResult::Hit, now_ms)),
            None => cache_lines(self.resource, CacheResult::Hit, now_ms),
        }
    }
}

impl NodeHandler {
    /// Answers with a stored pool response that this worker has sent before.
    pub(super) fn answer_stored(
        &self,
        index: &WorkerIndex,
        (route, pool): (&Route, &PoolBackend),
        path: &Path<'_>,
        request: &RequestHead<'_, '_>,
        reply: &mut Reply<'_>,
    ) -> Quick {
        let Some(cache) = pool.cache.as_ref().filter(|_| pool.allows(request.method)) else {
            return Quick::Later;
        };
        let Ok(meta) = meta_for_cache(request, cache) else { return Quick::Later };
        let claims = self.claims(reply.client().ip(), pool);
        let target = cache.target(path.target(), request.query);
        let Some(key) = cache.primary_key(request, &target, claims) else { return Quick::Later };
        let fits = |resource: &Arc<Resource>| is_for(resource, request);
        let found = index.stored(route.index, &key, fits, |resource, segments| {
            let now_ms = self.context.worker().now_ms();
            let selected = Selected::of(resource, request);
            let Some((slot, object)) = selected.object() else { return Quick::Later };
            let is_sent = resource.is_current(now_ms, 0)
                && object.status() != 204
                && is_sent_as_it_is(resource, cache, &meta, now_ms)
                && !is_to_be_refreshed(resource, cache, now_ms);
            if !is_sent {
                return Quick::Later;
            }
            let segment = &segments[slot];
            let how = StoredStatus { key: cache.shown_key(&key), ..StoredStatus::default() };
            let hit = Hit { resource, object, segment, stored: Some(how) };
            let answered = hit.answer(request, reply, now_ms);
            if matches!(answered, Quick::Done) {
                let status = reply.summary().status;
                self.tell_served(resource, request, status, now_ms);
                if cache.ahead.is_some() {
                    resource.count_hit();
                }
            }
            answered
        });
        if matches!(found, Some(Quick::Done)) {
            let from = (claims, reply.client().ip());
            pool.count_session(request, from, Now(self.context.worker().now_ms()));
        }
        found.unwrap_or(Quick::Later)
    }
}

/// Writes bytes `start..end`, which are in the segment.
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

/// The key of a request in the worker index, if it can be borrowed. `path` is the key of its path,
/// exactly as the client sent it.
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
        // Pools have other keys; fixed replies are not in the index.
        (Backend::Pool(_) | Backend::Reply(_), _) => None,
        _ => Some(path),
    }
}
