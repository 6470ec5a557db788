//! Identification of machines: by their names in the config, and on a network segment by
//! the MAC addresses of their devices.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::limits::NAME_BYTES_MAX;
use crate::seal::PeerId;

/// The MAC address of a network device.
pub type Mac = [u8; 6];

/// A name of at most [`NAME_BYTES_MAX`] bytes; cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Arc<str>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a name of at most {NAME_BYTES_MAX} bytes, found one of {bytes}: shorten it")]
pub struct NameTooLong {
    pub bytes: usize,
}

impl Name {
    pub fn new(text: &str) -> Result<Self, NameTooLong> {
        if text.len() > NAME_BYTES_MAX {
            return Err(NameTooLong { bytes: text.len() });
        }
        Ok(Self(text.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The machine with this name.
    pub fn peer(&self) -> PeerId {
        PeerId::of(&self.0)
    }
}

impl TryFrom<String> for Name {
    type Error = NameTooLong;

    fn try_from(text: String) -> Result<Self, NameTooLong> {
        Self::new(&text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.as_str().to_owned()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
