//! Reasons why a datagram is rejected.

use crate::limits::{DATAGRAM_BYTES_MAX, KEY_CHARACTERS_MIN, PEERS_MAX};

macro_rules! open_errors {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal: $message:literal,)+) => {
        /// Why a datagram does not count.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
        pub enum OpenError {
            $($(#[doc = $doc])+ #[error($message)] $variant,)+
        }

        impl OpenError {
            /// All of them, in the order of their numbers (`as usize`).
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Its name in metrics.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

open_errors! {
    /// Ends before its header and tag do.
    TooShort = "too_short": "shorter than a header and a tag",
    /// Longer than any of ours.
    TooLong = "too_long": "longer than {DATAGRAM_BYTES_MAX} bytes",
    /// Of another format.
    Version = "version": "of another version: run the same Skep on all machines",
    /// Of another cluster.
    ForeignCluster = "foreign_cluster": "of another cluster: give each its own port or name",
    /// For another machine, or from one that has this machine's name.
    Misaddressed = "misaddressed": "for another machine, or from one of the same name",
    /// Sealed with another key, or changed on the way.
    BadTag = "bad_tag": "sealed with another key (of {KEY_CHARACTERS_MIN} characters or more), or changed",
    /// Sent by an earlier incarnation of its sender.
    StaleIncarnation = "stale_incarnation": "from before its sender's last start",
    /// Received before, or too old to tell.
    Replayed = "replayed": "received before",
    /// From one machine more than can be.
    TooManyPeers = "too_many_peers": "from one machine more than {PEERS_MAX}",
    /// Authentic, but its body is no message.
    MalformedBody = "malformed_body": "authentic, but no message",
}
