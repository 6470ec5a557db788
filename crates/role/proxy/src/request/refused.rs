//! The outcome of a request without a member's response.

use skep_engine::ExchangeError;

/// A request was not answered with a member's response.
#[derive(Debug)]
pub enum ForwardError {
    /// The client failed, or its reply cannot be completed.
    Exchange(ExchangeError),
    /// No member responded. No reply was begun.
    Refused(Refused),
}

/// The reply to a client if no member responded.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused {
    pub status: u16,
    /// Complete field lines, with the time after which to retry.
    pub lines: Box<[u8]>,
    pub scope: RefusalScope,
    /// The reason as a token for Cache-Status, if the status leaves it open.
    pub detail: Option<&'static str>,
}

/// The requests that would have been refused as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalScope {
    /// All.
    All,
    /// Those of the same session, whose member has no room or did not respond.
    Session,
    /// None; this one would have to wait for the member of its session (`Tap::may_wait_for_session`).
    Wait,
}

impl Refused {
    pub(super) fn plain(status: u16) -> Self {
        Self { status, lines: Box::default(), scope: RefusalScope::All, detail: None }
    }
}

impl From<ExchangeError> for ForwardError {
    fn from(error: ExchangeError) -> Self {
        Self::Exchange(error)
    }
}
