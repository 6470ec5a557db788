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
    /// The node refuses the request.
    #[error("the node refuses: {0:?}")]
    Refused(PeerRefusal),
    /// There is no connection to the node.
    #[error(transparent)]
    Connect(#[from] UpstreamError),
    /// The identity of one side is not as expected.
    #[error(transparent)]
    Hello(#[from] HelloError),
    /// The node timed out.
    #[error("the node timed out")]
    Late,
    /// The node is alive, but its source delivers nothing.
    #[error("the node's source timed out")]
    SourceLate,
    /// The node closed the connection: its source failed, or it shut down.
    #[error("the node closed the connection")]
    Closed,
    /// The system's error.
    #[error("the connection to the node failed: {0}")]
    Io(io::Error),
    /// This node has no memory for the received bytes.
    #[error("what the node sent could not be kept: {0}")]
    NotKept(io::Error),
    /// The bytes are not a valid frame, or were altered in transit.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The bytes are not a valid message.
    #[error(transparent)]
    NotAMessage(#[from] NotAMessage),
    /// The reply does not answer the request.
    #[error("unexpected reply")]
    Unexpected,
}

impl PeerError {
    /// Whether the other node is at fault. If not, this node lacks a connection or memory, and may have one
    /// in a moment.
    pub fn blames_node(&self) -> bool {
        match self {
            Self::Connect(error) => error.blames_node(),
            Self::NotKept(_) => false,
            _ => true,
        }
    }

    /// Whether a reused connection may have failed only because the other node closed it: the request is then
    /// retried on a new one.
    pub(super) fn is_of_connection(&self) -> bool {
        matches!(self, Self::Closed | Self::Io(_))
    }

    /// Returns the error, counted if the other node is at fault.
    pub(super) fn counted(self, counts: &StreamCounts) -> Self {
        if self.is_garble() {
            counts.count(StreamCount::Garbled);
        }
        self
    }

    /// Whether invalid bytes were received.
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
