//! A seeded mutation loop: the driver that does not need libFuzzer.
//!
//! The same seed and number of runs produce the same inputs on every machine. It does not use coverage:
//! breadth comes from the seeds.

use std::time::{Duration, Instant};

use skep_units::Rng;

use crate::seeds::WORDS;
use crate::targets::Target;

/// Maximum length of an input, in bytes: above the limits for a head, so that they are reached.
const INPUT_BYTES_MAX: usize = 20 * 1024;

/// Maximum number of mutations of one input.
const MUTATIONS_MAX: u64 = 6;

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After this time.
    Elapsed(Duration),
    /// After this number of inputs.
    Runs(u64),
}

/// Calls `target` with mutated seeds until the limit is reached; `before` is called with the number of each
/// input and the input. Returns the number of inputs.
pub fn run(
    target: Target,
    seeds: &[Vec<u8>],
    seed: u64,
    until: Until,
    mut before: impl FnMut(u64, &[u8]),
) -> u64 {
    let start = Instant::now();
    let mut runs = 0;
    loop {
        let stop = match until {
            // The clock is not read for each input.
            Until::Elapsed(time) => runs % 256 == 0 && start.elapsed() >= time,
            Until::Runs(runs_max) => runs >= runs_max,
        };
        if stop {
            return runs;
        }
        let input = input(seeds, seed, runs);
        before(runs, &input);
        target(&input);
        runs += 1;
    }
}

/// The input with this number, which depends only on the arguments.
pub fn input(seeds: &[Vec<u8>], seed: u64, number: u64) -> Vec<u8> {
    let mut rng = Rng::new(skep_units::stable_hash(&number.to_le_bytes(), seed));
    let mut input = pick(&mut rng, seeds).clone();
    for _ in 0..=rng.below(MUTATIONS_MAX) {
        mutate(&mut rng, seeds, &mut input);
        input.truncate(INPUT_BYTES_MAX);
    }
    input
}

fn pick<'a, T>(rng: &mut Rng, items: &'a [T]) -> &'a T {
    &items[rng.below(items.len() as u64) as usize]
}

fn mutate(rng: &mut Rng, seeds: &[Vec<u8>], input: &mut Vec<u8>) {
    let at = rng.below(input.len() as u64 + 1) as usize;
    let len = rng.below(17).min((input.len() - at) as u64) as usize;
    match rng.below(9) {
        0 if at < input.len() => input[at] ^= 1 << rng.below(8),
        1 if at < input.len() => input[at] = rng.next_u64() as u8,
        2 => {
            input.drain(at..at + len);
        }
        3 => {
            let copy = input[at..at + len].repeat(1 + rng.below(40) as usize);
            input.splice(at..at, copy);
        }
        4 => input.truncate(at),
        5 => {
            let other = pick(rng, seeds);
            let from = rng.below(other.len() as u64 + 1) as usize;
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        6 => {
            let word = pick(rng, WORDS).repeat(1 + rng.below(3) as usize);
            input.splice(at..at + len, word);
        }
        _ => {
            let word = pick(rng, WORDS).to_vec();
            input.splice(at..at, word);
        }
    }
}
