//! Why an exchange with another node failed.

use std::io;

use skep_serve::ConnError;
use skep_upstream::UpstreamError;
use skep_wire::cache::{FrameError, HelloError, PeerRefusal};
use skep_wire::message::NotAMessage;

use crate::stream::counts::{StreamCount, StreamCounts};
use crate::stream::greet::GreetError;

/// Why an exchange with another node failed.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// It says no.
    #[error("the node refuses: {0:?}")]
    Refused(PeerRefusal),
    /// There is no connection to it.
    #[error(transparent)]
    Connect(#[from] UpstreamError),
    /// It is not who it should be, or takes this one for somebody else.
    #[error(transparent)]
    Hello(#[from] HelloError),
    /// It did not go on in time.
    #[error("the node timed out")]
    Late,
    /// It says that it is there, but its source gives nothing.
    #[error("the node's source timed out")]
    SourceLate,
    /// It closed the connection: the source of the bytes has failed, or it went.
    #[error("the node closed the connection")]
    Closed,
    /// What the system says.
    #[error("the connection to the node failed: {0}")]
    Io(io::Error),
    /// This node has no memory for what came.
    #[error("what the node sent could not be kept: {0}")]
    NotKept(io::Error),
    /// What came is no frame, or not the bytes that were sent.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// What came is no message.
    #[error(transparent)]
    NotAMessage(#[from] NotAMessage),
    /// What came is no answer to what was asked.
    #[error("unexpected reply")]
    Unexpected,
}

impl PeerError {
    /// Whether it says something of the other node. If not, this one has no
    /// connection or no memory to spare: it may have in a moment.
    pub fn blames_node(&self) -> bool {
        match self {
            Self::Connect(error) => error.blames_node(),
            Self::NotKept(_) => false,
            _ => true,
        }
    }

    /// Whether a connection that was used before may have failed only because
    /// it was at its end: then a new one deserves a try.
    pub(super) fn is_of_connection(&self) -> bool {
        matches!(self, Self::Closed | Self::Io(_))
    }

    /// Itself, counted if it is the other's fault.
    pub(super) fn counted(self, counts: &StreamCounts) -> Self {
        if self.is_garble() {
            counts.count(StreamCount::Garbled);
        }
        self
    }

    /// Whether bytes came that nobody should send.
    fn is_garble(&self) -> bool {
        matches!(self, Self::Frame(_) | Self::NotAMessage(_) | Self::Unexpected)
    }
}

impl From<ConnError> for PeerError {
    fn from(error: ConnError) -> Self {
        match error {
            ConnError::Expired(_) => Self::Late,
            ConnError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => Self::Closed,
            ConnError::Io(error) => Self::Io(error),
        }
    }
}

impl From<GreetError> for PeerError {
    fn from(error: GreetError) -> Self {
        match error {
            GreetError::Hello(error) => Self::Hello(error),
            GreetError::Late => Self::Late,
            GreetError::Io(error) => ConnError::Io(error).into(),
        }
    }
}
