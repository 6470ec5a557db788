//! Tests of the rig: every target accepts its seeds and some mutations, and a planted bug is found again by
//! its number.

use std::panic::{AssertUnwindSafe, catch_unwind};

use skep_fuzz::drive::{self, Until};
use skep_fuzz::{seeds, targets};

const SEED: u64 = 7;

#[test]
fn targets_take_their_seeds_and_mutations() {
    for (name, target) in targets::ALL {
        let seeds = seeds::of(name);
        assert!(seeds.len() > 50, "{name} has few seeds");
        seeds.iter().for_each(|seed| target(seed));
        assert_eq!(drive::run(*target, &seeds, SEED, Until::Runs(5_000), |_, _| ()), 5_000);
    }
}

#[test]
fn a_planted_bug_is_found_and_made_again() {
    fn buggy(input: &[u8]) {
        let twice = input.windows(9).filter(|w| *w == b"%2e%2e%2e").count() > 0;
        assert!(!twice, "planted");
    }
    let seeds = seeds::of("path");
    let mut last = 0;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        drive::run(buggy, &seeds, SEED, Until::Runs(1_000_000), |number, _| last = number)
    }));
    assert!(outcome.is_err(), "a million inputs did not find the planted bug");
    let again = drive::input(&seeds, SEED, last);
    assert!(catch_unwind(|| buggy(&again)).is_err(), "the same number made another input");
}
