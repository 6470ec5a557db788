//! From an origin's head to what is kept of it: how long it may be used, under
//! which version, and the lines of its replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use skep_directory::Purges as Known;
use skep_origin::Head;
use skep_origin::freshness;
use skep_serve::{monotonic_ms, unix_ms};
use skep_units::SEGMENT_BYTES;
use skep_wire::cache::PurgeStamp;
use skep_wire::limits::OBJECT_BYTES_MAX;

use super::RemoteSite;
use crate::object::{Object, ObjectSource, Variants};
use crate::purges::Snapshot;
use crate::resource::Resource;
use crate::site::Site;

/// An object's place at its origins.
#[derive(Debug)]
pub(crate) struct Remote {
    /// Path and query.
    pub(crate) target: Box<[u8]>,
    /// What names the version; as [`freshness::version`] if that is known.
    pub(crate) version: Box<[u8]>,
    /// The head under which it was last got or renewed.
    pub(crate) head: Head,
}

impl Remote {
    /// Whether a part of it, which has so many bytes, can be asked for again, and will
    /// not come as a part of all.
    pub(crate) fn has_parts(&self, bytes: u64) -> bool {
        let mut lines = self.head.lines();
        // Peer heads say 200.
        let knows_ranges = self.head.status == 206
            || bytes > SEGMENT_BYTES
            || lines.any(|(name, line)| {
                let value = &line[(name.len() + 1).min(line.len())..];
                name.eq_ignore_ascii_case(b"accept-ranges")
                    && value.trim_ascii().eq_ignore_ascii_case(b"bytes")
            });
        knows_ranges && !is_once(&self.version)
    }

    /// Bytes that it takes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.target.len() + self.version.len() + self.head.heap_bytes()
    }

    /// The latest purge of it.
    pub(crate) fn purged(&self, site: &Site, known: &Known) -> PurgeStamp {
        purged(site, known, &self.target, &self.head)
    }
}

/// The latest purge of what an origin has at `target` under `head`.
pub(super) fn purged(site: &Site, known: &Known, target: &[u8], head: &Head) -> PurgeStamp {
    let tags = head.tags().map(|tag| known.of_tag(tag)).max();
    tags.unwrap_or_default().max(site.purged(known, target))
}

/// How long a resource may be used, by the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freshness {
    received_ms: u64,
    /// Its age when it was received.
    age_ms: u64,
    fresh_until_ms: u64,
    while_asking_until_ms: u64,
    on_error_until_ms: u64,
}

impl Freshness {
    /// That of `head`, which came just now.
    pub(crate) fn of(head: &Head, site: &RemoteSite) -> Self {
        let said = freshness::freshness(head);
        let is_said = head.cache_control.no_cache || head.says_how_long();
        let default_ms = site.fresh_ms.saturating_sub(head.age_s.unwrap_or(0) * 1000);
        let more_ms = if is_said { 0 } else { default_ms };
        let since_ms = unix_ms().saturating_sub(head.received_unix_ms);
        let received_ms = monotonic_ms().saturating_sub(since_ms);
        let until =
            |unix_ms: u64| received_ms + unix_ms.saturating_sub(head.received_unix_ms) + more_ms;
        Self {
            received_ms,
            age_ms: freshness::age_ms(head),
            fresh_until_ms: until(said.fresh_until_unix_ms),
            while_asking_until_ms: until(said.usable_while_asking_until_unix_ms),
            on_error_until_ms: until(said.usable_on_error_until_unix_ms),
        }
    }

    /// How long it may be used without asking, in milliseconds.
    pub(super) fn fresh_ms(&self, now_ms: u64) -> u64 {
        self.fresh_until_ms.saturating_sub(now_ms)
    }

    /// The same, fresh for so long from its receipt on: another node knows it to
    /// the millisecond, a head to the second.
    pub(super) fn for_ms(self, fresh_ms: u64) -> Self {
        let fresh_until_ms = self.received_ms.saturating_add(fresh_ms);
        let moved = |until_ms: u64| {
            fresh_until_ms.saturating_add(until_ms.saturating_sub(self.fresh_until_ms))
        };
        Self {
            fresh_until_ms,
            while_asking_until_ms: moved(self.while_asking_until_ms),
            on_error_until_ms: moved(self.on_error_until_ms),
            ..self
        }
    }

    /// Whether it may be used without asking.
    pub(crate) fn is_fresh(&self, now_ms: u64) -> bool {
        now_ms < self.fresh_until_ms
    }

    /// Whether it may be used while the origin is asked.
    pub(crate) fn is_usable_while_asking(&self, now_ms: u64) -> bool {
        now_ms < self.while_asking_until_ms
    }

    /// Whether it may be used if the origin fails.
    pub(crate) fn is_usable_on_error(&self, now_ms: u64) -> bool {
        now_ms < self.on_error_until_ms
    }

    /// Field Age, in seconds.
    pub(crate) fn age_s(&self, now_ms: u64) -> u64 {
        (self.age_ms + now_ms.saturating_sub(self.received_ms)) / 1000
    }
}

/// Length of an object that may be kept: it is known, its segments can be counted,
/// and its head does not forbid it. What is no object may be kept if it is small.
pub(super) fn keepable_bytes(head: &Head) -> Option<u64> {
    let bytes_max = match head.status {
        200 | 206 => OBJECT_BYTES_MAX,
        301 | 302 | 307 | 308 | 404 | 410 => SEGMENT_BYTES,
        _ => return None,
    };
    let bytes = head.total_bytes.filter(|bytes| *bytes <= bytes_max);
    bytes.filter(|_| freshness::allowed(head).is_ok())
}

/// Length of what an answer is of, and the version under which it is kept; `None`:
/// it is not.
pub(super) fn version(head: &Head) -> Option<(u64, Vec<u8>)> {
    let bytes = keepable_bytes(head)?;
    // A page without any word on it may be anything.
    if head.start > 0 || freshness::storable(head).is_err() {
        return None;
    }
    let is_whole = head.end == Some(bytes);
    if !matches!(head.status, 200 | 206) {
        // As long as it says so; it is no version of what may be there otherwise.
        let fresh = freshness::freshness(head);
        let is_fresh = fresh.fresh_until_unix_ms > head.received_unix_ms;
        return (is_whole && is_fresh).then(|| (bytes, once()));
    }
    // 200 to an ask for a range: an origin that knows no ranges would send
    // all of it for each segment.
    if bytes > SEGMENT_BYTES && is_whole {
        return None;
    }
    let version = freshness::version(head).or_else(|| is_whole.then(once))?;
    Some((bytes, version))
}

/// A version of its own, unlike that of any other answer to any node: parts of
/// two answers can't be told to belong together.
fn once() -> Vec<u8> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut version = format!("once {count} ").into_bytes();
    let mut random = [0; 16];
    // Without entropy the process does not get as far as this.
    if rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).is_err() {
        random[..8].copy_from_slice(&unix_ms().to_le_bytes());
    }
    version.extend(random);
    version
}

/// Whether a version can be asked for by name.
pub(super) fn is_once(version: &[u8]) -> bool {
    version.starts_with(b"once ")
}

/// What is known of an object at its origin.
pub(super) struct Got {
    pub(super) target: Vec<u8>,
    pub(super) version: Vec<u8>,
    /// Of all of it.
    pub(super) bytes: u64,
    pub(super) head: Head,
    /// The latest purge of it that whoever got it knew of.
    pub(super) purged: PurgeStamp,
}

/// What is served from now on, for as long as `freshness` says. `purges` are
/// those known before it was asked for.
pub(super) fn resource(
    site: &Arc<Site>,
    remote: &RemoteSite,
    got: Got,
    freshness: Freshness,
    purges: &Snapshot,
) -> Arc<Resource> {
    let Got { target, version, bytes, head, purged } = got;
    let is_success = (200..300).contains(&head.status);
    let lines = lines(&head, remote.sets_cache_control && is_success);
    let content_type = head.content_type.as_deref().map(String::from_utf8_lossy);
    let unknown = || "application/octet-stream".to_owned();
    let content_type = content_type.map_or_else(unknown, |text| text.into_owned());
    let origin = Remote { target: target.into(), version: version.into(), head };
    let object = Object::of_origin(site, content_type, &lines, bytes, origin, purged);
    Arc::new(Resource::of_origin(site, Variants::of_one(object), freshness, purges))
}

impl Resource {
    /// Whether it may be used where its origin fails.
    pub(super) fn may_do_on_error(&self) -> bool {
        self.freshness().is_some_and(|fresh| fresh.is_usable_on_error(monotonic_ms()))
    }

    /// Its place at its origins, if it has one.
    pub(crate) fn remote(&self) -> Option<&Remote> {
        match &self.variants.plain.source {
            ObjectSource::Origin(remote) => Some(remote),
            ObjectSource::File { .. } | ObjectSource::Elsewhere { .. } => None,
        }
    }
}

/// Lines for clients, Content-Type first: without those that are ours to say.
pub(super) fn lines(head: &Head, site_says: bool) -> Vec<u8> {
    let is_of = |name: &[u8], names: &[&str]| {
        names.iter().any(|ours| name.eq_ignore_ascii_case(ours.as_bytes()))
    };
    let types = head.lines().filter(|(name, _)| is_of(name, &["content-type"]));
    let mut lines: Vec<u8> = types.flat_map(|(_, line)| line).copied().collect();
    // Tags are for caches: elsewhere, too, the one that purges by them keeps them.
    let ours = ["content-type", "server", "surrogate-key", "cache-tag"];
    for (name, line) in head.lines().filter(|(name, _)| !is_of(name, &ours)) {
        if !(site_says && is_of(name, &["cache-control", "expires"])) {
            lines.extend_from_slice(line);
        }
    }
    lines
}
