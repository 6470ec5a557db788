//! What became of connections that were to be handed off, or why they were closed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Counts by outcome, as nodes name them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Outcomes(BTreeMap<String, u64>);

const MOVED: &str = "moved";

impl Outcomes {
    pub(super) fn add(&mut self, outcome: String, count: u64) {
        *self.0.entry(outcome).or_default() += count;
    }

    /// Connections that were handed off.
    pub(super) fn moved(&self) -> u64 {
        self.0.get(MOVED).copied().unwrap_or(0)
    }

    /// Those that were to be, and were answered by the node that had them, or closed; by cause.
    pub(super) fn kept(&self) -> impl Iterator<Item = (&String, &u64)> {
        self.0.iter().filter(|(outcome, _)| *outcome != MOVED)
    }

    pub(super) fn stayed(&self) -> u64 {
        self.kept().map(|(_, count)| count).sum()
    }

    /// The causes in words.
    pub(super) fn causes(&self) -> String {
        in_words(self.kept())
    }

    /// All in words.
    pub(super) fn words(&self) -> String {
        in_words(self.0.iter())
    }

    /// What has come since; without those of which there are none.
    pub(super) fn since(mut self, before: &Self) -> Self {
        for (outcome, count) in &mut self.0 {
            *count = count.saturating_sub(before.0.get(outcome).copied().unwrap_or(0));
        }
        self.0.retain(|_, count| *count > 0);
        self
    }
}

fn in_words<'a>(counts: impl Iterator<Item = (&'a String, &'a u64)>) -> String {
    let words = counts.map(|(outcome, count)| format!("{count} {outcome}"));
    words.collect::<Vec<_>>().join(", ")
}
