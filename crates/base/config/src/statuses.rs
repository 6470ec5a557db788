//! Response statuses as keys of a table in the file.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// Statuses of responses that may be stored; 206 and 304 may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusPattern {
    /// Exactly this status.
    Exact(u16),
    /// All statuses with this first digit, 2 to 5.
    Class(u16),
}

impl FromStr for StatusPattern {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let one = (200..600).filter(|status| !matches!(status, 206 | 304)).map(Self::Exact);
        let all = one.chain((2..6).map(Self::Class));
        all.into_iter().find(|pattern| pattern.to_string() == text).ok_or(())
    }
}

impl Display for StatusPattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(status) => write!(f, "{status}"),
            Self::Class(digit) => write!(f, "{digit}xx"),
        }
    }
}

impl Serialize for StatusPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_or_a_class_of_what_may_be_stored() {
        assert_eq!("404".parse(), Ok(StatusPattern::Exact(404)));
        assert_eq!("5xx".parse(), Ok(StatusPattern::Class(5)));
        for text in ["", "x", "1xx", "6xx", "4XX", "103", "206", "304", "600", "0404", "+404", "*"]
        {
            assert_eq!(text.parse::<StatusPattern>(), Err(()), "{text}");
        }
    }
}
