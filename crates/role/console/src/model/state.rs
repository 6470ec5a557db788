//! States of nodes and servers, by their words.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whether a node gets requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// It does not answer its checks: none.
    Down,
    /// Not checked yet: none.
    Joining,
    /// It finishes its last requests and is then gone.
    Removing,
    /// It finishes its last requests and gets no new ones.
    Draining,
    /// It gets none, by the operator's wish.
    Drained,
    /// It gets its share.
    Up,
}

impl NodeState {
    /// Every state, the one that needs the operator most first.
    pub const ALL: &'static [Self] =
        &[Self::Down, Self::Joining, Self::Removing, Self::Draining, Self::Drained, Self::Up];

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Joining => "joining",
            Self::Removing => "removing",
            Self::Draining => "draining",
            Self::Drained => "drained",
            Self::Up => "up",
        }
    }

    /// The state that `word` names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|state| state.word() == word)
    }
}
