//! Why a request did not get a complete reply from a member.

use std::fmt;

use skep_cluster::Failure;
use skep_upstream::UpstreamError;

use crate::members::protocol::GatewayFault;

/// Determines the client's status: see [`Cause::status`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It refused the connection.
    Refused,
    /// There is no route to it.
    Unreachable,
    /// It did not accept a connection in time.
    ConnectTimeout,
    /// Any other error of connect(2).
    ConnectFailed,
    /// The connection broke or ended before the head of the response.
    Broken,
    /// The same within the body: clients receive a truncated reply.
    CutShort,
    /// It sent no response head in time.
    Late,
    /// It took no more of the request, or sent no more of the response, in time.
    Stalled,
    /// The response was not valid HTTP.
    Malformed(&'static str),
    /// The codec of the member's protocol rejected the response.
    Gateway(GatewayFault),
    /// The member reported that it has no room for the request.
    Overloaded,
    /// This process may not connect to its Unix socket.
    Denied,
    /// Its Unix socket does not exist.
    NoSocket,
    /// No CPONG was received in time on a new connection.
    NoPong,
}

/// Names of the causes in metrics.
pub const CAUSES: [&str; 13] = [
    "refused",
    "unreachable",
    "connect_timeout",
    "connect_failed",
    "broken",
    "cut_short",
    "late",
    "stalled",
    "malformed",
    "overloaded",
    "denied",
    "no_socket",
    "no_pong",
];

impl Cause {
    pub(crate) fn of_connect(error: &UpstreamError) -> Self {
        match error {
            UpstreamError::Refused => Self::Refused,
            UpstreamError::Unreachable => Self::Unreachable,
            UpstreamError::ConnectTimeout => Self::ConnectTimeout,
            UpstreamError::Denied => Self::Denied,
            UpstreamError::NoSocket => Self::NoSocket,
            UpstreamError::Io(_) | UpstreamError::PoolFull | UpstreamError::Exhausted(_) => {
                Self::ConnectFailed
            }
        }
    }

    /// Its index in [`CAUSES`].
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Refused => 0,
            Self::Unreachable => 1,
            Self::ConnectTimeout => 2,
            Self::ConnectFailed => 3,
            Self::Broken => 4,
            Self::CutShort => 5,
            Self::Late => 6,
            Self::Stalled => 7,
            Self::Malformed(_) | Self::Gateway(_) => 8,
            Self::Overloaded => 9,
            Self::Denied => 10,
            Self::NoSocket => 11,
            Self::NoPong => 12,
        }
    }

    /// The same fault of the connection, if it occurs after the head of the response.
    pub(crate) fn inside_reply(self) -> Self {
        match self {
            Self::Broken => Self::CutShort,
            Self::Late => Self::Stalled,
            cause => cause,
        }
    }

    /// The status for a client to which no reply has begun.
    pub(crate) fn status(self) -> u16 {
        match self {
            Self::Refused
            | Self::Unreachable
            | Self::ConnectTimeout
            | Self::ConnectFailed
            | Self::Overloaded
            | Self::Denied
            | Self::NoSocket
            | Self::NoPong => 503,
            Self::Broken | Self::CutShort | Self::Malformed(_) | Self::Gateway(_) => 502,
            Self::Late | Self::Stalled => 504,
        }
    }

    /// The effect of the fault on the health of a member that had received the whole request and
    /// sent nothing. A late response may wait for an origin or an application, and an invalid one
    /// may be theirs: if these counted, clients could take members down by their choice of
    /// requests. Checks detect members that are themselves slow or invalid.
    pub(crate) fn failure(self) -> Option<Failure> {
        match self {
            Self::Broken => Some(Failure::Reset),
            _ => None,
        }
    }

    /// A description for a reply that was truncated.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Refused => "it refused the connection",
            Self::Unreachable => "it is unreachable",
            Self::ConnectTimeout => "no connection in time",
            Self::ConnectFailed => "the connection failed",
            Self::Broken => "the connection ended before a response",
            Self::CutShort => "the connection ended inside the response",
            Self::Late => "no response in time",
            Self::Stalled => "it stalled",
            Self::Malformed(reason) => reason,
            Self::Gateway(_) => "its reply broke the rules of its protocol",
            Self::Overloaded => "it has no room for the request",
            Self::Denied => "permission denied on its socket",
            Self::NoSocket => "its socket is not there",
            Self::NoPong => "no answer to CPING in time",
        }
    }
}

/// A description for the log: what was expected and what was found, if known.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gateway(fault) => fault.fmt(f),
            Self::Denied => f.write_str(
                "permission denied on its socket: the user or groups of this process may not \
                 connect",
            ),
            cause => f.write_str(cause.reason()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_a_word_of_its_own() {
        use Cause::*;
        let all = [
            Refused,
            Unreachable,
            ConnectTimeout,
            ConnectFailed,
            Broken,
            CutShort,
            Late,
            Stalled,
            Malformed("x"),
            Overloaded,
            Denied,
            NoSocket,
            NoPong,
        ];
        let indexes: Vec<_> = all.iter().map(|cause| cause.index()).collect();
        assert_eq!(indexes, (0..CAUSES.len()).collect::<Vec<_>>());
    }
}
