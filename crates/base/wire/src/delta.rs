//! Tables as differences from an earlier table, sufficient for machines that have the latter.
//!
//! A delta rebuilds the encoding of a table from runs of the encoding of its base and new bytes, so
//! it is independent of a table's content. A receiver with another base than the author's detects
//! that by the hash of the result.

use serde::{Deserialize, Serialize};
use skep_units::stable_hash;

use crate::limits::MESSAGE_BYTES_MAX;
use crate::table::{Table, TableVersion};

/// Shortest run that is looked up in the base, in bytes: shorter ones cost as much as they save.
const RUN_BYTES_MIN: usize = 8;
const HASH_SEED: u64 = 0x6465_6c74;

/// A table, encoded for machines that have its base.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableDelta {
    pub base: TableVersion,
    pub version: TableVersion,
    /// Hash of the encoded table.
    hash: u64,
    edits: Vec<Edit>,
}

/// A piece of the encoded table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Edit {
    /// A run of the encoded base.
    Copy {
        from: u32,
        bytes: u32,
    },
    Insert(Vec<u8>),
}

/// A delta does not lead from this base to a valid table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the delta is of another table")]
pub struct NotItsBase;

impl TableDelta {
    /// Returns the delta from `base` to `table`.
    pub fn between(base: &Table, table: &Table) -> Self {
        let (before, after) = (encode(base), encode(table));
        Self {
            base: base.version,
            version: table.version,
            hash: stable_hash(&after, HASH_SEED),
            edits: edits(&before, &after),
        }
    }

    /// Returns the table that results from applying it to `base`.
    pub fn apply(&self, base: &Table) -> Result<Table, NotItsBase> {
        if base.version != self.base {
            return Err(NotItsBase);
        }
        let before = encode(base);
        let mut after = Vec::with_capacity(before.len());
        for edit in &self.edits {
            after.extend_from_slice(edit.bytes(&before).ok_or(NotItsBase)?);
            if after.len() > MESSAGE_BYTES_MAX {
                return Err(NotItsBase);
            }
        }
        if stable_hash(&after, HASH_SEED) != self.hash {
            return Err(NotItsBase);
        }
        let (table, rest): (Table, _) =
            postcard::take_from_bytes(&after).map_err(|_| NotItsBase)?;
        let is_it = rest.is_empty() && table.version == self.version && table.is_sound();
        is_it.then_some(table).ok_or(NotItsBase)
    }
}

impl Edit {
    fn bytes<'a>(&'a self, base: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Self::Copy { from, bytes } => {
                let from = usize::try_from(*from).ok()?;
                base.get(from..from.checked_add(usize::try_from(*bytes).ok()?)?)
            }
            Self::Insert(bytes) => Some(bytes),
        }
    }
}

fn encode(table: &Table) -> Vec<u8> {
    #[expect(clippy::expect_used, reason = "fails only for types that are not used here")]
    postcard::to_allocvec(table).expect("maps and unsized sequences are not in any table")
}

/// Greedy: at each offset, the run that continues the last one after as many changed bytes,
/// otherwise the one that begins with the same [`RUN_BYTES_MIN`] bytes.
fn edits(base: &[u8], new: &[u8]) -> Vec<Edit> {
    let places = Places::of(base);
    let mut edits = Vec::new();
    // New bytes before `done` are in `edits`; `ahead` is the corresponding offset in the base.
    let (mut done, mut ahead, mut at) = (0, 0, 0);
    while at + RUN_BYTES_MIN <= new.len() {
        let head = &new[at..at + RUN_BYTES_MIN];
        let beside = ahead + (at - done);
        let is_run = |from: &usize| base.get(*from..*from + RUN_BYTES_MIN) == Some(head);
        let Some(from) = Some(beside).filter(is_run).or(places.find(head).filter(is_run)) else {
            at += 1;
            continue;
        };
        let pairs = base[from..].iter().zip(&new[at..]);
        let bytes = pairs.take_while(|(before, after)| before == after).count();
        if done < at {
            edits.push(Edit::Insert(new[done..at].to_vec()));
        }
        edits.push(Edit::Copy { from: from as u32, bytes: bytes as u32 });
        at += bytes;
        (done, ahead) = (at, from + bytes);
    }
    if done < new.len() {
        edits.push(Edit::Insert(new[done..].to_vec()));
    }
    edits
}

/// Offsets of runs in the base, by a hash of their first bytes; one offset per hash.
struct Places {
    slots: Vec<u32>,
    shift: u32,
}

impl Places {
    fn of(base: &[u8]) -> Self {
        let bits = (base.len().max(2) - 1).ilog2() + 1;
        let mut places = Self { slots: vec![0; 1 << bits], shift: u64::BITS - bits };
        for (at, head) in base.windows(RUN_BYTES_MIN).enumerate() {
            let slot = places.slot(head);
            places.slots[slot] = at as u32;
        }
        places
    }

    fn find(&self, head: &[u8]) -> Option<usize> {
        usize::try_from(self.slots[self.slot(head)]).ok()
    }

    fn slot(&self, head: &[u8]) -> usize {
        let head = head.first_chunk().map_or(0, |head| u64::from_le_bytes(*head));
        (head.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }
}

const _: () = assert!(MESSAGE_BYTES_MAX <= u32::MAX as usize);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    use skep_units::Rng;

    fn joined(base: &[u8], edits: &[Edit]) -> Vec<u8> {
        edits.iter().flat_map(|edit| edit.bytes(base).unwrap()).copied().collect()
    }

    #[test]
    fn any_bytes_come_of_any_others() {
        let mut rng = Rng::new(1);
        let mut bytes = |alphabet: u64| -> Vec<u8> {
            let length = rng.below(200);
            (0..length).map(|_| rng.below(alphabet) as u8).collect()
        };
        for round in 0..2_000 {
            let alphabet = [1, 2, 256][round % 3];
            let (base, middle) = (bytes(alphabet), bytes(alphabet));
            let split = middle.len().min(base.len()) / 2;
            for new in [
                middle.clone(),
                base.clone(),
                [&base[..split], &middle, &base[split..]].concat(),
                [&base[split..], &base[..split]].concat(),
            ] {
                assert_eq!(joined(&base, &edits(&base, &new)), new);
            }
        }
    }

    #[test]
    fn a_changed_byte_costs_a_few() {
        let mut rng = Rng::new(2);
        let base: Vec<u8> = (0..20_000).map(|_| rng.next_u64() as u8).collect();
        let mut new = base.clone();
        new[7_000] ^= 1;
        new.insert(12_000, 9);
        let bytes = postcard::to_allocvec(&edits(&base, &new)).unwrap().len();
        assert!(bytes < 40, "{bytes}");
        assert_eq!(joined(&base, &edits(&base, &new)), new);
    }
}
