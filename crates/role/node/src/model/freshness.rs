//! An object's place at its origins, and how long it may be used.

use skep_directory::PurgeTable;
use skep_httpcache::{CachePolicy, SecondaryKey};
use skep_origin::Head;
use skep_serve::{monotonic_ms, unix_ms};
use skep_units::SEGMENT_BYTES;
use skep_wire::cache::PurgeStamp;

use crate::model::purges::PurgeSnapshot;
use crate::model::route::Route;

/// An object's place at its origins.
#[derive(Debug)]
pub(crate) struct Remote {
    /// Path and query.
    pub(crate) target: Box<[u8]>,
    /// The name of the version; [`Head::version`] if known.
    pub(crate) version: Box<[u8]>,
    /// The head from the last fetch or renewal.
    pub(crate) head: Head,
    /// The values of the fields that its Vary names, in the request that it answered; empty if no
    /// fields of clients' requests were sent.
    pub(crate) vary_key: SecondaryKey,
    /// Whether its bytes were fetched from another node.
    pub(crate) is_from_peer: bool,
}

impl Remote {
    /// Whether a range of `bytes` bytes can be requested again, without the whole being sent for
    /// it.
    pub(crate) fn has_parts(&self, bytes: u64) -> bool {
        let knows_ranges = self.head.has_ranges || bytes > SEGMENT_BYTES;
        knows_ranges && !is_once(&self.version)
    }

    /// Memory that it takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.target.len()
            + self.version.len()
            + self.vary_key.as_bytes().len()
            + self.head.heap_bytes()
    }

    /// Its latest purges.
    pub(crate) fn purged(&self, route: &Route, purges: &PurgeSnapshot) -> LatestPurges {
        purged(route, purges, &self.target, &self.head)
    }
}

/// The latest purge of an object, of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LatestPurges {
    /// Part of the names of the object's segments.
    pub(crate) hard: PurgeStamp,
    pub(crate) soft: PurgeStamp,
}

impl LatestPurges {
    /// The later purge of each kind.
    pub(crate) fn max(self, other: Self) -> Self {
        Self { hard: self.hard.max(other.hard), soft: self.soft.max(other.soft) }
    }
}

/// The latest purges of an origin's object at `target` with `head`.
pub(crate) fn purged(
    route: &Route,
    purges: &PurgeSnapshot,
    target: &[u8],
    head: &Head,
) -> LatestPurges {
    let latest = |known: &PurgeTable| {
        if known.newest() == PurgeStamp::NONE {
            return PurgeStamp::NONE;
        }
        let tags = head.tags().map(|tag| known.of_tag(&tag)).max();
        tags.unwrap_or_default().max(route.purged(known, target))
    };
    LatestPurges { hard: latest(purges.hard()), soft: latest(purges.soft()) }
}

/// How long a resource may be used, by the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResourceFreshness {
    /// Time at which the head was received.
    received_ms: u64,
    /// Relative to that time.
    rules: skep_httpcache::Freshness,
}

impl ResourceFreshness {
    /// The freshness of `head`, at the time it was received.
    pub(crate) fn of(head: &Head, policy: &CachePolicy) -> Self {
        let since_ms = unix_ms().saturating_sub(head.meta.times.received_unix_ms);
        let received_ms = monotonic_ms().saturating_sub(since_ms);
        Self { received_ms, rules: skep_httpcache::Freshness::of(&head.meta, policy) }
    }

    /// The same for a head from another node, which stays fresh for `fresh_ms` from its answer on;
    /// the answer took `transit_ms`.
    pub(crate) fn handed_over(self, fresh_ms: u64, transit_ms: u64) -> Self {
        Self { rules: self.rules.handed_over(fresh_ms, transit_ms), ..self }
    }

    /// The same, stale from `at_ms` on by the monotonic clock; `at_ms` may precede its receipt.
    #[must_use]
    pub(crate) fn expired_at(self, at_ms: u64) -> Self {
        let Self { received_ms, rules } = self;
        let age_ms = rules.initial_age_ms.saturating_add(at_ms).saturating_sub(received_ms);
        Self { received_ms, rules: rules.expired_at(age_ms) }
    }

    /// The rules, and the time since the head was received, in milliseconds.
    pub(crate) fn rules(&self, now_ms: u64) -> (skep_httpcache::Freshness, u64) {
        (self.rules, now_ms.saturating_sub(self.received_ms))
    }

    /// Time for which it may be used without revalidation, in milliseconds.
    pub(crate) fn fresh_ms(&self, now_ms: u64) -> u64 {
        let (rules, resident_ms) = self.rules(now_ms);
        rules.fresh_until_ms().saturating_sub(resident_ms)
    }

    /// Whether it may be used without revalidation.
    pub(crate) fn is_fresh(&self, now_ms: u64) -> bool {
        let (rules, resident_ms) = self.rules(now_ms);
        rules.is_fresh(resident_ms)
    }

    /// The value of the field Age, in seconds.
    pub(crate) fn age_s(&self, now_ms: u64) -> u64 {
        let (rules, resident_ms) = self.rules(now_ms);
        rules.age_ms(resident_ms) / 1000
    }
}

/// Whether a version identifies a single response, so that no request can name it.
pub(crate) fn is_once(version: &[u8]) -> bool {
    version.starts_with(b"once ")
}
