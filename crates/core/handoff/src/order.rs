//! The result of an order to netguard.

/// Each order of an action has exactly one result: a process that has lost netguard ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderResult {
    Done,
    /// Not executed, and will not be.
    Refused,
}
