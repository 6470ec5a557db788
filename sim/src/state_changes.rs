//! The changes of machines' states after an event, for the trace of a seed.

use std::collections::BTreeMap;
use std::fmt::Debug;

/// The state of a machine as text: some fields in a fixed order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateSummary(Vec<(&'static str, String)>);

impl StateSummary {
    /// Adds a field.
    #[must_use]
    pub fn with(mut self, field: &'static str, value: impl Debug) -> Self {
        self.0.push((field, format!("{value:?}")));
        self
    }
}

/// The states that were printed last, by machine.
#[derive(Clone, Debug, Default)]
pub struct StateChanges {
    told: BTreeMap<String, StateSummary>,
}

impl StateChanges {
    /// Prints, for `at_ms`, what has changed in these machines since they were last printed.
    pub fn tell(&mut self, at_ms: u64, machines: impl IntoIterator<Item = (String, StateSummary)>) {
        for (machine, state) in machines {
            if let Some(changes) = self.told(&machine, state) {
                eprintln!("{at_ms:>6} {machine}: {changes}");
            }
        }
    }

    /// The changes of `machine` since its last summary, as `field: before -> now`; `None` if there are none.
    fn told(&mut self, machine: &str, now: StateSummary) -> Option<String> {
        let before = self.told.get(machine);
        if before == Some(&now) {
            return None;
        }
        let fields = now.0.iter().enumerate().filter_map(|(at, (field, value))| {
            match before.and_then(|before| before.0.get(at)) {
                Some((_, before)) if before == value => None,
                Some((_, before)) => Some(format!("{field}: {before} -> {value}")),
                None => Some(format!("{field}: {value}")),
            }
        });
        let changes = fields.collect::<Vec<_>>().join(", ");
        self.told.insert(machine.to_owned(), now);
        Some(changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_changed_is_told() {
        let mut changes = StateChanges::default();
        let state = |epoch| StateSummary::default().with("stage", "active").with("epoch", epoch);
        let told = [("d0", 1), ("d0", 1), ("d0", 9), ("d1", 9), ("d0", 9)]
            .map(|(machine, epoch)| changes.told(machine, state(epoch)));
        let all = |epoch: u64| Some(format!("stage: \"active\", epoch: {epoch}"));
        assert_eq!(told, [all(1), None, Some("epoch: 1 -> 9".to_owned()), all(9), None]);
    }
}
