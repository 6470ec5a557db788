//! The secret shared by the machines of a cluster.

use std::fmt;

use hkdf::Hkdf;
use sha2::Sha256;

use crate::limits::KEY_CHARACTERS_MIN;

/// Domain separation of the derived key, so that the same secret can serve other purposes without
/// weakening either.
const PURPOSE: &[u8] = b"skep: sealed datagrams, 1";

/// The key that seals the datagrams of a cluster. Not shown by `Debug`.
#[derive(Clone)]
pub struct Key([u8; 32]);

/// A text is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a cluster's key has at least {KEY_CHARACTERS_MIN} characters, this one has {characters}: \
     make one with `openssl rand -hex 32` and give every machine of the cluster the same"
)]
pub struct KeyError {
    /// Characters found, without surrounding white space.
    pub characters: usize,
}

impl Key {
    /// Derives the key from `text`, the content of the key file: HKDF with
    /// SHA-256 (RFC 5869) over the text without leading and trailing white space.
    pub fn from_text(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        let characters = text.chars().count();
        if characters < KEY_CHARACTERS_MIN {
            return Err(KeyError { characters });
        }
        let mut key = [0; 32];
        #[expect(clippy::expect_used, reason = "RFC 5869, 2.3: only more than 8160 bytes fail")]
        Hkdf::<Sha256>::new(None, text.as_bytes())
            .expand(PURPOSE, &mut key)
            .expect("32 bytes are within HKDF's bound");
        Ok(Self(key))
    }

    /// Secret of the hash that spreads flows, the same on all machines: an attacker with this
    /// secret could create flows that all go to one node.
    pub fn hash_seed(&self) -> u64 {
        let mut seed = [0; 8];
        #[expect(clippy::expect_used, reason = "RFC 5869, 2.3: only more than 8160 bytes fail")]
        Hkdf::<Sha256>::new(None, &self.0)
            .expand(b"skep: hash of flows, 1", &mut seed)
            .expect("8 bytes are within HKDF's bound");
        u64::from_le_bytes(seed)
    }

    /// The identifier of a group member in clients' cookies, the same on all machines: without the
    /// key, it does not reveal the member.
    pub fn session_id(&self, group: &str, member: &str) -> u64 {
        let purpose = [b"skep: sessions, 1".as_slice(), group.as_bytes(), b"/", member.as_bytes()];
        let mut id = [0; 8];
        #[expect(clippy::expect_used, reason = "RFC 5869, 2.3: only more than 8160 bytes fail")]
        Hkdf::<Sha256>::new(None, &self.0)
            .expand_multi_info(&purpose, &mut id)
            .expect("8 bytes are within HKDF's bound");
        u64::from_le_bytes(id)
    }

    /// The key with which nodes hash clients' session ids to count them, the same on all machines.
    pub fn for_session_counts(&self) -> [u8; 16] {
        let mut key = [0; 16];
        #[expect(clippy::expect_used, reason = "RFC 5869, 2.3: only more than 8160 bytes fail")]
        Hkdf::<Sha256>::new(None, &self.0)
            .expand(b"skep: counts of sessions, 1", &mut key)
            .expect("16 bytes are within HKDF's bound");
        key
    }

    /// The key for the proofs at the start of streams between machines.
    pub(crate) fn for_streams(&self) -> [u8; 32] {
        let mut key = [0; 32];
        #[expect(clippy::expect_used, reason = "RFC 5869, 2.3: only more than 8160 bytes fail")]
        Hkdf::<Sha256>::new(None, &self.0)
            .expand(b"skep: streams of the cache, 1", &mut key)
            .expect("32 bytes are within HKDF's bound");
        key
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}
