//! Reasons why a datagram is rejected.

use crate::limits::{DATAGRAM_BYTES_MAX, KEY_CHARACTERS_MIN, PEERS_MAX};

macro_rules! open_errors {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal: $message:literal,)+) => {
        /// Why a datagram is rejected.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
        pub enum OpenError {
            $($(#[doc = $doc])+ #[error($message)] $variant,)+
        }

        impl OpenError {
            /// All errors, in the order of their numbers (`as usize`).
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
    /// Shorter than its header and tag.
    TooShort = "too_short": "shorter than a header and a tag",
    /// Longer than any valid datagram.
    TooLong = "too_long": "longer than {DATAGRAM_BYTES_MAX} bytes",
    /// With another version of the format.
    Version = "version": "of another version: run the same Skep on all machines",
    /// Of another cluster.
    ForeignCluster = "foreign_cluster": "of another cluster: give each its own port or name",
    /// For another machine, or from a machine with this machine's name.
    Misaddressed = "misaddressed": "for another machine, or from one of the same name",
    /// Sealed with another key, or modified in transit.
    BadTag = "bad_tag": "sealed with another key (of {KEY_CHARACTERS_MIN} characters or more), or changed",
    /// Sent by an earlier incarnation of its sender.
    StaleIncarnation = "stale_incarnation": "from before its sender's last start",
    /// Received before, or too old to decide.
    Replayed = "replayed": "received before",
    /// From a machine beyond the maximum number of machines.
    TooManyPeers = "too_many_peers": "from one machine more than {PEERS_MAX}",
    /// Authentic, but its body is not a message.
    MalformedBody = "malformed_body": "authentic, but no message",
}
