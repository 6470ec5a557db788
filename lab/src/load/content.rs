//! The expected content of objects: constant, or changing by a rule that server and client share, so that
//! neither has to inform the other of a change.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use skep_units::stable_hash;
use skep_workload::Pattern;

/// The lengths of versions vary by less than this number of bytes, so that versions also differ in length.
const LENGTHS: u64 = 61;

/// Seed of the versions' content.
const SEED: u64 = 0x76_6572_7369_6f6e;

/// The expected content of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The same at all times.
    Always(Issue),
    /// Another one in each period.
    Changing(Changing),
}

/// The bytes of an object, or of one version of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issue {
    /// The number of bytes.
    pub bytes: u64,
    pub pattern: Pattern,
}

/// An object that changes in each period. Its versions are numbered, and named by their entity tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Changing {
    /// Distinguishes it from other objects.
    pub id: u32,
    /// Minimum length, in bytes.
    pub bytes: u64,
    /// Time between two changes, in milliseconds; not 0.
    pub period_ms: u64,
}

impl Changing {
    /// The version that is current at this time.
    pub fn version_at(&self, unix_ms: u64) -> u64 {
        (unix_ms + self.phase_ms()) / self.period_ms
    }

    /// When a version is replaced, in milliseconds since the Unix epoch.
    pub fn ends_at_ms(&self, version: u64) -> u64 {
        (version + 1) * self.period_ms - self.phase_ms()
    }

    /// The bytes of a version.
    pub fn issue(&self, version: u64) -> Issue {
        let name = [self.id.to_le_bytes().as_slice(), &version.to_le_bytes()].concat();
        // Offsets change the lower half only, so versions share no word.
        let seed = stable_hash(&name, SEED) & !u64::from(u32::MAX);
        Issue { bytes: self.bytes + version % LENGTHS, pattern: Pattern { seed } }
    }

    /// The entity tag of a version.
    pub fn etag(&self, version: u64) -> String {
        format!("\"{:x}-{version:x}\"", self.id)
    }

    /// The version that an entity tag names, if it is of this object.
    pub fn version_of(&self, etag: &str) -> Option<u64> {
        let (_, version) = etag.strip_prefix('"')?.strip_suffix('"')?.split_once('-')?;
        let version = u64::from_str_radix(version, 16).ok()?;
        (self.etag(version) == etag).then_some(version)
    }

    /// The phase of its changes: objects change one after the other rather than all at once.
    fn phase_ms(&self) -> u64 {
        stable_hash(&self.id.to_le_bytes(), SEED) % self.period_ms
    }
}

/// The time, in milliseconds since the Unix epoch.
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: Changing = Changing { id: 7, bytes: 1_000, period_ms: 700 };

    #[test]
    fn a_version_lasts_a_period_and_its_tag_names_it() {
        let now_ms = 1_795_000_000_123;
        let version = OBJECT.version_at(now_ms);
        let end_ms = OBJECT.ends_at_ms(version);
        assert!((1..=700).contains(&(end_ms - now_ms)));
        assert_eq!(OBJECT.version_at(end_ms - 1), version);
        assert_eq!(OBJECT.version_at(end_ms), version + 1);
        assert_eq!(OBJECT.version_of(&OBJECT.etag(version)), Some(version));
        let other = Changing { id: 8, ..OBJECT };
        assert_eq!(other.version_of(&OBJECT.etag(version)), None);
        assert_eq!(OBJECT.version_of("\"7-01\""), None);
    }

    #[test]
    fn versions_differ_from_their_first_byte_on() {
        let (one, two) = (OBJECT.issue(1), OBJECT.issue(2));
        assert_ne!(one.bytes, two.bytes);
        let mut bytes = [0; 64];
        one.pattern.fill(0, &mut bytes);
        assert_eq!(one.pattern.first_wrong(0, &bytes), None);
        assert!(two.pattern.first_wrong(0, &bytes) < Some(2));
    }
}
