//! One machine's endpoint: seals outgoing datagrams, verifies incoming ones.

use std::collections::BTreeMap;

use skep_units::{Now, stable_hash};

use super::datagram::{BODY_BYTES_MAX, Channel, Header, PeerId, Tagger};
use super::error::OpenError;
use super::key::Key;
use super::window::Window;
use crate::limits::{HELLO_ANSWER_INTERVAL_MS, PEERS_MAX};

/// Time of sending: of two datagrams of one sender, the later has the greater stamp, in whatever
/// order they arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// The sender's incarnation (its start).
    pub incarnation: u64,
    /// Number of the datagram since then, from 1.
    pub sequence: u64,
}

/// An authentic datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenedDatagram<'a> {
    /// Sent to the present incarnation, received for the first time: its body is accepted.
    Live {
        /// The sender.
        from: PeerId,
        /// The time of sending.
        stamp: Stamp,
        /// The content. Empty if the datagram only answers a hello.
        body: &'a [u8],
    },
    /// From a machine that does not know yet that this machine (re)started.
    Hello {
        /// The sender.
        from: PeerId,
    },
}

/// The answer due to a machine after its hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloReply {
    /// The receiver: the answer goes to the address known for it, not to the
    /// apparent source of the hello.
    pub to: PeerId,
    /// Its bytes.
    pub datagram: Vec<u8>,
}

/// A body does not fit a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a body of {bytes} bytes does not fit a datagram ({BODY_BYTES_MAX}): split it")]
pub struct BodyTooLong {
    /// Its length.
    pub bytes: usize,
}

/// One machine's endpoint for all other machines.
///
/// Invariants: knows at most [`PEERS_MAX`] machines, each from an authentic datagram or because a
/// datagram was sent to it; a sender's incarnation never decreases; nothing is live twice.
#[derive(Clone)]
pub struct Endpoint {
    tagger: Tagger,
    channel: Channel,
    cluster: u64,
    own: PeerId,
    incarnation: u64,
    peers: BTreeMap<PeerId, PeerState>,
    answer: Option<HelloReply>,
}

/// State of another machine.
#[derive(Clone, Debug)]
struct PeerState {
    /// Sequence number of the last datagram to it.
    sequence: u64,
    /// The latest incarnation received; 0 if none.
    incarnation: u64,
    /// Sequence numbers received of that incarnation.
    window: Window,
    answered_at: Option<Now>,
}

impl Endpoint {
    /// The endpoint of the machine `name` in `cluster` for heartbeats, started at the wall-clock
    /// time `incarnation`, in milliseconds (0 counts as 1).
    pub fn new(key: &Key, cluster: &str, name: &str, incarnation: u64) -> Self {
        Self::of(Channel::Heartbeats, key, cluster, name, incarnation)
    }

    /// The same for any channel.
    pub fn of(channel: Channel, key: &Key, cluster: &str, name: &str, incarnation: u64) -> Self {
        Self {
            tagger: Tagger::new(key, channel),
            channel,
            cluster: stable_hash(cluster.as_bytes(), 0),
            own: PeerId::of(name),
            incarnation: incarnation.max(1),
            peers: BTreeMap::new(),
            answer: None,
        }
    }

    /// This machine.
    pub fn own(&self) -> PeerId {
        self.own
    }

    /// This machine's incarnation: greater than at the start if its clock had been set back.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Seals a datagram to `to`.
    pub fn seal(&mut self, to: PeerId, body: &[u8]) -> Result<Vec<u8>, BodyTooLong> {
        if body.len() > BODY_BYTES_MAX {
            return Err(BodyTooLong { bytes: body.len() });
        }
        let peer = self.peer(to);
        peer.sequence += 1;
        let (sequence, echo) = (peer.sequence, peer.incarnation);
        let header = Header {
            cluster: self.cluster,
            sender: self.own,
            receiver: to,
            incarnation: self.incarnation,
            sequence,
            echo,
        };
        Ok(self.tagger.seal(&header, body))
    }

    /// Verifies a datagram. Whatever the result, call [`Endpoint::take_answer`]
    /// afterwards.
    pub fn open<'a>(
        &mut self,
        now: Now,
        datagram: &'a [u8],
    ) -> Result<OpenedDatagram<'a>, OpenError> {
        let header = Header::read(datagram)?;
        if header.cluster != self.cluster {
            return Err(OpenError::ForeignCluster);
        }
        if header.receiver != self.own || header.sender == self.own {
            return Err(OpenError::Misaddressed);
        }
        let body = self.tagger.open(datagram)?;
        self.note(now, &header)?;
        let from = header.sender;
        if header.echo == self.incarnation {
            let stamp = Stamp { incarnation: header.incarnation, sequence: header.sequence };
            return Ok(OpenedDatagram::Live { from, stamp, body });
        }
        if header.echo > self.incarnation {
            // Only a former incarnation of this machine is echoed: its clock was set back.
            self.incarnation = header.echo.saturating_add(1);
        }
        self.plan_answer(now, from);
        Ok(OpenedDatagram::Hello { from })
    }

    /// Returns the answer due after the last datagram, if any.
    pub fn take_answer(&mut self) -> Option<HelloReply> {
        self.answer.take()
    }

    /// Records an authentic header; returns an error unless it is new.
    fn note(&mut self, now: Now, header: &Header) -> Result<(), OpenError> {
        let is_known = self.peers.contains_key(&header.sender);
        if !is_known && self.peers.len() >= PEERS_MAX {
            return Err(OpenError::TooManyPeers);
        }
        let peer = self.peer(header.sender);
        if header.incarnation < peer.incarnation.max(1) {
            self.plan_answer(now, header.sender);
            return Err(OpenError::StaleIncarnation);
        }
        if header.incarnation > peer.incarnation {
            peer.incarnation = header.incarnation;
            peer.window = Window::new(peer.window.length());
        }
        if peer.window.admit(header.sequence) { Ok(()) } else { Err(OpenError::Replayed) }
    }

    fn peer(&mut self, peer: PeerId) -> &mut PeerState {
        let window = self.channel.replay_window();
        self.peers.entry(peer).or_insert_with(|| PeerState {
            sequence: 0,
            incarnation: 0,
            window: Window::new(window),
            answered_at: None,
        })
    }

    fn plan_answer(&mut self, now: Now, to: PeerId) {
        let peer = self.peer(to);
        let is_due = peer.answered_at.is_none_or(|at| now.since_ms(at) >= HELLO_ANSWER_INTERVAL_MS);
        if is_due {
            peer.answered_at = Some(now);
            self.answer = self.seal(to, &[]).ok().map(|datagram| HelloReply { to, datagram });
        }
    }
}
