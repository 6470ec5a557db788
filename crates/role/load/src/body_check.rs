//! Checks a body while it is received.

use sha2::{Digest, Sha256};
use skep_workload::Pattern;

use crate::failure::RequestFailure;

/// The expected body.
pub(crate) enum BodyCheck {
    /// The bytes of a file.
    File { pattern: Pattern, bytes: u64, seen: u64 },
    /// Any bytes; the hash identifies them.
    Hashed { hash: Sha256, seen: u64 },
    /// Not checked: the expected body is unknown.
    Unknown,
}

impl BodyCheck {
    pub(crate) fn file(pattern: Pattern, bytes: u64) -> Self {
        Self::File { pattern, bytes, seen: 0 }
    }

    pub(crate) fn hashed() -> Self {
        Self::Hashed { hash: Sha256::new(), seen: 0 }
    }

    /// Checks the next bytes.
    pub(crate) fn take(&mut self, data: &[u8]) -> Result<(), RequestFailure> {
        let (Self::File { seen, .. } | Self::Hashed { seen, .. }) = self else { return Ok(()) };
        let at = *seen;
        *seen += data.len() as u64;
        match self {
            Self::File { pattern, bytes, seen } if *seen <= *bytes => {
                match pattern.first_wrong(at, data) {
                    Some(wrong) => Err(RequestFailure::WrongByte(wrong)),
                    None => Ok(()),
                }
            }
            Self::File { bytes, seen, .. } => {
                Err(RequestFailure::WrongLength { expected: *bytes, found: *seen })
            }
            Self::Hashed { hash, .. } => {
                hash.update(data);
                Ok(())
            }
            Self::Unknown => Ok(()),
        }
    }

    /// Ends the check; returns the hash of a hashed body.
    pub(crate) fn end(self) -> Result<Option<[u8; 32]>, RequestFailure> {
        match self {
            Self::File { bytes, seen, .. } if seen < bytes => {
                Err(RequestFailure::WrongLength { expected: bytes, found: seen })
            }
            Self::File { .. } | Self::Unknown => Ok(None),
            Self::Hashed { hash, .. } => Ok(Some(hash.finalize().into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_that_is_wrong_missing_or_too_much_is_noticed() {
        let pattern = Pattern { seed: 1 << 32 };
        let mut body = vec![0; 10_000];
        pattern.fill(0, &mut body);
        let check = |bytes: &[u8]| {
            let mut check = BodyCheck::file(pattern, 10_000);
            bytes.chunks(999).try_for_each(|chunk| check.take(chunk))?;
            check.end()
        };
        assert_eq!(check(&body), Ok(None));
        let short = RequestFailure::WrongLength { expected: 10_000, found: 9_999 };
        assert_eq!(check(&body[..9_999]), Err(short));
        let long = [&body[..], b"x"].concat();
        assert!(matches!(check(&long), Err(RequestFailure::WrongLength { expected: 10_000, .. })));
        body[5_000] ^= 1;
        assert_eq!(check(&body), Err(RequestFailure::WrongByte(5_000)));
    }
}
