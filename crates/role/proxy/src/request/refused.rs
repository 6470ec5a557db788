//! What became of a request that no member answered.

use skep_engine::ExchangeError;

/// A request was not answered with a member's response.
#[derive(Debug)]
pub enum ForwardError {
    /// The client failed, or its reply can't be completed.
    Exchange(ExchangeError),
    /// No member answered. No reply was begun.
    Refused(Refused),
}

/// The reply to a client whose request no member answered.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused {
    pub status: u16,
    /// Whole field lines: when the client may come back.
    pub lines: Box<[u8]>,
    pub scope: RefusalScope,
    /// A token, for the field that tells clients of the cache: why, where the status leaves that open.
    pub detail: Option<&'static str>,
}

/// Which requests would have been refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalScope {
    /// Any.
    All,
    /// Those of the same session, whose member has no room or has not answered.
    Session,
    /// None, but this one would have to wait for the member of its session
    /// (`Tap::may_wait_for_session`).
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
