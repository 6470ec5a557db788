//! The token of the API over TCP.
//!
//! Invariant: a token is never displayed or logged, and the time of a comparison does not depend on
//! how much of the claim is correct.

use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::limits::{TOKEN_BYTES_MAX, TOKEN_BYTES_MIN};

/// The token that TCP clients must send: `Authorization: Bearer TOKEN`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// A token file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It cannot be read.
    #[error("cannot read token file {}: {source}", path.display())]
    Unreadable {
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// All users of the machine may read it.
    #[error(
        "token file {file} can be read by every user of this machine: `chmod o= {file}`",
        file = path.display()
    )]
    Public { path: PathBuf },
    /// It contains no token.
    #[error(
        "token file {} holds no token: one line of {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} \
         printable characters without spaces, such as from `openssl rand -hex 32`",
        path.display()
    )]
    Malformed { path: PathBuf },
}

impl Token {
    /// Reads the token from the only line of a file.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let unreadable = |source| TokenError::Unreadable { path: path.to_owned(), source };
        let mode = std::fs::metadata(path).map_err(unreadable)?.permissions().mode();
        if mode & 0o007 != 0 {
            return Err(TokenError::Public { path: path.to_owned() });
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Self::parse(&text).ok_or_else(|| TokenError::Malformed { path: path.to_owned() })
    }

    /// The token in `line`; `None` if it is not a valid one.
    pub fn parse(line: &str) -> Option<Self> {
        let token = line.trim_end_matches(['\n', '\r']);
        let is_long_enough = (TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len());
        let is_printable = token.bytes().all(|byte| byte.is_ascii_graphic());
        (is_long_enough && is_printable).then(|| Self(token.to_owned()))
    }

    /// Whether `claim` is this token. The time depends only on the length of the claim.
    pub(crate) fn is(&self, claim: &[u8]) -> bool {
        let own = self.0.as_bytes();
        // A claim of another length is compared completely as well, so that the time does not
        // reveal the length.
        let differs = u8::from(own.len() != claim.len());
        let difference = claim.iter().enumerate().fold(differs, |difference, (at, byte)| {
            std::hint::black_box(difference | (byte ^ own[at % own.len()]))
        });
        difference == 0
    }

    /// Value of the Authorization field.
    pub(crate) fn authorization(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = Token::parse(TOKEN).unwrap();
        assert!(token.is(TOKEN.as_bytes()));
        for wrong in ["", "0", "0123456789abcde", "0123456789abcdef0", "0123456789abcdeF"] {
            assert!(!token.is(wrong.as_bytes()), "{wrong}");
        }
        assert!(!token.is(TOKEN.repeat(2).as_bytes()));
        assert_eq!(format!("{token:?}"), "Token(…)");
    }

    #[test]
    fn what_is_no_token_is_refused() {
        assert!(Token::parse(&format!("{TOKEN}\n")).is_some());
        for wrong in ["", "short", "0123456789 abcdef", "0123456789abcdef\nmore", "0123456789äöüß0"]
        {
            assert!(Token::parse(wrong).is_none(), "{wrong:?}");
        }
        assert!(Token::parse(&"x".repeat(TOKEN_BYTES_MAX)).is_some());
        assert!(Token::parse(&"x".repeat(TOKEN_BYTES_MAX + 1)).is_none());
    }

    #[test]
    fn a_file_that_everyone_may_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        assert!(matches!(Token::read(&path), Err(TokenError::Unreadable { .. })));
        std::fs::write(&path, TOKEN).unwrap();
        let set_mode = |mode| {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        };
        set_mode(0o644);
        assert!(matches!(Token::read(&path), Err(TokenError::Public { .. })));
        set_mode(0o640);
        assert_eq!(Token::read(&path).unwrap(), Token::parse(TOKEN).unwrap());
        std::fs::write(&path, "x").unwrap();
        assert!(matches!(Token::read(&path), Err(TokenError::Malformed { .. })));
    }
}
