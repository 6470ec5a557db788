//! The parameters of a run.

use std::path::PathBuf;
use std::time::Duration;

/// What to test, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The length of the run.
    pub(crate) seconds: Duration,
    /// Seed of the first case.
    pub(crate) first: u64,
    /// The Skep binary.
    pub(crate) skep: PathBuf,
    /// Number of kinds of findings after which the run ends.
    pub(crate) findings_max: usize,
    /// The number of the active bug, in a binary that contains the known bugs; 0: none.
    pub(crate) mutant: usize,
    /// Whether a case for each row of tolerated differences is stored in the corpus.
    pub(crate) keeps: bool,
}

/// The environment variable that selects a bug in the copy.
pub(crate) const SWITCH: &str = "SKEP_MUTANT";
