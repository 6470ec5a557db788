//! What a run is told.

use std::path::PathBuf;
use std::time::Duration;

/// What to look at, and how long.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// How long.
    pub(crate) seconds: Duration,
    /// Seed of the first case.
    pub(crate) first: u64,
    /// The binary.
    pub(crate) skep: PathBuf,
    /// Kinds of findings after which it ends.
    pub(crate) findings_max: usize,
    /// The known bug that is put in, in a binary that has them; 0: none.
    pub(crate) mutant: usize,
    /// Whether a case of each row of tolerated differences goes to the corpus.
    pub(crate) keeps: bool,
}

/// What the copy's environment says.
pub(crate) const SWITCH: &str = "SKEP_MUTANT";
