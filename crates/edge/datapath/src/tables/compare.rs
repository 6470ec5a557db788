//! Compares the contents of the maps with what was written to them: other programs may have changed them, and
//! a change may have failed midway.
//!
//! The small maps are compared once a second, rows in slices: all of them within [`COMPARE_ALL_MS`]. Of rows
//! only checksums are stored: for 64 services the rows take 67 MB.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use aya::Pod;
use aya::maps::IterableMap;
use skep_wire::guard::{ChangedMap, ProgramMap};
use skep_wire::steer::{NODES_MAX, ROWS};

use super::{Place, Tables, first_row, vips};
use crate::limits::{COMPARE_ALL_MS, COMPARE_MS, ROWS_PER_SUM};
use crate::{DatapathError, abi, sys};

/// Checksums of the rows of a table, one for every [`ROWS_PER_SUM`] rows.
#[derive(Clone)]
pub(super) struct RowSums(Vec<u64>);

/// The results of comparisons.
#[derive(Default)]
pub(crate) struct Findings {
    changed: Vec<ChangedMap>,
    /// The first error.
    failure: Option<DatapathError>,
}

/// The progress of the comparison.
#[derive(Default)]
pub(super) struct Comparison {
    /// When the small maps were last compared.
    maps_at: Option<Instant>,
    /// When rows were last compared.
    rows_at: Option<Instant>,
    /// The place whose rows are compared next.
    place: usize,
    /// The first of those rows.
    row: usize,
}

impl Findings {
    /// Adds the result for one map. An error does not keep other maps from being compared.
    pub(crate) fn add(&mut self, found: Result<Option<ChangedMap>, DatapathError>) {
        match found {
            Ok(changed) => self.changed.extend(changed),
            Err(failure) => drop(self.failure.get_or_insert(failure)),
        }
    }

    /// The maps that have changed. An error must not hide them, as they are not compared again for a while; a
    /// lasting error is returned by the next comparison.
    pub(crate) fn outcome(self) -> Result<Vec<ChangedMap>, DatapathError> {
        match self.failure {
            Some(failure) if self.changed.is_empty() => Err(failure),
            _ => Ok(self.changed),
        }
    }
}

impl RowSums {
    pub(super) fn of(rows: &[abi::Row]) -> Self {
        let sum = |rows: &[abi::Row]| rows.iter().flat_map(|row| row.words()).fold(0, mix);
        Self(rows.chunks(ROWS_PER_SUM).map(sum).collect())
    }

    /// Returns the first of `rows`, which begin at row `first`, whose checksum differs from that of the
    /// written rows: the first row of that checksum.
    fn differs(&self, first: usize, rows: &[AtomicU64]) -> Option<usize> {
        let mut expected = self.0.iter().skip(first / ROWS_PER_SUM);
        let sum =
            |rows: &[AtomicU64]| rows.iter().map(|word| word.load(Ordering::Relaxed)).fold(0, mix);
        let mut sums = rows.chunks(ROWS_PER_SUM * ROW_WORDS).map(sum);
        let at = sums.position(|found| expected.next() != Some(&found))?;
        Some(first + at * ROWS_PER_SUM)
    }
}

impl Tables {
    /// Compares the maps whose comparison is due; to be called several times a second.
    pub(crate) fn compare(&mut self, now: Instant, findings: &mut Findings) {
        let every = Duration::from_millis(COMPARE_MS);
        let is_due = self.comparison.maps_at.is_none_or(|at| now - at >= every);
        if is_due {
            self.comparison.maps_at = Some(now);
            self.compare_maps(findings);
        }
        let since = self.comparison.rows_at.replace(now).map_or(Duration::ZERO, |at| now - at);
        let rows = self.places.iter().filter(|place| place.present().is_some()).count() * ROWS;
        // After a pause the missed comparisons are not made up for at once: orders wait meanwhile.
        let due = rows as u128 * since.min(every).as_micros() / u128::from(COMPARE_ALL_MS * 1_000);
        self.compare_rows(due as usize, &mut findings.changed);
    }

    fn compare_maps(&self, findings: &mut Findings) {
        let Self { settings, nodes, steerers, services, written, .. } = self;
        let settings = settings.get(&0, 0).map_err(DatapathError::map("settings"));
        findings.add(settings.map(|there| {
            (there != written.settings)
                .then(|| ChangedMap { map: ProgramMap::Settings, key: "0".to_owned() })
        }));
        let nodes = written.nodes.as_ref().map(|written| {
            let mut there = [abi::Node::default(); NODES_MAX];
            sys::read_range(nodes.map().fd().as_fd(), 0, &mut there)?;
            let at = written.iter().zip(&there).position(|(written, there)| written != there);
            Ok(at.map(|at| ChangedMap { map: ProgramMap::Nodes, key: at.to_string() }))
        });
        let steerers = written.steerers.as_ref().map(|written| {
            let map = steerers.map().fd().as_fd();
            difference(ProgramMap::Steerers, map, written, |mac| {
                mac.map(|byte| format!("{byte:02x}")).join(":")
            })
        });
        let services_there = written.services.as_ref().map(|written| {
            difference(ProgramMap::Services, services.map().fd().as_fd(), written, |key| {
                key.address().to_string()
            })
        });
        let vips_there = written.services.as_ref().map(|written| {
            let map = self.vips.map().fd().as_fd();
            difference(ProgramMap::Vips, map, &vips(written), |vip| IpAddr::from(vip).to_string())
        });
        let compared: [(&'static str, Option<io::Result<Option<ChangedMap>>>); 4] = [
            ("nodes", nodes),
            ("steerers", steerers),
            ("services", services_there),
            ("vips", vips_there),
        ];
        for (map, compared) in compared {
            let found = compared.transpose().map_err(DatapathError::map_io(map));
            findings.add(found.map(Option::flatten));
        }
    }

    /// Compares the next `left` rows.
    fn compare_rows(&mut self, mut left: usize, changed: &mut Vec<ChangedMap>) {
        while left > 0 {
            let Comparison { place: at, row: first, .. } = self.comparison;
            let next = (at + 1) % self.places.len();
            let Some((key, sums)) = self.places[at].present() else {
                (self.comparison.place, self.comparison.row) = (next, 0);
                continue;
            };
            // Only whole checksums can be compared.
            let count = left.next_multiple_of(ROWS_PER_SUM).min(ROWS - first);
            let from = first_row(at as u32, self.places[at].half) as usize + first;
            let rows = &self.rows_view.words()[from * ROW_WORDS..(from + count) * ROW_WORDS];
            let map = ProgramMap::Rows(key.address(), key.protocol());
            if let Some(row) = sums.differs(first, rows)
                && changed.iter().all(|it| it.map != map)
            {
                let last = (row + ROWS_PER_SUM).min(ROWS) - 1;
                let (from, to) = (from + row - first, from + last - first);
                changed.push(ChangedMap { map, key: format!("{from} to {to}, {}", key.address()) });
            }
            left = left.saturating_sub(count);
            let is_end = first + count == ROWS;
            (self.comparison.place, self.comparison.row) =
                if is_end { (next, 0) } else { (at, first + count) };
        }
    }
}

impl Place {
    /// The service whose rows this process has written.
    fn present(&self) -> Option<(abi::ServiceKey, &RowSums)> {
        self.service.zip(self.sums[usize::from(self.half)].as_ref())
    }
}

/// Returns the first difference between a hash table, or a trie, and what was written to it.
pub(crate) fn difference<K: Pod + Default + Eq + Hash, V: Pod + Default + PartialEq>(
    map: ProgramMap,
    fd: BorrowedFd<'_>,
    written: &HashMap<K, V>,
    name: impl Fn(K) -> String,
) -> io::Result<Option<ChangedMap>> {
    let (mut same, mut other) = (HashSet::new(), None);
    sys::each(fd, |key: K, value: V| match written.get(&key) == Some(&value) {
        true => drop(same.insert(key)),
        false => other = Some(key),
    })?;
    let missing = || written.keys().find(|key| !same.contains(*key)).copied();
    let key = other.or_else(missing);
    Ok(key.map(|key| ChangedMap { map, key: name(key) }))
}

/// Words of a row.
pub(super) const ROW_WORDS: usize = size_of::<abi::Row>() / size_of::<u64>();

/// A change of one word always changes the checksum: each step is one-to-one.
fn mix(sum: u64, word: u64) -> u64 {
    let mixed = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_comparison_that_fails_hides_nothing_that_others_find() {
        let changed = |key: &str| ChangedMap { map: ProgramMap::Nodes, key: key.to_owned() };
        let failed = || Err(DatapathError::map_io("nodes")(io::ErrorKind::NotFound.into()));
        let mut findings = Findings::default();
        for found in [Ok(Some(changed("1"))), failed(), Ok(None), Ok(Some(changed("2")))] {
            findings.add(found);
        }
        assert_eq!(findings.outcome().unwrap(), [changed("1"), changed("2")]);
        let mut findings = Findings::default();
        findings.add(Ok(None));
        findings.add(failed());
        assert!(findings.outcome().unwrap_err().to_string().contains("nodes"));
    }
}
