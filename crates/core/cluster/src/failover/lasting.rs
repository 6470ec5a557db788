//! A condition that counts for more once it has lasted.

use skep_units::Now;

/// A condition that holds at this moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lasting {
    since: Now,
    /// Whether it has held for as long as it must, at the last look.
    pub(super) is_long: bool,
}

impl Lasting {
    /// A look at a condition, which was like this `before`; it lasts after `ms` milliseconds.
    pub(super) fn look(before: Option<Self>, is_so: bool, listened: Now, ms: u64) -> Option<Self> {
        let since = before.map_or(listened, |before| before.since);
        is_so.then(|| Self { since, is_long: listened.since_ms(since) >= ms })
    }
}
