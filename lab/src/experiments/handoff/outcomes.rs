//! Outcomes of connections that were to be handed off, or reasons for closing connections.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Counts by outcome, with the names that nodes use.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Outcomes(BTreeMap<String, u64>);

const MOVED: &str = "moved";

impl Outcomes {
    pub(super) fn add(&mut self, outcome: String, count: u64) {
        *self.0.entry(outcome).or_default() += count;
    }

    /// The number of connections that were handed off.
    pub(super) fn moved(&self) -> u64 {
        self.0.get(MOVED).copied().unwrap_or(0)
    }

    /// Connections that were to be handed off but were answered by the node that had them, or closed; by
    /// cause.
    pub(super) fn kept(&self) -> impl Iterator<Item = (&String, &u64)> {
        self.0.iter().filter(|(outcome, _)| *outcome != MOVED)
    }

    pub(super) fn stayed(&self) -> u64 {
        self.kept().map(|(_, count)| count).sum()
    }

    /// The causes as text.
    pub(super) fn causes(&self) -> String {
        in_words(self.kept())
    }

    /// All outcomes as text.
    pub(super) fn words(&self) -> String {
        in_words(self.0.iter())
    }

    /// The counts since `before`, without those that are 0.
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
