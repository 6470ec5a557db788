//! The last decisions on responses to recent requests, for operators who ask why a response is not
//! cached: recorded when made, not computed again.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use hashbrown::HashMap;
use skep_serve::monotonic_ms;
use skep_wire::cache::SegmentName;

use crate::limits::JUDGEMENTS_MAX;

/// The last decision on a response of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Judgement {
    /// Time of the decision, by the monotonic clock in milliseconds.
    pub(crate) at_ms: u64,
    pub(crate) status: u16,
    pub(crate) is_stored: bool,
    /// The reason, as a token: why it is not stored, or the source of its lifetime.
    pub(crate) why: &'static str,
}

/// Above [`JUDGEMENTS_MAX`] keys the oldest one is removed.
#[derive(Debug, Default)]
pub(crate) struct Judgements(Mutex<Recent>);

#[derive(Debug, Default)]
struct Recent {
    by_name: HashMap<SegmentName, Judgement>,
    /// In order of first record.
    names: VecDeque<SegmentName>,
}

impl Judgements {
    /// Records the decision on a response of the key with this primary name.
    pub(super) fn record(
        &self,
        name: SegmentName,
        status: u16,
        is_stored: bool,
        why: &'static str,
    ) {
        let judgement = Judgement { at_ms: monotonic_ms(), status, is_stored, why };
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.by_name.insert(name, judgement).is_some() {
            return;
        }
        recent.names.push_back(name);
        if recent.names.len() > JUDGEMENTS_MAX
            && let Some(oldest) = recent.names.pop_front()
        {
            recent.by_name.remove(&oldest);
        }
    }

    /// The last decision for a key, if recorded.
    pub(super) fn of(&self, name: &SegmentName) -> Option<Judgement> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).by_name.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_decision_is_told_and_memory_is_bounded() {
        let judgements = Judgements::default();
        let name = |number: usize| {
            let mut name = [0; 16];
            name[..8].copy_from_slice(&number.to_le_bytes());
            SegmentName(name)
        };
        judgements.record(name(0), 200, true, "max-age");
        judgements.record(name(0), 500, false, "status");
        let why = |number| judgements.of(&name(number)).map(|it| (it.status, it.why));
        assert_eq!((why(0), why(1)), (Some((500, "status")), None));
        (1..=JUDGEMENTS_MAX).for_each(|it| judgements.record(name(it), 200, true, "max-age"));
        assert_eq!((why(0), why(JUDGEMENTS_MAX)), (None, Some((200, "max-age"))));
        let recent = judgements.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!((recent.by_name.len(), recent.names.len()), (JUDGEMENTS_MAX, JUDGEMENTS_MAX));
    }
}
