//! Faults of the client and of the member during an attempt.

use std::io;

use skep_engine::ExchangeError;
use skep_http::Reject;
use skep_serve::ConnError;

use crate::members::cause::Cause;

/// Why an attempt at a member failed.
#[derive(Debug)]
pub(super) enum AttemptFault {
    /// The client failed or disconnected: the request is over.
    Client(ExchangeError),
    /// The member failed.
    Member(Cause),
}

/// The client disconnected while it waited.
pub(super) fn left() -> ExchangeError {
    let error = io::Error::new(io::ErrorKind::ConnectionAborted, "it left while it waited");
    ExchangeError::Client(ConnError::Io(error))
}

impl From<ExchangeError> for AttemptFault {
    fn from(error: ExchangeError) -> Self {
        Self::Client(error)
    }
}

impl From<Cause> for AttemptFault {
    fn from(cause: Cause) -> Self {
        Self::Member(cause)
    }
}

/// A fault of the member's connection, before its response began.
impl From<ConnError> for Cause {
    fn from(error: ConnError) -> Self {
        match error {
            ConnError::Io(_) => Self::Broken,
            ConnError::Expired(_) => Self::Late,
        }
    }
}

/// A fault of the member's response.
impl From<Reject> for Cause {
    fn from(reject: Reject) -> Self {
        Self::Malformed(reject.reason)
    }
}
