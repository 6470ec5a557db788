//! The bytes of a sealed datagram: header, body, tag.

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use skep_units::stable_hash;

use super::error::OpenError;
use super::key::Key;
use crate::limits::{DATAGRAM_BYTES_MAX, HANDOFF_REPLAY_WINDOW, REPLAY_WINDOW};

/// Longest body of a datagram, in bytes.
pub const BODY_BYTES_MAX: usize = DATAGRAM_BYTES_MAX - HEADER_BYTES - TAG_BYTES;

pub(super) const VERSION: u8 = 2;
pub(super) const HEADER_BYTES: usize = 1 + 6 * 8;
pub(super) const TAG_BYTES: usize = 16;

/// The purpose of datagrams. Datagrams of one channel are never accepted by the other, and each
/// channel has its own incarnations and sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Heartbeats, tables, flows.
    Heartbeats,
    /// LCCP, the control protocol of handoffs.
    Handoff,
}

/// A machine of the cluster: the hash of its name.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct PeerId(pub u64);

/// The header before the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) cluster: u64,
    pub(super) sender: PeerId,
    pub(super) receiver: PeerId,
    pub(super) incarnation: u64,
    pub(super) sequence: u64,
    /// The receiver's incarnation as known to the sender; 0 if unknown.
    pub(super) echo: u64,
}

/// Creates and verifies tags with one key.
#[derive(Clone)]
pub(super) struct Tagger(Hmac<Sha256>);

impl PeerId {
    /// The machine with that name.
    pub fn of(name: &str) -> Self {
        Self(stable_hash(name.as_bytes(), 0))
    }
}

impl Channel {
    /// Separates its tags from any other use of the key.
    fn domain(self) -> &'static [u8] {
        match self {
            Self::Heartbeats => b"skep datagram 1\0",
            Self::Handoff => b"skep handoff 1\0",
        }
    }

    /// Length of its replay windows.
    pub(super) fn replay_window(self) -> u64 {
        match self {
            Self::Heartbeats => REPLAY_WINDOW,
            Self::Handoff => HANDOFF_REPLAY_WINDOW,
        }
    }
}

impl Header {
    /// Reads the header of an arbitrary datagram.
    pub(super) fn read(datagram: &[u8]) -> Result<Self, OpenError> {
        if datagram.len() > DATAGRAM_BYTES_MAX {
            return Err(OpenError::TooLong);
        }
        let (&version, mut rest) = datagram.split_first().ok_or(OpenError::TooShort)?;
        if version != VERSION {
            return Err(OpenError::Version);
        }
        if datagram.len() < HEADER_BYTES + TAG_BYTES {
            return Err(OpenError::TooShort);
        }
        let mut number = || {
            let (bytes, after) = rest.split_first_chunk::<8>().ok_or(OpenError::TooShort)?;
            rest = after;
            Ok(u64::from_le_bytes(*bytes))
        };
        Ok(Self {
            cluster: number()?,
            sender: PeerId(number()?),
            receiver: PeerId(number()?),
            incarnation: number()?,
            sequence: number()?,
            echo: number()?,
        })
    }

    fn write(&self, datagram: &mut Vec<u8>) {
        datagram.push(VERSION);
        for number in [
            self.cluster,
            self.sender.0,
            self.receiver.0,
            self.incarnation,
            self.sequence,
            self.echo,
        ] {
            datagram.extend_from_slice(&number.to_le_bytes());
        }
    }
}

impl Tagger {
    pub(super) fn new(key: &Key, channel: Channel) -> Self {
        #[expect(clippy::expect_used, reason = "RFC 2104, 3: keys may have any length")]
        let mut mac = Hmac::new_from_slice(key.bytes()).expect("HMAC takes keys of any length");
        mac.update(channel.domain());
        Self(mac)
    }

    pub(super) fn seal(&self, header: &Header, body: &[u8]) -> Vec<u8> {
        let mut datagram = Vec::with_capacity(HEADER_BYTES + body.len() + TAG_BYTES);
        header.write(&mut datagram);
        datagram.extend_from_slice(body);
        let tag = self.0.clone().chain_update(&datagram).finalize().into_bytes();
        datagram.extend_from_slice(&tag[..TAG_BYTES]);
        datagram
    }

    /// Returns the body of a datagram whose header was read, if its tag is correct. Takes the same
    /// time wherever a wrong tag differs.
    pub(super) fn open<'a>(&self, datagram: &'a [u8]) -> Result<&'a [u8], OpenError> {
        let split = datagram.split_last_chunk::<TAG_BYTES>();
        let (sealed, tag) = split.ok_or(OpenError::TooShort)?;
        let mac = self.0.clone().chain_update(sealed);
        mac.verify_truncated_left(tag).map_err(|_| OpenError::BadTag)?;
        sealed.get(HEADER_BYTES..).ok_or(OpenError::TooShort)
    }
}
