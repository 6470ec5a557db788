//! States of nodes and servers, with their names.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whether a node receives requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// It receives none: its health checks fail.
    Down,
    /// It receives none: it was not checked yet.
    Joining,
    /// It finishes its last requests, and is then removed.
    Removing,
    /// It finishes its last requests, and receives no new ones.
    Draining,
    /// It receives none, by order of an operator.
    Drained,
    /// It receives its share.
    Up,
}

impl NodeState {
    /// All states, beginning with the one that most needs an operator's attention.
    pub const ALL: &'static [Self] =
        &[Self::Down, Self::Joining, Self::Removing, Self::Draining, Self::Drained, Self::Up];

    /// Returns the state's name.
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

    /// Returns the state named `word`.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|state| state.word() == word)
    }
}
