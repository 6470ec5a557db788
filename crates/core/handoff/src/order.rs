//! Orders to netguard: what came of one, and its repetition.

use skep_units::Now;

use crate::limits::ORDER_RETRY_MS;

/// What came of an order. Each order of an action gets one result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderResult {
    Done,
    /// Not done, and will not be.
    Refused,
    /// Of a thaw: not done, since the flow is redirected.
    Redirected,
    /// The connection to netguard has ended before an answer came: the order was executed or not.
    Lost,
}

/// An order that is repeated until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Its result is awaited.
    Given,
    /// It was lost; the time is when it is given again.
    Lost(Now),
}

impl Order {
    pub(crate) fn lost(now: Now) -> Self {
        Self::Lost(now.plus_ms(ORDER_RETRY_MS))
    }

    pub(crate) fn retry_at(self) -> Option<Now> {
        match self {
            Self::Given => None,
            Self::Lost(retry_at) => Some(retry_at),
        }
    }
}
