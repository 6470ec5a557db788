//! An object's place at its origins, and how long it may be used.

use skep_directory::PurgeTable;
use skep_origin::{Head, freshness};
use skep_serve::{monotonic_ms, unix_ms};
use skep_units::SEGMENT_BYTES;
use skep_wire::cache::PurgeStamp;

use crate::model::origin_backend::OriginBackend;
use crate::model::route::Route;

/// An object's place at its origins.
#[derive(Debug)]
pub(crate) struct Remote {
    /// Path and query.
    pub(crate) target: Box<[u8]>,
    /// The name of the version; [`freshness::version`] if that is known.
    pub(crate) version: Box<[u8]>,
    /// The head with which it was last fetched or renewed.
    pub(crate) head: Head,
}

impl Remote {
    /// Whether a part of `bytes` bytes can be requested again, without arriving as a part of
    /// the whole.
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
    pub(crate) fn purged(&self, route: &Route, known: &PurgeTable) -> PurgeStamp {
        purged(route, known, &self.target, &self.head)
    }
}

/// The latest purge of an origin's object at `target` with `head`.
pub(crate) fn purged(route: &Route, known: &PurgeTable, target: &[u8], head: &Head) -> PurgeStamp {
    let tags = head.tags().map(|tag| known.of_tag(tag)).max();
    tags.unwrap_or_default().max(route.purged(known, target))
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
    /// The freshness of `head`, which was received just now.
    pub(crate) fn of(head: &Head, origin: &OriginBackend) -> Self {
        let said = freshness::freshness(head);
        let is_said = head.cache_control.no_cache || head.says_how_long();
        let default_ms = origin.fresh_ms.saturating_sub(head.age_s.unwrap_or(0) * 1000);
        let more_ms = if is_said { 0 } else { default_ms };
        let since_ms = unix_ms().saturating_sub(head.received_unix_ms);
        let received_ms = monotonic_ms().saturating_sub(since_ms);
        let until =
            |unix_ms: u64| received_ms + unix_ms.saturating_sub(head.received_unix_ms) + more_ms;
        Self {
            received_ms,
            age_ms: head.age_ms(),
            fresh_until_ms: until(said.fresh_until_unix_ms),
            while_asking_until_ms: until(said.usable_while_asking_until_unix_ms),
            on_error_until_ms: until(said.usable_on_error_until_unix_ms),
        }
    }

    /// How long it may be used without revalidation, in milliseconds.
    pub(crate) fn fresh_ms(&self, now_ms: u64) -> u64 {
        self.fresh_until_ms.saturating_sub(now_ms)
    }

    /// The same, fresh for `fresh_ms` from its receipt: another node sends this in
    /// milliseconds, a head in seconds.
    pub(crate) fn for_ms(self, fresh_ms: u64) -> Self {
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

    /// Whether it may be used without revalidation.
    pub(crate) fn is_fresh(&self, now_ms: u64) -> bool {
        now_ms < self.fresh_until_ms
    }

    /// Whether it may be used during revalidation.
    pub(crate) fn is_usable_while_asking(&self, now_ms: u64) -> bool {
        now_ms < self.while_asking_until_ms
    }

    /// Whether it may be used if the origin fails.
    pub(crate) fn is_usable_on_error(&self, now_ms: u64) -> bool {
        now_ms < self.on_error_until_ms
    }

    /// The value of the field Age, in seconds.
    pub(crate) fn age_s(&self, now_ms: u64) -> u64 {
        (self.age_ms + now_ms.saturating_sub(self.received_ms)) / 1000
    }
}

/// Whether a version is that of one response only, so that no request can name it.
pub(crate) fn is_once(version: &[u8]) -> bool {
    version.starts_with(b"once ")
}
