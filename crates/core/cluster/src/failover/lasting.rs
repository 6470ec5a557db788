//! A condition that takes effect once it has lasted for some time.

use skep_units::Now;

/// A condition that holds at this moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lasting {
    since: Now,
    /// Whether it had lasted long enough at the last check.
    pub(super) is_long: bool,
}

impl Lasting {
    /// Updates the condition from its state `before`; it counts as long after `ms` milliseconds.
    pub(super) fn look(before: Option<Self>, is_so: bool, listened: Now, ms: u64) -> Option<Self> {
        let since = before.map_or(listened, |before| before.since);
        is_so.then(|| Self { since, is_long: listened.since_ms(since) >= ms })
    }
}
