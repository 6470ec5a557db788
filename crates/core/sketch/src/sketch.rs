//! The registers of a window at one moment: merging, estimation, and a text form for transmission.

use std::f64::consts::LN_2;

use crate::limits::{RANK_MAX, REGISTERS};
use crate::observation::Observation;

/// A rank is one character, as in base64url (RFC 4648 5).
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Characters of a register in sparse form: two for its number, one for its rank.
const SPARSE: usize = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketch {
    ranks: Box<[u8; REGISTERS]>,
}

impl Default for Sketch {
    fn default() -> Self {
        Self { ranks: Box::new([0; REGISTERS]) }
    }
}

impl Sketch {
    /// A sketch with these ranks, in the order of registers; excess ranks are ignored.
    pub fn of_ranks(ranks: impl Iterator<Item = u8>) -> Self {
        let mut sketch = Self::default();
        sketch.ranks.iter_mut().zip(ranks).for_each(|(own, rank)| *own = rank.min(RANK_MAX));
        sketch
    }

    /// Adds an observation.
    pub fn add(&mut self, seen: Observation) {
        self.raise(seen.register, seen.rank);
    }

    /// Merges `other` into this sketch.
    pub fn merge(&mut self, other: &Self) {
        self.ranks.iter_mut().zip(&*other.ranks).for_each(|(own, rank)| *own = (*own).max(*rank));
    }

    /// The estimated number of distinct observations: the improved raw estimator of Ertl, "New
    /// cardinality estimation algorithms for HyperLogLog sketches" (2017), algorithm 6, which needs
    /// no correction tables for small numbers.
    pub fn estimate(&self) -> u64 {
        let registers = REGISTERS as f64;
        let mut counts = [0_u32; RANK_MAX as usize + 1];
        self.ranks.iter().for_each(|rank| counts[usize::from(*rank)] += 1);
        let count = |rank: u8| f64::from(counts[usize::from(rank)]);
        let mut z = registers * tau(1.0 - count(RANK_MAX) / registers);
        for rank in (1..RANK_MAX).rev() {
            z = 0.5 * (z + count(rank));
        }
        z += registers * sigma(count(0) / registers);
        (registers * registers / (2.0 * LN_2 * z)).round() as u64
    }

    /// Text of at most [`REGISTERS`] characters: all ranks, or only those above 0 if they are few.
    pub fn to_text(&self) -> String {
        let character = |value: usize| char::from(ALPHABET[value % ALPHABET.len()]);
        let filled = self.ranks.iter().enumerate().filter(|(_, rank)| **rank > 0);
        if filled.clone().count() * SPARSE >= REGISTERS {
            return self.ranks.iter().map(|rank| character(usize::from(*rank))).collect();
        }
        let digits = |(register, rank): (usize, &u8)| {
            [register / ALPHABET.len(), register, usize::from(*rank)].map(character)
        };
        filled.flat_map(digits).collect()
    }

    /// Parses the result of [`Sketch::to_text`]; `None` if it is invalid.
    pub fn from_text(text: &str) -> Option<Self> {
        let value = |character: &u8| ALPHABET.iter().position(|it| it == character);
        let rank = |value: usize| u8::try_from(value).ok().filter(|rank| *rank <= RANK_MAX);
        let values: Vec<usize> = text.bytes().map(|it| value(&it)).collect::<Option<_>>()?;
        let mut sketch = Self::default();
        if values.len() == REGISTERS {
            for (register, value) in values.into_iter().enumerate() {
                sketch.raise(register, rank(value)?);
            }
            return Some(sketch);
        }
        let (registers, rest) = values.as_chunks::<SPARSE>();
        for [high, low, value] in registers {
            let register = high * ALPHABET.len() + low;
            (register < REGISTERS).then(|| rank(*value).map(|it| sketch.raise(register, it)))??;
        }
        (rest.is_empty() && values.len() < REGISTERS).then_some(sketch)
    }

    fn raise(&mut self, register: usize, rank: u8) {
        self.ranks[register] = self.ranks[register].max(rank);
    }
}

/// x + the sum of x^(2^k) 2^(k-1) over k >= 1.
fn sigma(mut x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

/// (1 - x - the sum of (1 - x^(2^-k))^2 2^-k over k >= 1) / 3.
fn tau(mut x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use proptest::prelude::*;
    use skep_units::Rng;

    use super::*;

    fn of(hashes: &[u64]) -> Sketch {
        let mut sketch = Sketch::default();
        hashes.iter().for_each(|hash| sketch.add(Observation::of(*hash)));
        sketch
    }

    fn hashes(seed: u64, count: usize) -> Vec<u64> {
        let mut rng = Rng::new(seed);
        (0..count).map(|_| rng.next_u64()).collect()
    }

    /// The standard error is 2.3 %; of a hundred seeds at most one may exceed three times that, and
    /// none four times.
    #[test]
    fn estimates_are_within_their_error() {
        for (count, one_percent) in [(0, 0.0), (1, 0.01), (10, 0.1), (1_000, 10.0), (100_000, 1e3)]
        {
            let errors = (0..100).map(|seed| {
                (of(&hashes(seed, count)).estimate() as f64 - count as f64).abs() / one_percent
            });
            let errors: Vec<f64> = errors.map(|it| if it.is_nan() { 0.0 } else { it }).collect();
            // Among ten, two that share a register count as one: 10 %.
            let bounds = if count < 100 { (10.0, 10.0) } else { (6.9, 9.2) };
            let beyond = errors.iter().filter(|error| **error > bounds.0).count();
            let worst = errors.iter().copied().fold(0.0, f64::max);
            assert!(beyond <= 1 && worst <= bounds.1, "{count}: {beyond} beyond, {worst} % worst");
        }
    }

    #[test]
    fn text_of_another_shape_is_no_sketch() {
        for text in ["A", "AAAA", "AA!", "gAB", "AA_", "é", &"A".repeat(REGISTERS + 1)] {
            assert_eq!(Sketch::from_text(text), None, "{text}");
        }
        assert_eq!(Sketch::from_text(&"_".repeat(REGISTERS)), None);
        assert_eq!(Sketch::from_text("").unwrap(), Sketch::default());
    }

    proptest! {
        #[test]
        fn a_merge_is_the_union(seed: u64, count in 0..3_000_usize, a in 0..3_000_usize, b in 0..3_000_usize) {
            let all = hashes(seed, count);
            let (a, b) = (a.min(count), b.min(count));
            // They overlap, touch, or have a gap.
            let (first, second) = (&all[..a], &all[b..]);
            let mut merged = of(first);
            merged.merge(&of(second));
            prop_assert_eq!(merged, of(&[first, second].concat()));
        }

        #[test]
        fn text_brings_back_the_sketch(seed: u64, count in 0..5_000_usize) {
            let sketch = of(&hashes(seed, count));
            let text = sketch.to_text();
            prop_assert!(text.len() <= REGISTERS);
            prop_assert_eq!(Sketch::from_text(&text), Some(sketch));
        }

        #[test]
        fn no_text_panics(text in "[A-Za-z0-9_-]{0,40}|.{0,20}") {
            if let Some(sketch) = Sketch::from_text(&text) {
                prop_assert!(sketch.estimate() <= 100_000);
            }
        }
    }
}
