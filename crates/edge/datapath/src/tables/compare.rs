//! Compares what is in the maps with what was written to them: others may have changed them, and a
//! change may have failed midway.
//!
//! The small maps are compared once a second, rows in slices: all of them within
//! [`COMPARE_ALL_MS`]. Of rows sums are remembered, not the rows, which for 64 services are 67 MB.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use aya::Pod;
use aya::maps::IterableMap;
use skep_wire::guard::{ChangedMap, ProgramMap};
use skep_wire::steer::{NODES_MAX, ROWS};

use super::{Place, Tables, first_row, vips};
use crate::limits::{BATCH_ELEMENTS, COMPARE_ALL_MS, COMPARE_MS, ROWS_PER_SUM};
use crate::{DatapathError, abi, sys};

/// Sums of the rows of a table, [`ROWS_PER_SUM`] each.
#[derive(Clone)]
pub(super) struct RowSums(Vec<u64>);

/// How far the comparison is.
#[derive(Default)]
pub(super) struct Comparison {
    /// When the small maps were compared.
    maps_at: Option<Instant>,
    /// When rows were compared.
    rows_at: Option<Instant>,
    /// The place whose rows are next.
    place: usize,
    /// The first of them.
    row: usize,
}

impl RowSums {
    pub(super) fn of(rows: &[abi::Row]) -> Self {
        Self(sums(rows).collect())
    }

    /// The first row of a part of the table that begins at `first`, as far as the sums can tell, that
    /// is another one than was written.
    fn differs(&self, first: usize, rows: &[abi::Row]) -> Option<usize> {
        let expected = self.0.iter().skip(first / ROWS_PER_SUM);
        let at = sums(rows).zip(expected).position(|(found, expected)| found != *expected)?;
        Some(first + at * ROWS_PER_SUM)
    }
}

impl Tables {
    /// Maps that differ from what was written, of those that it is time to compare: to be called
    /// several times a second.
    pub(crate) fn changed(&mut self, now: Instant) -> Result<Vec<ChangedMap>, DatapathError> {
        let every = Duration::from_millis(COMPARE_MS);
        let is_due = self.comparison.maps_at.is_none_or(|at| now - at >= every);
        let mut changed = Vec::new();
        if is_due {
            self.comparison.maps_at = Some(now);
            changed = self.changed_maps()?;
        }
        let since = self.comparison.rows_at.replace(now).map_or(Duration::ZERO, |at| now - at);
        let rows = self.places.iter().filter(|place| place.present().is_some()).count() * ROWS;
        // After a pause not all at once: orders wait meanwhile.
        let due = rows as u128 * since.min(every).as_micros() / u128::from(COMPARE_ALL_MS * 1_000);
        self.compare_rows(due as usize, &mut changed)?;
        Ok(changed)
    }

    fn changed_maps(&self) -> Result<Vec<ChangedMap>, DatapathError> {
        let Self { settings, nodes, steerers, services, written, .. } = self;
        let there = settings.get(&0, 0).map_err(DatapathError::map("settings"))?;
        let settings = (there != written.settings)
            .then(|| ChangedMap { map: ProgramMap::Settings, key: "0".to_owned() });
        let nodes = written.nodes.as_ref().map(|written| {
            let mut there = [abi::Node::default(); NODES_MAX];
            sys::read_array(nodes.map().fd().as_fd(), 0, &mut there)?;
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
        let mut changed: Vec<ChangedMap> = settings.into_iter().collect();
        for (map, compared) in compared {
            changed.extend(compared.transpose().map_err(DatapathError::map_io(map))?.flatten());
        }
        Ok(changed)
    }

    /// Goes on with so many rows.
    fn compare_rows(
        &mut self,
        mut left: usize,
        changed: &mut Vec<ChangedMap>,
    ) -> Result<(), DatapathError> {
        let mut rows = vec![abi::Row::default(); left.min(BATCH_ELEMENTS)];
        while left > 0 {
            let Comparison { place: at, row: first, .. } = self.comparison;
            let Some((key, sums)) = self.places.get(at).and_then(Place::present) else {
                self.comparison.place = (at + 1) % self.places.len();
                self.comparison.row = 0;
                continue;
            };
            // Whole sums.
            let count = left.next_multiple_of(ROWS_PER_SUM).min(BATCH_ELEMENTS).min(ROWS - first);
            rows.resize(count, abi::Row::default());
            let from = first_row(at as u32, self.places[at].half) + first as u32;
            sys::read_array(self.rows.fd().as_fd(), from, &mut rows)
                .map_err(DatapathError::map_io("rows"))?;
            let map = ProgramMap::Rows(key.address(), key.protocol());
            if let Some(row) = sums.differs(first, &rows)
                && changed.iter().all(|it| it.map != map)
            {
                let behind = (row + ROWS_PER_SUM).min(ROWS) - first;
                let (from, to) = (from as usize + row - first, from as usize + behind - 1);
                changed.push(ChangedMap { map, key: format!("{from} to {to}, {}", key.address()) });
            }
            left = left.saturating_sub(count);
            let is_end = first + count == ROWS;
            self.comparison.row = if is_end { 0 } else { first + count };
            self.comparison.place = if is_end { (at + 1) % self.places.len() } else { at };
        }
        Ok(())
    }
}

impl Place {
    /// The service whose rows this process has written.
    fn present(&self) -> Option<(abi::ServiceKey, &RowSums)> {
        self.service.zip(self.sums[usize::from(self.half)].as_ref())
    }
}

/// The first difference between a hash table, or a trie, and what was written to it.
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

fn sums(rows: &[abi::Row]) -> impl Iterator<Item = u64> {
    rows.chunks(ROWS_PER_SUM)
        .map(|rows| rows.iter().fold(0, |sum, row| mix(mix(sum, row, 0), row, 4)))
}

/// Any change of one place of a row changes the sum: each step is one-to-one in the sum and in the
/// row.
fn mix(sum: u64, row: &abi::Row, from: usize) -> u64 {
    let word = row.0[from..from + 4].iter().fold(0, |word, node| word << 16 | u64::from(*node));
    let mixed = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}
