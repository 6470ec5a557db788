//! Determines the head and the body's ranges of a reply from an object and a request.

use std::borrow::Cow;
use std::ops::Range;

use skep_engine::Reply;
use skep_http::multipart::{self, Boundary};
use skep_http::range::{Parts, RangeVerdict};
use skep_http::{Known, Precondition, RequestHead, conditional, range};
use skep_httpcache::{CacheStatus, ForwardReason};
use skep_telemetry::CacheResult;

use crate::limits::RANGES_MAX;
use crate::model::field_lines::{is_type, without_lines};
use crate::model::object::{CACHE_STATUS_HIT, Object};
use crate::model::resource::Resource;
use crate::model::route::Route;

/// The outcome of a request's conditions and ranges.
pub(crate) enum ResponsePlan {
    /// 304.
    NotModified,
    /// 412.
    Failed,
    /// 416.
    Unsatisfiable,
    /// 200 with the whole object.
    Whole,
    /// 206 with one range.
    Part(Range<u64>),
    /// 206 with several ranges.
    Parts(Parts),
}

impl ResponsePlan {
    /// Whether bytes of the object are sent.
    pub(crate) fn needs_bytes(&self) -> bool {
        matches!(self, Self::Whole | Self::Part(_) | Self::Parts(_))
    }

    /// The status of a reply with an object of `status`.
    pub(crate) fn status(&self, status: u16) -> u16 {
        match self {
            Self::NotModified => 304,
            Self::Failed => 412,
            Self::Unsatisfiable => 416,
            Self::Whole => status,
            Self::Part(_) | Self::Parts(_) => 206,
        }
    }

    /// Offset of the first byte of the body in the object.
    pub(crate) fn first_byte(&self) -> u64 {
        match self {
            Self::Part(part) => part.start,
            Self::Parts(parts) => parts[0].start,
            _ => 0,
        }
    }
}

/// Whether a request has none of the fields that [`plan`] evaluates, as most have not.
pub(crate) fn is_simple(request: &RequestHead<'_, '_>) -> bool {
    [
        Known::Range,
        Known::IfNoneMatch,
        Known::IfModifiedSince,
        Known::IfMatch,
        Known::IfUnmodifiedSince,
    ]
    .iter()
    .all(|&field| request.fields.known(field).is_none())
}

/// Evaluates conditions (RFC 9110 section 13) and ranges (section 14).
pub(crate) fn plan(request: &RequestHead<'_, '_>, object: &Object, now_unix: u64) -> ResponsePlan {
    let current = object.validators();
    match conditional::evaluate(request, &current, now_unix) {
        Precondition::NotModified => return ResponsePlan::NotModified,
        Precondition::Failed => return ResponsePlan::Failed,
        Precondition::Proceed => {}
    }
    // A file has no `Date` to compare its time with: it may have been written twice within the second
    // of its time stamp. Only its tag distinguishes versions.
    let made_unix = object.made_unix_s().unwrap_or(0);
    let for_ranges = object.range_validators();
    match range::ranges(request, &for_ranges, made_unix, object.bytes(), RANGES_MAX) {
        RangeVerdict::Whole => ResponsePlan::Whole,
        RangeVerdict::Unsatisfiable => ResponsePlan::Unsatisfiable,
        RangeVerdict::Parts(parts) if parts.len() == 1 => ResponsePlan::Part(parts[0].clone()),
        RangeVerdict::Parts(parts) => ResponsePlan::Parts(parts),
    }
}

/// Fields of a reply that do not depend on its plan.
pub(crate) struct ReplyLines<'a> {
    /// Content-Type, for the parts of a body.
    pub(crate) content_type: Cow<'a, str>,
    /// Complete field lines.
    pub(crate) lines: Cow<'a, [u8]>,
    /// Complete field lines on how the cache served it.
    pub(crate) cache: Cow<'static, [u8]>,
    /// Complete field lines of 412 and 416, which replace both.
    pub(crate) refusal: Cow<'a, [u8]>,
}

impl<'a> ReplyLines<'a> {
    /// The lines of `object` itself, which belongs to `route`.
    pub(crate) fn of(object: &'a Object, route: &'a Route, cache: Cow<'static, [u8]>) -> Self {
        Self {
            content_type: Cow::Borrowed(&object.content_type),
            lines: Cow::Borrowed(&object.lines),
            cache,
            refusal: Cow::Borrowed(&route.lines),
        }
    }
}

/// Writes the head for a plan. `status` replaces 200 (error pages). Returns the boundary of a
/// multipart body.
pub(crate) fn write_head(
    reply: &mut Reply<'_>,
    object: &Object,
    plan: &ResponsePlan,
    status: u16,
    lines: &ReplyLines<'_>,
) -> Option<Boundary> {
    let mut boundary = None;
    match plan {
        ResponsePlan::NotModified => {
            reply.start(304);
            reply.lines(&lines.lines);
        }
        ResponsePlan::Failed => {
            reply.plain(412, &lines.refusal);
            return None;
        }
        ResponsePlan::Unsatisfiable => {
            let line = format!("Content-Range: bytes */{}\r\n", object.bytes());
            reply.plain(416, &[line.as_bytes(), &lines.refusal].concat());
            return None;
        }
        ResponsePlan::Whole => {
            reply.start(status);
            // RFC 9110 8.6.
            if status != 204 {
                reply.field_number("Content-Length", object.bytes());
            }
            reply.lines(&lines.lines);
            reply.lines(&object.whole_lines);
        }
        ResponsePlan::Part(part) => {
            reply.start(206);
            reply.field_number("Content-Length", part.end - part.start);
            let (first, last) = (part.start, part.end - 1);
            let line = format!("Content-Range: bytes {first}-{last}/{}\r\n", object.bytes());
            reply.lines(line.as_bytes());
            reply.lines(&lines.lines);
        }
        ResponsePlan::Parts(parts) => {
            boundary = Some(write_multipart_head(reply, (object, lines), parts))
        }
    }
    reply.lines(&lines.cache);
    end_head(reply, object);
    boundary
}

/// Ends a head with a `Date`, unless the lines of `object` have one.
pub(crate) fn end_head(reply: &mut Reply<'_>, object: &Object) {
    match object.made_unix_s() {
        Some(_) => reply.end_dated_head(),
        None => reply.end_head(),
    }
}

/// Field lines on how the cache served the reply, and its age.
pub(crate) fn cache_lines(
    resource: &Resource,
    result: CacheResult,
    now_ms: u64,
) -> Cow<'static, [u8]> {
    match resource.freshness() {
        None => Cow::Borrowed(cache_status(result)),
        Some(freshness) => {
            let age = format!("Age: {}\r\n", freshness.age_s(now_ms));
            Cow::Owned([age.as_bytes(), cache_status(result)].concat())
        }
    }
}

/// How a stored pool response was found for a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoredStatus<'k> {
    /// Why the request was forwarded; `None`: a hit.
    pub(crate) forwarded: Option<ForwardReason>,
    /// The server's status, if the client is sent another one.
    pub(crate) forward_status: Option<u16>,
    /// Whether another request was forwarded for it; `Some(false)`: it waited for one without getting
    /// a usable response.
    pub(crate) collapsed: Option<bool>,
    /// The key, if it is shown to clients.
    pub(crate) key: Option<&'k [u8]>,
    /// The reason as a token, if it is not evident.
    pub(crate) detail: Option<&'static str>,
}

impl StoredStatus<'_> {
    /// Field lines on how the cache served a reply with status `sent`, and its age.
    pub(crate) fn lines(
        &self,
        (resource, sent): (&Resource, u16),
        result: CacheResult,
        now_ms: u64,
    ) -> Vec<u8> {
        let Some(freshness) = resource.freshness() else { return Vec::new() };
        let (rules, resident_ms) = freshness.rules(now_ms);
        // For the client the cluster is one cache, unless a server was asked, too.
        let was_asked = self.forward_status.is_some() || self.detail.is_some();
        let is_peers = result == CacheResult::Peer && !was_asked;
        let forwarded = self.forwarded.filter(|_| !is_peers);
        let mut lines = format!("Age: {}\r\n", freshness.age_s(now_ms)).into_bytes();
        let is_new = self.forward_status.is_none() && self.collapsed != Some(true);
        // For a part, or a 304, the stored status differs from that of the reply.
        let stored_status = resource.variants.plain.status();
        let forward_status =
            self.forward_status.or((stored_status != sent).then_some(stored_status));
        let status = CacheStatus {
            forwarded,
            forward_status,
            ttl_s: Some(rules.ttl_s(resident_ms)),
            stored: is_new && self.detail.is_none(),
            collapsed: self.collapsed,
            key: self.key,
            detail: if is_peers { Some("peer") } else { self.detail },
        };
        lines.extend(status.line());
        lines
    }
}

/// The result of the cache, in the terms of RFC 9211.
fn cache_status(result: CacheResult) -> &'static [u8] {
    match result {
        CacheResult::Hit => CACHE_STATUS_HIT,
        CacheResult::Fill => b"Cache-Status: skep; fwd=uri-miss; stored\r\n",
        CacheResult::Miss => b"Cache-Status: skep; fwd=uri-miss; collapsed\r\n",
        CacheResult::Revalidated => b"Cache-Status: skep; fwd=stale; fwd-status=304\r\n",
        // For the client the cluster is one cache.
        CacheResult::Peer => b"Cache-Status: skep; hit; detail=peer\r\n",
        _ => b"Cache-Status: skep; fwd=bypass\r\n",
    }
}

fn write_multipart_head(
    reply: &mut Reply<'_>,
    (object, lines): (&Object, &ReplyLines<'_>),
    parts: &Parts,
) -> Boundary {
    // Differs from any line of the file with overwhelming probability, and between replies.
    let seed = skep_units::stable_hash(&lines.lines, reply.context().worker().now_ms());
    let boundary = Boundary::new(seed);
    reply.start(206);
    let bytes = multipart::body_bytes(&boundary, &lines.content_type, parts, object.bytes());
    reply.field_number("Content-Length", bytes);
    reply.field("Content-Type", &multipart_type(&boundary));
    // The heads of the parts have the type of the bytes; the reply has its own.
    reply.lines(&without_lines(&lines.lines, is_type));
    boundary
}

fn multipart_type(boundary: &Boundary) -> Vec<u8> {
    [b"multipart/byteranges; boundary=".as_slice(), boundary.as_bytes()].concat()
}
