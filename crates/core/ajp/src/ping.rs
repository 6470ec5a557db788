//! CPING and CPONG: whether a servlet engine runs. A worker thread answers, so there is no answer
//! while all of them are busy; the answer says nothing about any application.

use crate::AjpError;
use crate::codes::{CPING_REQUEST, CPONG_REPLY, FROM_SERVER, TO_SERVER};

/// Requests [`Pong`]. Only on a connection without a request in progress.
pub const CPING: [u8; 5] = [TO_SERVER[0], TO_SERVER[1], 0, 1, CPING_REQUEST];

const CPONG: [u8; 5] = [FROM_SERVER[0], FROM_SERVER[1], 0, 1, CPONG_REPLY];

/// Parses the answer to [`CPING`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Pong {
    received: usize,
}

impl Pong {
    /// Processes received bytes; returns whether the answer is complete.
    ///
    /// # Errors
    /// [`AjpError::Pong`] for another answer, [`AjpError::BehindEnd`] for additional bytes; close
    /// the connection.
    pub fn receive(&mut self, input: &[u8]) -> Result<bool, AjpError> {
        let expected = &CPONG[self.received..];
        for (at, (expected, found)) in expected.iter().zip(input).enumerate() {
            if expected != found {
                return Err(AjpError::Pong { at: self.received + at, found: *found });
            }
        }
        if input.len() > expected.len() {
            return Err(AjpError::BehindEnd);
        }
        self.received += input.len();
        Ok(self.received == CPONG.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pong_is_five_bytes_and_no_more() {
        assert_eq!(CPING, [0x12, 0x34, 0, 1, 0x0a]);
        let whole = [0x41, 0x42, 0, 1, 9];
        assert_eq!(Pong::default().receive(&whole), Ok(true));
        for cut in 0..5 {
            let mut pong = Pong::default();
            assert_eq!(pong.receive(&whole[..cut]), Ok(false));
            assert_eq!(pong.receive(&whole[cut..]), Ok(true));
        }
        assert_eq!(
            Pong::default().receive(&[&whole[..], b"AB"].concat()),
            Err(AjpError::BehindEnd)
        );
        let headers = [0x41, 0x42, 0, 9, 4];
        let found = Pong::default().receive(&headers);
        assert_eq!(found, Err(AjpError::Pong { at: 3, found: 9 }));
    }
}
