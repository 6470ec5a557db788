//! Runs many seeds, or repeats one.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// The totals of one seed, or of many.
pub trait SeedTotals: Default + Display + Send {
    /// Adds the totals of other seeds.
    fn add(&mut self, other: &Self);
}

/// A simulation, identified by the command that runs it: `cargo test -p PACKAGE --test TEST`.
#[derive(Clone, Copy, Debug)]
pub struct Simulation {
    pub package: &'static str,
    pub test: &'static str,
    /// Number of seeds that `cargo test` runs.
    pub seeds: u64,
}

impl Simulation {
    /// Runs each seed with `run(seed, tells)`, whose error is the violated invariant, and returns the totals.
    /// `SKEP_SIM_SEED=n` runs one seed, which prints its events, and returns nothing; `SKEP_SIM_SEEDS=n` runs
    /// that many seeds.
    ///
    /// # Panics
    /// If an invariant is violated, with the command that repeats the seed.
    pub fn run<T: SeedTotals>(
        &self,
        run: impl Fn(u64, bool) -> Result<T, String> + Sync,
    ) -> Option<T> {
        if let Some(seed) = number("SKEP_SIM_SEED") {
            match run(seed, true) {
                Ok(totals) => eprintln!("{totals}"),
                Err(broken) => panic!("seed {seed}: {broken}"),
            }
            return None;
        }
        let totals = self.run_all(number("SKEP_SIM_SEEDS").unwrap_or(self.seeds), &run);
        let totals = totals.unwrap_or_else(|broken| panic!("{broken}"));
        eprintln!("{totals}");
        Some(totals)
    }

    /// Runs `seeds` seeds on all cores.
    fn run_all<T: SeedTotals>(
        &self,
        seeds: u64,
        run: &(impl Fn(u64, bool) -> Result<T, String> + Sync),
    ) -> Result<T, String> {
        let threads = thread::available_parallelism().map_or(1, |count| count.get() as u64);
        thread::scope(|scope| {
            let run =
                |first: u64| move || self.run_some((first..seeds).step_by(threads as usize), run);
            let threads: Vec<_> = (0..threads).map(|first| scope.spawn(run(first))).collect();
            let mut totals = T::default();
            for thread in threads {
                #[expect(clippy::expect_used, reason = "no seed's panic gets there")]
                totals.add(&thread.join().expect("its panics are caught")?);
            }
            Ok(totals)
        })
    }

    /// Runs seeds up to the first that violates an invariant.
    fn run_some<T: SeedTotals>(
        &self,
        seeds: impl Iterator<Item = u64>,
        run: &impl Fn(u64, bool) -> Result<T, String>,
    ) -> Result<T, String> {
        let mut totals = T::default();
        for seed in seeds {
            let ended = catch_unwind(AssertUnwindSafe(|| run(seed, false)));
            let broken = match ended {
                Ok(Ok(of_seed)) => {
                    totals.add(&of_seed);
                    continue;
                }
                Ok(Err(broken)) => broken,
                Err(_) => "panic, see above".to_owned(),
            };
            let Self { package, test, .. } = self;
            return Err(format!(
                "seed {seed}: {broken}\nagain, with its story:\n  \
                 SKEP_SIM_SEED={seed} cargo test -p {package} --test {test} -- --nocapture"
            ));
        }
        Ok(totals)
    }
}

fn number(variable: &str) -> Option<u64> {
    #[expect(clippy::expect_used, reason = "who typed it wants to know")]
    std::env::var(variable).ok().map(|value| value.parse().expect("a number"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fmt;

    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct Sum(u64);

    impl SeedTotals for Sum {
        fn add(&mut self, other: &Self) {
            self.0 += other.0;
        }
    }

    impl fmt::Display for Sum {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}", self.0)
        }
    }

    const SIMULATION: Simulation = Simulation { package: "p", test: "t", seeds: 10 };

    #[test]
    fn every_seed_is_run_once() {
        for seeds in [0, 1, 10, 101] {
            let sum = SIMULATION.run_all(seeds, &|seed, _| Ok(Sum(seed + 1))).unwrap();
            assert_eq!(sum, Sum((1..=seeds).sum()));
        }
    }

    #[test]
    fn a_seed_that_breaks_a_promise_is_named_with_its_command() {
        let broken = SIMULATION.run_all(10, &|seed, _| match seed {
            7 => Err("broken".to_owned()),
            _ => Ok(Sum(1)),
        });
        let said = broken.unwrap_err();
        assert!(said.starts_with("seed 7: broken\n"), "{said}");
        assert!(said.contains("SKEP_SIM_SEED=7 cargo test -p p --test t -- "), "{said}");
        let panics = SIMULATION.run_all(3, &|seed, _| -> Result<Sum, String> {
            assert!(seed != 2, "seed 2 panics");
            Ok(Sum(1))
        });
        assert!(panics.unwrap_err().starts_with("seed 2: panic"));
    }
}
