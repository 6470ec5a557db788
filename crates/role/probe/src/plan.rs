//! What a run does.

use std::path::PathBuf;

use crate::url::ProbeUrl;

/// What is measured, how often, and where it is stored.
#[derive(Clone, Debug)]
pub struct ProbePlan {
    /// In the order of each turn.
    pub urls: Vec<ProbeUrl>,
    /// Name of the series.
    pub label: String,
    /// From the beginning of one turn to that of the next.
    pub interval_ms: u64,
    /// Longest time for one sample.
    pub timeout_ms: u64,
    /// After how many turns it ends.
    pub turns_max: Option<u64>,
    /// Certificates to verify servers by, in place of the machine's.
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
