//! Purges: which content must be refetched, and the stamps that order purges.
//!
//! A purge is sent as [`PurgeNews`], and so is everything a machine knows about purges: the
//! receiver merges it into its own table, in any order of arrival
//! (`core/directory`, `PurgeTable`).

use std::fmt;

use serde::{Deserialize, Serialize};
use skep_units::DISPATCHER_NUMBER_BITS;

use crate::limits::{
    HOST_BYTES_MAX, PURGE_CELLS_PER_MESSAGE_MAX, PURGE_TAG_BYTES_MAX, PURGE_TARGET_BYTES_MAX,
    PURGES_PER_MESSAGE_MAX,
};

/// The number of a purge: later purges have greater numbers, whichever dispatcher assigns them. It
/// is part of the names of all content fetched after the purge.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct PurgeStamp(pub u64);

impl PurgeStamp {
    /// The stamp of content that was never purged.
    pub const NONE: Self = Self(0);

    /// Time of assignment, in milliseconds since 1970 by the dispatcher's clock; later than that if
    /// it had to follow another stamp.
    pub fn unix_ms(self) -> u64 {
        self.0 >> DISPATCHER_NUMBER_BITS
    }

    /// Returns the stamp that follows `newest`, assigned at `unix_ms` (milliseconds since 1970) by
    /// the dispatcher with this number (`dispatcher_number`): two dispatchers never assign the same
    /// stamp.
    #[must_use]
    pub fn after(newest: Self, unix_ms: u64, dispatcher: u16) -> Self {
        let time = unix_ms.max(newest.unix_ms() + 1);
        Self(time << DISPATCHER_NUMBER_BITS | u64::from(dispatcher))
    }

    fn is_sound(self) -> bool {
        // So that there is a following stamp for longer than machines last.
        self.0 >> (u64::BITS - 1) == 0
    }
}

/// What a purge does to the content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PurgeKind {
    /// The content is invalid: refetched before it is next used in a response.
    #[default]
    Hard,
    /// The content is stale: validated, or used where stale content may be.
    Soft,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PurgeWhat {
    /// The content at one URL.
    Url(PurgePlace),
    /// The content at all URLs with this prefix.
    Prefix(PurgePlace),
    /// The content that its origin has marked with this tag.
    Tag(String),
}

/// A URL on one site, or on all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PurgePlace {
    /// A normalized path as it may appear in a request, with its query; or a prefix of that.
    pub target: String,
    /// A name of the site, in lower case; `None`: all sites.
    pub host: Option<String>,
}

impl PurgePlace {
    fn is_sound(&self) -> bool {
        let target = self.target.as_bytes();
        target.first() == Some(&b'/')
            && target.len() <= PURGE_TARGET_BYTES_MAX
            && self.host.as_ref().is_none_or(|host| host.len() <= HOST_BYTES_MAX)
    }
}

impl PurgeWhat {
    pub fn text_bytes(&self) -> usize {
        match self {
            Self::Url(place) | Self::Prefix(place) => {
                place.target.len() + place.host.as_ref().map_or(0, String::len)
            }
            Self::Tag(tag) => tag.len(),
        }
    }

    /// Whether it is within its bounds.
    pub fn is_sound(&self) -> bool {
        match self {
            Self::Url(place) | Self::Prefix(place) => place.is_sound(),
            Self::Tag(tag) => (1..=PURGE_TAG_BYTES_MAX).contains(&tag.len()),
        }
    }
}

/// In the syntax of the command.
impl fmt::Display for PurgeWhat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (place, star) = match self {
            Self::Url(place) => (place, ""),
            Self::Prefix(place) => (place, "*"),
            Self::Tag(tag) => return write!(f, "tag:{tag}"),
        };
        if let Some(host) = &place.host {
            write!(f, "http://{host}")?;
        }
        write!(f, "{}{star}", place.target)
    }
}

/// Purges, or part of a purge table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeNews {
    /// Everything was purged up to this stamp.
    pub floor: PurgeStamp,
    /// Purges of which only the cell is known; at most [`PURGE_CELLS_PER_MESSAGE_MAX`].
    pub cells: Vec<(u16, PurgeStamp)>,
    /// The other purges, at most [`PURGES_PER_MESSAGE_MAX`].
    pub purges: Vec<(PurgeWhat, PurgeStamp)>,
}

impl PurgeNews {
    /// The latest stamp in it.
    pub fn newest(&self) -> PurgeStamp {
        let cells = self.cells.iter().map(|&(_, stamp)| stamp);
        let purges = self.purges.iter().map(|&(_, stamp)| stamp);
        cells.chain(purges).max().unwrap_or_default().max(self.floor)
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn is_sound(&self) -> bool {
        self.cells.len() <= PURGE_CELLS_PER_MESSAGE_MAX
            && self.purges.len() <= PURGES_PER_MESSAGE_MAX
            && self.purges.iter().all(|(what, _)| what.is_sound())
            && self.newest().is_sound()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_grow_and_differ_by_who_gives_them() {
        let first = PurgeStamp::after(PurgeStamp::NONE, 1_000, 1);
        let (own, other) = (PurgeStamp::after(first, 1_000, 1), PurgeStamp::after(first, 1_000, 0));
        assert!(own > first && other > first && own != other);
        assert!(PurgeStamp::after(own, 500, 0) > own, "a clock may be behind");
        assert!(PurgeStamp::after(own, 5_000, 0) > own);
    }

    /// Until now, eight bits were the index of the dispatcher in the config.
    #[test]
    fn stamps_are_later_than_those_of_earlier_builds() {
        let unix_ms = 1_764_000_000_000;
        let before = PurgeStamp(unix_ms << 8 | 7);
        let after = PurgeStamp::after(before, unix_ms, 0);
        assert!(after > before && after.is_sound());
        assert!(PurgeStamp::after(after, unix_ms + 1, 0) > after);
        assert!(PurgeStamp((4_000 * 365 * 86_400_000) << DISPATCHER_NUMBER_BITS).is_sound());
    }

    #[test]
    fn what_is_purged_is_shown_as_it_is_typed() {
        let place = |host: Option<&str>| PurgePlace {
            target: "/a?b".into(),
            host: host.map(str::to_owned),
        };
        assert_eq!(PurgeWhat::Url(place(None)).to_string(), "/a?b");
        assert_eq!(PurgeWhat::Prefix(place(Some("h"))).to_string(), "http://h/a?b*");
        assert_eq!(PurgeWhat::Tag("x".into()).to_string(), "tag:x");
    }

    #[test]
    fn bounds_are_kept() {
        let news = |purge: PurgeWhat| PurgeNews {
            purges: vec![(purge, PurgeStamp(1))],
            ..PurgeNews::default()
        };
        let at = |target: &str| PurgePlace { target: target.into(), host: None };
        assert!(news(PurgeWhat::Url(at("/"))).is_sound());
        assert!(!news(PurgeWhat::Url(at("a"))).is_sound());
        assert!(!news(PurgeWhat::Prefix(at(""))).is_sound());
        assert!(!news(PurgeWhat::Url(at(&"/a".repeat(PURGE_TARGET_BYTES_MAX)))).is_sound());
        assert!(!news(PurgeWhat::Tag(String::new())).is_sound());
        let tag = |bytes| news(PurgeWhat::Tag("x".repeat(bytes)));
        assert!(tag(PURGE_TAG_BYTES_MAX).is_sound() && !tag(PURGE_TAG_BYTES_MAX + 1).is_sound());
        let host = |bytes| PurgePlace { target: "/".into(), host: Some("h".repeat(bytes)) };
        assert!(news(PurgeWhat::Url(host(HOST_BYTES_MAX))).is_sound());
        assert!(!news(PurgeWhat::Prefix(host(HOST_BYTES_MAX + 1))).is_sound());
        let target = |bytes| at(&"/".repeat(bytes));
        assert!(news(PurgeWhat::Url(target(PURGE_TARGET_BYTES_MAX))).is_sound());
        assert!(!news(PurgeWhat::Url(target(PURGE_TARGET_BYTES_MAX + 1))).is_sound());
        let many = vec![(PurgeWhat::Tag("x".into()), PurgeStamp(1)); PURGES_PER_MESSAGE_MAX + 1];
        assert!(!PurgeNews { purges: many, ..PurgeNews::default() }.is_sound());
        assert!(!PurgeNews { floor: PurgeStamp(u64::MAX), ..PurgeNews::default() }.is_sound());
    }
}
