//! Failures of repeated orders, and faults of this machine, for people: each is logged once, and shown as
//! long as it lasts.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::error::GuardError;
use crate::limits::{REPAIRED_MAX, REPAIRED_MS};

/// The errors of a serving process's orders, by kind of order.
#[derive(Debug, Default)]
pub struct Complaints {
    by_kind: BTreeMap<&'static str, Vec<String>>,
    /// What was repaired, and until when that is shown.
    repaired: Vec<(String, Instant)>,
}

impl Complaints {
    /// Records the result of the last order of this kind.
    pub fn note(&mut self, kind: &'static str, done: &Result<(), GuardError>) {
        // After an aborted start the process itself reports why it ends.
        let error = done.as_ref().err().filter(|error| !matches!(error, GuardError::Aborted));
        self.set(kind, error.into_iter().map(ToString::to_string).collect());
    }

    /// Replaces all errors of orders of this kind, as sentences; new ones are logged.
    pub fn set(&mut self, kind: &'static str, sentences: Vec<String>) {
        let before = self.by_kind.get(kind);
        let is_known = |sentence| before.is_some_and(|before| before.contains(sentence));
        for sentence in sentences.iter().filter(|sentence| !is_known(sentence)) {
            tracing::error!("direct dispatch: {sentence}");
        }
        self.by_kind.insert(kind, sentences);
    }

    /// Records that a fault is being repaired: it is shown for [`REPAIRED_MS`], and not logged again
    /// meanwhile.
    pub fn repaired(&mut self, now: Instant, sentence: String) {
        self.repaired.retain(|(_, until)| now < *until);
        let until = now + Duration::from_millis(REPAIRED_MS);
        match self.repaired.iter_mut().find(|(known, _)| *known == sentence) {
            Some(known) => known.1 = until,
            None => {
                tracing::warn!("direct dispatch: {sentence}");
                if self.repaired.len() == REPAIRED_MAX {
                    self.repaired.remove(0);
                }
                self.repaired.push((sentence, until));
            }
        }
    }

    /// Current faults and recent repairs, without duplicates.
    pub fn sentences(&self, now: Instant) -> Vec<String> {
        let repaired = self.repaired.iter().filter(|(_, until)| now < *until);
        let repaired = repaired.map(|(sentence, _)| sentence);
        let mut sentences: Vec<String> =
            self.by_kind.values().flatten().chain(repaired).cloned().collect();
        sentences.sort_unstable();
        sentences.dedup();
        sentences
    }
}

/// The findings of the last self-check of this machine.
#[derive(Debug, Default)]
pub struct CheckFindings {
    wrong: Vec<String>,
    doubtful: Vec<String>,
}

impl CheckFindings {
    /// Replaces the findings by those of another check: faults, and what it could not determine. New ones are
    /// logged.
    pub fn replace(&mut self, wrong: Vec<String>, doubtful: Vec<String>) {
        for finding in wrong.iter().filter(|it| !self.wrong.contains(it)) {
            tracing::warn!("{finding}");
        }
        for doubt in doubtful.iter().filter(|it| !self.doubtful.contains(it)) {
            tracing::info!("self-check inconclusive: {doubt}");
        }
        (self.wrong, self.doubtful) = (wrong, doubtful);
    }

    /// The faults.
    pub fn wrong(&self) -> &[String] {
        &self.wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_repaired_is_shown_for_a_while() {
        let (mut complaints, begin) = (Complaints::default(), Instant::now());
        let at = |ms| begin + Duration::from_millis(ms);
        for number in 0..=REPAIRED_MAX {
            complaints.repaired(begin, format!("{number:03}"));
        }
        assert_eq!(complaints.sentences(begin).len(), REPAIRED_MAX);
        complaints.repaired(at(1), "001".to_owned());
        assert_eq!(complaints.sentences(at(1)).len(), REPAIRED_MAX, "said once");
        assert_eq!(complaints.sentences(at(REPAIRED_MS)), ["001"]);
        assert!(complaints.sentences(at(REPAIRED_MS + 1)).is_empty());
    }
}
