//! What is wrong with orders that are repeated, for people: logged once, and shown as long as it
//! lasts.

use std::collections::BTreeMap;

use crate::error::GuardError;

/// The errors of a serving process's orders, by their kind.
#[derive(Debug, Default)]
pub struct Complaints {
    by_kind: BTreeMap<&'static str, Vec<String>>,
}

impl Complaints {
    /// What became of the last order of this kind.
    pub fn note(&mut self, kind: &'static str, done: &Result<(), GuardError>) {
        // Of an aborted start this process itself says why it ends.
        let error = done.as_ref().err().filter(|error| !matches!(error, GuardError::Aborted));
        self.set(kind, error.into_iter().map(ToString::to_string).collect());
    }

    /// All that is wrong with orders of this kind, in sentences; what was not before is logged.
    pub fn set(&mut self, kind: &'static str, sentences: Vec<String>) {
        let before = self.by_kind.get(kind);
        let is_known = |sentence| before.is_some_and(|before| before.contains(sentence));
        for sentence in sentences.iter().filter(|sentence| !is_known(sentence)) {
            tracing::error!("direct dispatch: {sentence}");
        }
        self.by_kind.insert(kind, sentences);
    }

    /// What is wrong now, each once.
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences: Vec<String> = self.by_kind.values().flatten().cloned().collect();
        sentences.sort_unstable();
        sentences.dedup();
        sentences
    }
}
