//! The version of a message.

/// Version of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    Http10,
    Http11,
}

impl Version {
    #[inline]
    pub(crate) fn of_minor(minor: u8) -> Version {
        if minor == 0 { Version::Http10 } else { Version::Http11 }
    }
}
