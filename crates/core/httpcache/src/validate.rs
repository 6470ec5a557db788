//! Validation (RFC 9111 4.3): the conditions that are sent, and the effect of the response on
//! stored responses.

use skep_http::encode::write_field;
use skep_http::{HttpDate, Validators};

use crate::policy::CachePolicy;
use crate::request::RequestMeta;
use crate::response::{FieldLine, ResponseMeta};
use crate::rule::CachingRule;
use crate::store::may_store;

/// The effect of the response to a conditional request on the stored responses in its condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Validated {
    /// 304: the stored responses with these indexes are fresh again (RFC 9111 4.3.4).
    Fresh(Vec<usize>),
    /// The response replaces them, whatever its status (4.3.3).
    Replaced,
    /// 304 that matches none of them: repeat the request without conditions.
    AskAgain,
}

/// The effect of the response to a HEAD on a stored response (RFC 9111 4.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadUpdate {
    /// Its fields update the stored ones, like those of a 304.
    Update,
    /// It describes another version: the stored response is stale from now on.
    Invalidate,
    /// No effect.
    Nothing,
}

/// Appends the conditions of a request that asks whether one of `stored` is current (4.3.1): all
/// entity tags; and the modification date if there is only one stored response, for origins that
/// know only dates.
pub fn write_conditions(out: &mut Vec<u8>, stored: &[Validators<'_>]) {
    let tags: Vec<_> = stored.iter().map(|of| of.etag).filter(|tag| !tag.is_empty()).collect();
    if !tags.is_empty() {
        write_field(out, "If-None-Match", tags.join(", ").as_bytes());
    }
    if let [Validators { last_modified: Some(date), .. }] = stored {
        write_field(out, "If-Modified-Since", &HttpDate(*date).format());
    }
}

/// Appends If-Range for a part of this version (RFC 9110 13.1.5): no weak tag; a date only if there
/// is no tag.
pub fn write_if_range(out: &mut Vec<u8>, version: &Validators<'_>) {
    if version.etag.starts_with('"') {
        write_field(out, "If-Range", version.etag.as_bytes());
    } else if let (true, Some(date)) = (version.etag.is_empty(), version.last_modified) {
        write_field(out, "If-Range", &HttpDate(date).format());
    }
}

/// The effect of `answer` to a request on condition that none of `stored` is current.
pub fn validated(stored: &[&ResponseMeta], answer: &ResponseMeta) -> Validated {
    if answer.status != 304 {
        return Validated::Replaced;
    }
    // Then the condition was only about it, so the origin confirmed it, validator or not.
    let is_alone = stored.len() == 1;
    let matching = match (answer.etag.as_deref(), answer.last_modified) {
        // A strong tag updates all responses that have it, a weak one only the most recent.
        (Some(tag), _) => {
            let is_it = |of: &ResponseMeta| {
                of.etag.as_deref().map_or(is_alone, |known| opaque(known) == opaque(tag))
            };
            let all = places(stored, is_it);
            if tag.starts_with('"') { all } else { latest(stored, &all) }
        }
        (None, Some(date)) => latest(stored, &places(stored, |of| of.last_modified == Some(date))),
        // 4.3.4 allows this only for a single response without a validator.
        (None, None) if is_alone => vec![0],
        (None, None) => Vec::new(),
    };
    match matching.is_empty() {
        true => Validated::AskAgain,
        false => Validated::Fresh(matching),
    }
}

/// Updates a stored response after a 304 (RFC 9111 3.2): returns the metadata and the lines, merged
/// with those of the response. Date and Age are not among the lines, since they belong to one
/// exchange: those of the new response apply.
///
/// # Errors
/// The rule that now forbids storing it: it has become private, or uncacheable.
pub fn updated<'f>(
    stored: (&ResponseMeta, impl Iterator<Item = FieldLine<'f>> + Clone),
    answer: (&ResponseMeta, impl Iterator<Item = FieldLine<'f>> + Clone),
    request: &RequestMeta<'_>,
    policy: &CachePolicy,
) -> Result<(ResponseMeta, Vec<u8>), CachingRule> {
    let lines: Vec<_> = updated_lines(stored.1, answer.1).collect();
    let (old, new) = (stored.0, answer.0);
    let mut meta = ResponseMeta::parse(old.status, lines.iter().copied(), new.times);
    meta.etag.clone_from(&old.etag);
    meta.last_modified = old.last_modified;
    (meta.age_s, meta.date) = (new.age_s, new.date);
    may_store(request, &meta, policy)?;
    let mut text = Vec::new();
    for (name, value) in lines {
        let line = [name, b": ", value, b"\r\n"];
        line.into_iter().for_each(|part| text.extend_from_slice(part));
    }
    Ok((meta, text))
}

/// The fields of `stored` that `answer` does not have, then those of `answer`; but fields that
/// describe the stored body are kept: length, coding, range and validators.
pub fn updated_lines<'f>(
    stored: impl Iterator<Item = FieldLine<'f>> + Clone,
    answer: impl Iterator<Item = FieldLine<'f>> + Clone,
) -> impl Iterator<Item = FieldLine<'f>> {
    let news = answer.filter(|(name, _)| !describes_body(name));
    let known = news.clone();
    let is_new = move |name: &[u8]| known.clone().any(|(new, _)| new.eq_ignore_ascii_case(name));
    stored.filter(move |(name, _)| !is_new(name)).chain(news)
}

/// The effect of a 200 response to a HEAD on a stored response to a GET of `stored_bytes` (RFC 9111
/// 4.3.5): each validator and the length, if present, must be equal.
pub fn head_update(
    stored: &ResponseMeta,
    stored_bytes: u64,
    answer: &ResponseMeta,
    answer_bytes: Option<u64>,
) -> HeadUpdate {
    if answer.status != 200 || stored.status != 200 {
        return HeadUpdate::Nothing;
    }
    let is_same_tag = answer.etag.is_none() || answer.etag == stored.etag;
    let is_same_date =
        answer.last_modified.is_none() || answer.last_modified == stored.last_modified;
    let is_same_length = answer_bytes.is_none_or(|bytes| bytes == stored_bytes);
    match is_same_tag && is_same_date && is_same_length {
        true => HeadUpdate::Update,
        false => HeadUpdate::Invalidate,
    }
}

/// Whether parts of two responses may be combined (RFC 9111 3.4): only with the same strong entity
/// tag.
pub fn may_combine(a: &ResponseMeta, b: &ResponseMeta) -> bool {
    a.etag.as_ref().is_some_and(|tag| tag.starts_with('"')) && a.etag == b.etag
}

/// A tag in the form for weak comparison (RFC 9110 8.8.3.2).
fn opaque(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag)
}

fn places(stored: &[&ResponseMeta], is_it: impl Fn(&ResponseMeta) -> bool) -> Vec<usize> {
    let found = stored.iter().enumerate().filter(|(_, of)| is_it(of));
    found.map(|(place, _)| place).collect()
}

/// The one of these indexes with the latest Date.
fn latest(stored: &[&ResponseMeta], places: &[usize]) -> Vec<usize> {
    let latest = places.iter().copied().max_by_key(|place| stored[*place].made_unix_s());
    latest.into_iter().collect()
}

fn describes_body(name: &[u8]) -> bool {
    const NAMES: [&str; 5] =
        ["content-length", "content-encoding", "content-range", "etag", "last-modified"];
    NAMES.iter().any(|of| name.eq_ignore_ascii_case(of.as_bytes()))
}
