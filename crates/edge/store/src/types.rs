//! Types of the store: entries, leaders, health.

use std::fmt;

use tokio::time::Instant;

use crate::error::StoreError;
use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// A value with the revision of its write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredValue {
    /// The bytes that were put.
    pub value: Vec<u8>,
    /// Number of the write; grows with every write to the store, whatever the key.
    pub revision: u64,
}

/// The value that a put expects to replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Any value or none.
    Any,
    /// There is no value yet.
    Absent,
    /// The value written at this revision.
    Revision(u64),
}

impl Expected {
    /// Whether a value at revision `found` may be replaced.
    pub(crate) fn allows(self, found: Option<u64>) -> bool {
        match self {
            Self::Any => true,
            Self::Absent => found.is_none(),
            Self::Revision(revision) => found == Some(revision),
        }
    }
}

/// The view of a [`crate::Watch`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The last known value; `None` if there was none, or none was read yet.
    pub entry: Option<StoredValue>,
    /// Whether the store confirms it: false before the first read, and while the store does not answer.
    pub is_current: bool,
}

/// The leader, as far as it is known from the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leader {
    /// The store holds no elections (`store = "embedded"`): the caller decides by other means.
    NoOpinion,
    /// The store does not answer, or its last answer is older than a lease. There may be a leader; the caller
    /// continues as before.
    Unknown,
    /// The store answers, and there is no leader.
    Nobody,
    /// This candidate, until its lease expires.
    Me,
    /// Another candidate, by name. The name may be our own: this process before a restart.
    Other(String),
}

/// The leader and its term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeadershipView {
    /// The leader.
    pub leader: Leader,
    /// Number of the term, greater with every term. With an unknown leader, the last known one; 0 before the
    /// first.
    pub epoch: u64,
}

impl LeadershipView {
    /// Whether this candidate may act as leader.
    pub fn is_leading(&self) -> bool {
        self.leader == Leader::Me
    }
}

/// A view and its expiry.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) view: LeadershipView,
    /// `None` for views that do not expire.
    pub(crate) good_until: Option<Instant>,
}

impl Held {
    /// A view in which only the last epoch is known.
    pub(crate) fn unknown(epoch: u64) -> Self {
        Self { view: LeadershipView { leader: Leader::Unknown, epoch }, good_until: None }
    }

    /// The view as of `now`.
    pub(crate) fn at(&self, now: Instant) -> LeadershipView {
        match self.good_until {
            Some(until) if until <= now => Self::unknown(self.view.epoch).view,
            _ => self.view.clone(),
        }
    }
}

/// The health of the store; displayed as a line such as `3 of 3 endpoints answer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Number of endpoints (or files) that answer.
    pub answering: usize,
    /// Number of endpoints (or files).
    pub of: usize,
    /// `endpoints` or `files`.
    pub what: &'static str,
    /// The faults, each with its endpoint or file.
    pub problems: Vec<String>,
}

impl Health {
    /// Whether there are no faults.
    pub fn is_good(&self) -> bool {
        self.answering == self.of && self.problems.is_empty()
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} {} answer", self.answering, self.of, self.what)?;
        self.problems.iter().try_for_each(|problem| write!(f, "; {problem}"))
    }
}

/// Checks that `key` is valid: names separated by `/`, without characters that are special in a shell or a
/// path.
pub(crate) fn check_key(key: &str) -> Result<(), StoreError> {
    let is_key = (1..=KEY_BYTES_MAX).contains(&key.len())
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte));
    let shortened = || key.chars().take(40).collect();
    if is_key { Ok(()) } else { Err(StoreError::Key { key: shortened(), max: KEY_BYTES_MAX }) }
}

/// Checks that `value` is small enough.
pub(crate) fn check_value(value: &[u8]) -> Result<(), StoreError> {
    check_length("a value", value.len(), VALUE_BYTES_MAX)
}

/// Checks that `what`, which has `bytes` bytes, is at most `max` long.
pub(crate) fn check_length(what: &'static str, bytes: usize, max: usize) -> Result<(), StoreError> {
    if bytes <= max { Ok(()) } else { Err(StoreError::TooLarge { what, bytes, max }) }
}
