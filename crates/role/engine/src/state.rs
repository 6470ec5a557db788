//! The state of a client connection: exactly one at any time, which owns all received bytes that the
//! connection stores.
//!
//! ```text
//!  New, Resting, HalfHead, Pipelined --a turn--> Resting, HalfHead, Pipelined, Slow, Departing
//!  Departing ------------kept------------------> Pipelined
//!  Slow -----------------------------handler---> Answering
//!  Answering ----its body is not read yet------> Draining
//!  Answering, Draining --its body is read------> Resting, Pipelined
//!  any of them --------------------------------> Closing, for good
//! ```

use std::fmt;

use skep_http::HeadScanner;

use crate::closing::End;
use crate::handler::Destination;

/// The state of a connection.
pub(crate) enum State {
    /// It was accepted, and nothing was received yet.
    New,
    /// Waits for a request, of which nothing was received. Holds no memory.
    Resting,
    /// Waits for the rest of a head.
    HalfHead {
        /// Index of the request on the connection, from 0.
        number: u64,
        /// The beginning of the head: at least one byte.
        received: Vec<u8>,
        scanner: HeadScanner,
    },
    /// Continues with received bytes (possibly none) that follow a request and were not parsed yet. It
    /// waits for no peer, so no deadline is in force.
    Pipelined(Vec<u8>),
    /// A slow request: `received` begins with its head, of this length. It is processed once the
    /// replies before it were sent.
    Slow { received: Vec<u8>, head_len: usize },
    /// Another node should answer the request with whose head, of this length, `received` begins; or
    /// nothing was received, and another node should have the connection. The handler hands it off.
    Departing { received: Vec<u8>, head_len: usize, to: Destination },
    /// The handler answers it. The exchange owns the bytes of its body, and those that follow.
    Answering,
    /// It was answered, and the rest of its body is being read and discarded.
    Draining,
    /// Nothing is parsed any more: queued output is sent, then the connection ends.
    Closing(End),
}

impl State {
    /// The state of a connection after a request and its body were read to their end.
    pub(crate) fn behind_request(rest: Vec<u8>) -> Self {
        if rest.is_empty() { Self::Resting } else { Self::Pipelined(rest) }
    }

    /// The index of the request whose head is awaited.
    pub(crate) fn awaited_head(&self) -> Option<u64> {
        match self {
            Self::New => Some(0),
            Self::HalfHead { number, .. } => Some(*number),
            _ => None,
        }
    }

    /// Whether `next` may follow this state.
    pub(crate) fn may_become(&self, next: &Self) -> bool {
        match self {
            Self::New | Self::Resting | Self::HalfHead { .. } | Self::Pipelined(_) => {
                !matches!(next, Self::New | Self::Answering | Self::Draining)
            }
            Self::Departing { .. } => {
                matches!(next, Self::Resting | Self::Pipelined(_) | Self::Closing(_))
            }
            Self::Slow { .. } => matches!(next, Self::Answering | Self::Closing(_)),
            Self::Answering => {
                matches!(
                    next,
                    Self::Draining | Self::Resting | Self::Pipelined(_) | Self::Closing(_)
                )
            }
            Self::Draining => {
                matches!(next, Self::Resting | Self::Pipelined(_) | Self::Closing(_))
            }
            // A failed send may change the reason of the end.
            Self::Closing(_) => matches!(next, Self::Closing(_)),
        }
    }

    /// The invariants of the data in this state.
    pub(crate) fn is_sound(&self) -> bool {
        match self {
            // Without a byte it would be resting, and a late head would get an error reply.
            Self::HalfHead { received, .. } => !received.is_empty(),
            Self::Slow { received, head_len } => (1..=received.len()).contains(head_len),
            Self::Departing { received, head_len, .. } => {
                (1..=received.len()).contains(head_len) || received.is_empty() && *head_len == 0
            }
            _ => true,
        }
    }
}

/// Omits data sent by clients: it may be secret, and other people read logs.
impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New => f.write_str("New"),
            Self::Resting => f.write_str("Resting"),
            Self::HalfHead { number, received, .. } => {
                write!(f, "HalfHead({number}: {})", received.len())
            }
            Self::Pipelined(received) => write!(f, "Pipelined({})", received.len()),
            Self::Slow { received, head_len } => write!(f, "Slow({head_len}/{})", received.len()),
            Self::Departing { received, head_len, .. } => {
                write!(f, "Departing({head_len}/{})", received.len())
            }
            Self::Answering => f.write_str("Answering"),
            Self::Draining => f.write_str("Draining"),
            Self::Closing(end) => write!(f, "Closing({:?})", end.counter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [State; 9] {
        let (received, scanner) = (b"GET".to_vec(), HeadScanner::default());
        [
            State::New,
            State::Resting,
            State::HalfHead { number: 1, received: received.clone(), scanner },
            State::Pipelined(received.clone()),
            State::Departing { received: received.clone(), head_len: 3, to: Destination(1) },
            State::Slow { received, head_len: 3 },
            State::Answering,
            State::Draining,
            State::Closing(End::REJECT),
        ]
    }

    fn becomes(state: &State) -> Vec<String> {
        let mut all = Vec::from(all());
        all.retain(|next| state.may_become(next));
        all.iter().map(|next| format!("{next:?}")).collect()
    }

    #[test]
    fn a_request_is_looked_at_only_once_nothing_of_the_former_is_left_to_do() {
        let [.., departing, slow, answering, draining, closing] = &all();
        let ends = "Closing(ClosedReject)";
        assert_eq!(becomes(departing), ["Resting", "Pipelined(3)", ends]);
        assert_eq!(becomes(slow), ["Answering", ends]);
        assert_eq!(becomes(answering), ["Resting", "Pipelined(3)", "Draining", ends]);
        assert_eq!(becomes(draining), ["Resting", "Pipelined(3)", ends]);
        assert_eq!(becomes(closing), [ends]);
        for waiting in &all()[..4] {
            let next =
                ["Resting", "HalfHead(1: 3)", "Pipelined(3)", "Departing(3/3)", "Slow(3/3)", ends];
            assert_eq!(becomes(waiting), next);
        }
    }

    #[test]
    fn what_is_carried_is_what_the_state_says() {
        assert!(all().iter().all(State::is_sound));
        let scanner = HeadScanner::default();
        assert!(!State::HalfHead { number: 0, received: Vec::new(), scanner }.is_sound());
        for head_len in [0, 4] {
            assert!(!State::Slow { received: b"GET".to_vec(), head_len }.is_sound());
        }
    }
}
