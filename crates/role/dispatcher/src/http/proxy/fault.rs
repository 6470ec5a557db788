//! What goes wrong between us and a node.

use skep_cluster::Failure;
use skep_engine::ExchangeError;
use skep_http::Reject;
use skep_serve::ConnError;

/// Why an attempt at a node did not end well.
#[derive(Debug)]
pub(super) enum AttemptFault {
    /// The client is to blame, or gone: the request is over.
    Client(ExchangeError),
    /// The node is to blame.
    Node(NodeFault),
}

/// What a node did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeFault {
    /// The connection broke or ended before the response was complete.
    Broken,
    /// No answer, or no more of it, in time.
    Late,
    /// The answer was not HTTP as we accept it.
    Malformed(&'static str),
}

impl NodeFault {
    /// The status for a client that was told nothing yet.
    pub(super) fn status(self) -> u16 {
        match self {
            Self::Broken | Self::Malformed(_) => 502,
            Self::Late => 504,
        }
    }

    /// What it says about the health of a node that had the whole request and
    /// said nothing. An answer that is late may wait for an origin or for an
    /// application, one that is odd may be theirs: who chooses what is asked for
    /// would choose which nodes are out. Whether a node is slow or talks nonsense in
    /// itself, checks find.
    pub(super) fn failure(self) -> Option<Failure> {
        match self {
            Self::Broken => Some(Failure::Reset),
            Self::Late | Self::Malformed(_) => None,
        }
    }

    /// The reason in words, for a reply that was cut short.
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

/// Of the node's connection.
impl From<ConnError> for NodeFault {
    fn from(error: ConnError) -> Self {
        match error {
            ConnError::Io(_) => Self::Broken,
            ConnError::Expired(_) => Self::Late,
        }
    }
}

/// Of the node's response.
impl From<Reject> for NodeFault {
    fn from(reject: Reject) -> Self {
        Self::Malformed(reject.reason)
    }
}
