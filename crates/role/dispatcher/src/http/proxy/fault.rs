//! The faults between this dispatcher and a node.

use skep_cluster::Failure;
use skep_engine::ExchangeError;
use skep_http::Reject;
use skep_serve::ConnError;

/// Why an attempt at a node failed.
#[derive(Debug)]
pub(super) enum AttemptFault {
    /// The client failed or closed: the request is over.
    Client(ExchangeError),
    /// The node failed.
    Node(NodeFault),
}

/// A fault of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeFault {
    /// The connection broke or ended before the response was complete.
    Broken,
    /// No answer, or no more of it, in time.
    Late,
    /// The answer was not HTTP that the parser accepts.
    Malformed(&'static str),
}

impl NodeFault {
    /// The status for a client to which no reply was begun.
    pub(super) fn status(self) -> u16 {
        match self {
            Self::Broken | Self::Malformed(_) => 502,
            Self::Late => 504,
        }
    }

    /// What the fault means for the health of a node that had the whole request and sent nothing. A
    /// late answer may wait for an origin or for an application, an invalid one may be theirs:
    /// otherwise clients could take nodes out by their choice of requests. Checks find nodes that
    /// are slow or invalid in themselves.
    pub(super) fn failure(self) -> Option<Failure> {
        match self {
            Self::Broken => Some(Failure::Reset),
            Self::Late | Self::Malformed(_) => None,
        }
    }

    /// The reason in words, for a truncated reply.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Broken => "the node's connection broke",
            Self::Late => "the node stalled",
            Self::Malformed(reason) => reason,
        }
    }
}

impl From<ExchangeError> for AttemptFault {
    fn from(error: ExchangeError) -> Self {
        Self::Client(error)
    }
}

impl From<NodeFault> for AttemptFault {
    fn from(fault: NodeFault) -> Self {
        Self::Node(fault)
    }
}

/// A fault of the node's connection.
impl From<ConnError> for NodeFault {
    fn from(error: ConnError) -> Self {
        match error {
            ConnError::Io(_) => Self::Broken,
            ConnError::Expired(_) => Self::Late,
        }
    }
}

/// A fault of the node's response.
impl From<Reject> for NodeFault {
    fn from(reject: Reject) -> Self {
        Self::Malformed(reject.reason)
    }
}
