//! What came of an order to netguard.

/// Each order of an action gets one result: a process that has lost netguard ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderResult {
    Done,
    /// Not done, and will not be.
    Refused,
}
