//! The plan of a run.

use std::path::PathBuf;

use crate::url::ProbeUrl;

/// What is measured, how often, and where it is stored.
#[derive(Clone, Debug)]
pub struct ProbePlan {
    /// In the order of measurement within a turn.
    pub urls: Vec<ProbeUrl>,
    /// Name of the series.
    pub label: String,
    /// Time between the beginnings of two turns, in milliseconds.
    pub interval_ms: u64,
    /// Time limit for one sample, in milliseconds.
    pub timeout_ms: u64,
    /// Number of turns after which the run ends.
    pub turns_max: Option<u64>,
    /// Certificates for the verification of servers, in place of those of the machine.
    pub ca: Option<PathBuf>,
    /// File of samples.
    pub out: PathBuf,
}

#[cfg(test)]
impl ProbePlan {
    /// A plan that measures nothing, for tests of the file.
    pub(crate) fn empty(folder: &std::path::Path) -> Self {
        Self {
            urls: Vec::new(),
            label: "test".to_owned(),
            interval_ms: 1,
            timeout_ms: 1,
            turns_max: None,
            ca: None,
            out: folder.join("samples.db"),
        }
    }
}
