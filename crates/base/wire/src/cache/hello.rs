//! Handshake of a stream: each side proves that it holds the cluster's key.
//!
//! ```text
//!  client                                            server
//!    version, purpose, cluster, nonce, name  ------>
//!       <------ version, verdict [, nonce, name, proof]
//!    proof                                   ------>
//!                          <------ version, verdict
//! ```
//!
//! A proof is HMAC-SHA256 (RFC 2104) under a key of its own, over the proving side,
//! the purpose, both nonces, the cluster and both names. So it is valid for
//! this stream only: not for another (nonces), not in the other direction (side),
//! not between other machines (names). The bytes after the handshake are not sealed: streams
//! require a network in which nobody else can write into an existing connection.
//!
//! No clock, socket or randomness here: [`Handshake`] returns how many bytes it needs
//! next and which bytes to send.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use skep_units::stable_hash;

use crate::limits::NAME_BYTES_MAX;
use crate::machine::Name;
use crate::seal::Key;

/// Bytes of a nonce; of the operating system's randomness, never used twice.
pub const NONCE_BYTES: usize = 32;

/// The most bytes that a [`Handshake`] needs at once.
pub const HELLO_BYTES_MAX: usize = CHALLENGE_BYTES;

const VERSION: u8 = 2;
const PROOF_BYTES: usize = 32;
const NAME_FIELD_BYTES: usize = 1 + NAME_BYTES_MAX;
const INTRODUCTION_BYTES: usize = 1 + 8 + NONCE_BYTES + NAME_FIELD_BYTES;
const VERDICT_BYTES: usize = 2;
const CHALLENGE_BYTES: usize = NONCE_BYTES + NAME_FIELD_BYTES + PROOF_BYTES;

/// The verdict that accepts the other side.
const FINE: u8 = 0;

/// Keeps proofs apart from any other use of the key.
const DOMAIN: &[u8] = b"skep stream 1\0";

/// Seed of the hash of a cluster's name.
const CLUSTER_SEED: u64 = 0x5e1f_c1a5_7e12_0001;

type Nonce = [u8; NONCE_BYTES];

/// The identity of this machine.
#[derive(Clone)]
pub struct Identity {
    mac: Hmac<Sha256>,
    cluster: u64,
    name: Name,
}

/// The purpose of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Purpose {
    /// [`link`](super::link): between a node and a coordinator.
    Link = 1,
    /// [`peer`](super::peer): between nodes.
    Fetch = 2,
}

/// Why a stream does not come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Reason {
    /// The versions differ.
    #[error("other version of this protocol: run the same release on all machines")]
    Version = 1,
    /// The clusters differ.
    #[error("other cluster: the addresses of two clusters are mixed up in a config")]
    Cluster = 2,
    /// It serves something else.
    #[error("other purpose: this port is not for that, check the addresses in the config")]
    Purpose = 3,
    /// The other's proof is wrong.
    #[error("other key: every machine of a cluster needs the same key file")]
    Proof = 4,
    /// Another machine answers at that address.
    #[error("other machine than expected: check its name and address in the config")]
    Name = 5,
    /// It has as many streams as it may have.
    #[error("too many connections")]
    Full = 6,
    /// What came makes no sense.
    #[error("not a handshake")]
    Malformed = 7,
}

/// A handshake has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// This side won't have the other.
    #[error("refused here: {0}")]
    Here(Reason),
    /// The other side won't have this one.
    #[error("refused by the other side: {0}")]
    There(Reason),
}

/// One side of one handshake. Send [`output`](Self::output), read exactly
/// [`wants`](Self::wants) bytes, [`take`](Self::take) them, and repeat until
/// no bytes are needed. A server then sends [`welcome`](Self::welcome), or
/// [`refusal`](Self::refusal).
#[derive(Debug)]
pub struct Handshake {
    identity: Identity,
    side: StreamSide,
    purpose: Purpose,
    nonce: Nonce,
    state: HandshakeState,
    other: Option<(Nonce, Name)>,
    output: Vec<u8>,
}

#[derive(Clone, Debug)]
enum StreamSide {
    Client { to: Option<Name> },
    Server,
}

/// The next expected message.
#[derive(Clone, Copy, Debug)]
enum HandshakeState {
    Version,
    Introduction,
    Proof,
    Verdict,
    Challenge,
    LastVerdict,
    Nothing,
}

impl Identity {
    /// The machine `name` of `cluster`, which holds `key`.
    pub fn new(key: &Key, cluster: &str, name: &Name) -> Self {
        #[expect(clippy::expect_used, reason = "RFC 2104, 3: keys may have any length")]
        let mut mac =
            Hmac::new_from_slice(&key.for_streams()).expect("HMAC takes keys of any length");
        mac.update(DOMAIN);
        mac.update(&(cluster.len() as u64).to_le_bytes());
        mac.update(cluster.as_bytes());
        Self { mac, cluster: stable_hash(cluster.as_bytes(), CLUSTER_SEED), name: name.clone() }
    }

    pub fn name(&self) -> &Name {
        &self.name
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(&self.name).finish()
    }
}

impl Reason {
    /// All of them, in the order of their numbers, from 1.
    pub const ALL: [Self; 7] = [
        Self::Version,
        Self::Cluster,
        Self::Purpose,
        Self::Proof,
        Self::Name,
        Self::Full,
        Self::Malformed,
    ];

    /// In a word, for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Cluster => "cluster",
            Self::Purpose => "purpose",
            Self::Proof => "proof",
            Self::Name => "name",
            Self::Full => "full",
            Self::Malformed => "malformed",
        }
    }
}

impl HelloError {
    /// The reason, whichever side refuses.
    pub fn reason(self) -> Reason {
        match self {
            Self::Here(reason) | Self::There(reason) => reason,
        }
    }
}

impl Handshake {
    /// The side that connected, to the machine `to` if it matters which.
    pub fn client(identity: &Identity, purpose: Purpose, to: Option<Name>, nonce: Nonce) -> Self {
        let mut client =
            Self::new(identity, StreamSide::Client { to }, purpose, nonce, HandshakeState::Verdict);
        client.output.extend([VERSION, purpose as u8]);
        client.output.extend(identity.cluster.to_le_bytes());
        client.output.extend(nonce);
        client.output.extend(name_field(&identity.name));
        client
    }

    /// The side that was connected to, and serves `purpose`.
    pub fn server(identity: &Identity, purpose: Purpose, nonce: Nonce) -> Self {
        Self::new(identity, StreamSide::Server, purpose, nonce, HandshakeState::Version)
    }

    /// The bytes to send now; also after an error.
    pub fn output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Bytes to read next, at most [`HELLO_BYTES_MAX`]; 0 when the other side has
    /// proved its identity.
    pub fn wants(&self) -> usize {
        match self.state {
            HandshakeState::Version => 1,
            HandshakeState::Introduction => INTRODUCTION_BYTES,
            HandshakeState::Proof => PROOF_BYTES,
            HandshakeState::Verdict | HandshakeState::LastVerdict => VERDICT_BYTES,
            HandshakeState::Challenge => CHALLENGE_BYTES,
            HandshakeState::Nothing => 0,
        }
    }

    /// Processes the bytes that [`wants`](Self::wants) asked for.
    ///
    /// # Errors
    /// Which side refuses, and why; the stream is to be closed.
    ///
    /// # Panics
    /// If the number of bytes differs.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), HelloError> {
        assert_eq!(bytes.len(), self.wants(), "as many bytes as are wanted");
        let next = match self.state {
            HandshakeState::Version => self.take_version(bytes),
            HandshakeState::Introduction => self.take_introduction(bytes),
            HandshakeState::Proof => self.take_proof(bytes),
            HandshakeState::Verdict => take_verdict(bytes, HandshakeState::Challenge),
            HandshakeState::Challenge => self.take_challenge(bytes),
            HandshakeState::LastVerdict => take_verdict(bytes, HandshakeState::Nothing),
            HandshakeState::Nothing => Ok(HandshakeState::Nothing),
        };
        self.state = next.inspect_err(|error| {
            if let (HelloError::Here(reason), StreamSide::Server) = (error, &self.side) {
                self.output.extend(Self::refusal(*reason));
            }
        })?;
        Ok(())
    }

    /// The name of the other machine, after the handshake.
    pub fn other(&self) -> Option<&Name> {
        let (_, name) = self.other.as_ref()?;
        matches!(self.state, HandshakeState::Nothing).then_some(name)
    }

    /// A server's last word if all is well.
    pub fn welcome() -> [u8; 2] {
        [VERSION, FINE]
    }

    /// A server's refusal, its last message; may be sent at any time.
    pub fn refusal(reason: Reason) -> [u8; 2] {
        [VERSION, reason as u8]
    }

    fn new(
        identity: &Identity,
        side: StreamSide,
        purpose: Purpose,
        nonce: Nonce,
        state: HandshakeState,
    ) -> Self {
        let (identity, output) = (identity.clone(), Vec::new());
        Self { identity, side, purpose, nonce, state, other: None, output }
    }

    fn take_version(&self, bytes: &[u8]) -> Result<HandshakeState, HelloError> {
        here(bytes == [VERSION], Reason::Version)?;
        Ok(HandshakeState::Introduction)
    }

    fn take_introduction(&mut self, bytes: &[u8]) -> Result<HandshakeState, HelloError> {
        let (purpose, rest) = split::<1>(bytes)?;
        let (cluster, rest) = split::<8>(rest)?;
        let (nonce, name) = split::<NONCE_BYTES>(rest)?;
        here(u64::from_le_bytes(*cluster) == self.identity.cluster, Reason::Cluster)?;
        here(*purpose == [self.purpose as u8], Reason::Purpose)?;
        self.other = Some((*nonce, read_name(name)?));
        let proof = self.proof(&StreamSide::Server).finalize().into_bytes();
        self.output.extend(Self::welcome());
        self.output.extend(self.nonce);
        self.output.extend(name_field(&self.identity.name));
        self.output.extend_from_slice(&proof);
        Ok(HandshakeState::Proof)
    }

    fn take_proof(&self, bytes: &[u8]) -> Result<HandshakeState, HelloError> {
        let client = StreamSide::Client { to: None };
        here(self.proof(&client).verify_slice(bytes).is_ok(), Reason::Proof)?;
        Ok(HandshakeState::Nothing)
    }

    fn take_challenge(&mut self, bytes: &[u8]) -> Result<HandshakeState, HelloError> {
        let (nonce, rest) = split::<NONCE_BYTES>(bytes)?;
        let (name, proof) = split::<NAME_FIELD_BYTES>(rest)?;
        let name = read_name(name)?;
        self.other = Some((*nonce, name.clone()));
        here(self.proof(&StreamSide::Server).verify_slice(proof).is_ok(), Reason::Proof)?;
        // Told after the proof: until then the name is only a claim.
        if let StreamSide::Client { to: Some(to) } = &self.side {
            here(*to == name, Reason::Name)?;
        }
        let proof = self.proof(&self.side).finalize().into_bytes();
        self.output.extend_from_slice(&proof);
        Ok(HandshakeState::LastVerdict)
    }

    /// What `prover` has to show, as soon as the other has introduced itself.
    fn proof(&self, prover: &StreamSide) -> Hmac<Sha256> {
        let own = (self.nonce, self.identity.name.clone());
        let other = self.other.clone().unwrap_or_else(|| own.clone());
        let (client, server) = match self.side {
            StreamSide::Client { .. } => (own, other),
            StreamSide::Server => (other, own),
        };
        let side = if matches!(prover, StreamSide::Server) { b'S' } else { b'C' };
        let mut mac = self.identity.mac.clone();
        mac.update(&[VERSION, side, self.purpose as u8]);
        for (nonce, name) in [client, server] {
            mac.update(&nonce);
            mac.update(&name_field(&name));
        }
        mac
    }
}

fn take_verdict(bytes: &[u8], next: HandshakeState) -> Result<HandshakeState, HelloError> {
    let (&[version, verdict], _) = split::<VERDICT_BYTES>(bytes)?;
    here(version == VERSION, Reason::Version)?;
    if verdict == FINE {
        return Ok(next);
    }
    let reason = Reason::ALL.into_iter().find(|&reason| reason as u8 == verdict);
    Err(reason.map_or(HelloError::Here(Reason::Malformed), HelloError::There))
}

fn name_field(name: &Name) -> [u8; NAME_FIELD_BYTES] {
    let text = name.as_str().as_bytes();
    let mut field = [0; NAME_FIELD_BYTES];
    field[0] = text.len() as u8;
    field[1..=text.len()].copy_from_slice(text);
    field
}

fn read_name(field: &[u8]) -> Result<Name, HelloError> {
    let (&[bytes], rest) = split::<1>(field)?;
    let text = rest.get(..usize::from(bytes)).and_then(|text| str::from_utf8(text).ok());
    let name = text.filter(|text| !text.is_empty()).and_then(|text| Name::new(text).ok());
    // Nothing behind the name that the proof would not cover.
    let name = name.filter(|name| name_field(name) == field);
    name.ok_or(HelloError::Here(Reason::Malformed))
}

fn split<const N: usize>(bytes: &[u8]) -> Result<(&[u8; N], &[u8]), HelloError> {
    bytes.split_first_chunk().ok_or(HelloError::Here(Reason::Malformed))
}

fn here(is_fine: bool, reason: Reason) -> Result<(), HelloError> {
    if is_fine { Ok(()) } else { Err(HelloError::Here(reason)) }
}

const _: () = assert!(NAME_BYTES_MAX <= u8::MAX as usize);
const _: () = assert!(INTRODUCTION_BYTES <= HELLO_BYTES_MAX);
