//! The state of a request body: what may be sent now.
//!
//! ```text
//!              body_head                   body_head
//!   Owed -------------------> Quiet <------------------- Asked
//!   (Content-Length > 0)        '------GET_BODY_CHUNK------^ '--body_end--> Ended
//! ```

use skep_http::BodyFraming;

use crate::AjpError;
use crate::codes::TO_SERVER;
use crate::limits::BODY_HEAD_BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The server waits for the first packet, without asking.
    Owed,
    /// The server is not waiting for data.
    Quiet,
    /// The server waits for a packet of at most this many bytes.
    Asked(usize),
    /// The end of the body was indicated to the server.
    Ended,
}

/// The body of one request.
#[derive(Clone, Debug)]
pub(crate) struct Upload {
    turn: Turn,
    /// Bytes still to be sent; `None` if unknown.
    left: Option<u64>,
    /// Capacity of a packet.
    data_bytes_max: usize,
}

impl Upload {
    pub(crate) fn new(body: BodyFraming, packet_bytes_max: usize) -> Upload {
        let (turn, left) = match body {
            BodyFraming::None | BodyFraming::Length(0) => (Turn::Quiet, Some(0)),
            BodyFraming::Length(bytes) => (Turn::Owed, Some(bytes)),
            BodyFraming::Chunked => (Turn::Quiet, None),
        };
        Upload { turn, left, data_bytes_max: packet_bytes_max - BODY_HEAD_BYTES }
    }

    /// Processes GET_BODY_CHUNK; returns how much may be sent.
    pub(crate) fn ask(&mut self, bytes: usize) -> Result<usize, AjpError> {
        match self.turn {
            Turn::Quiet if bytes == 0 => Err(AjpError::AskedForNothing),
            Turn::Quiet => {
                self.turn = Turn::Asked(bytes.min(self.data_bytes_max));
                Ok(self.wanted())
            }
            Turn::Owed | Turn::Asked(_) => Err(AjpError::AskedTwice),
            Turn::Ended => Err(AjpError::AskedBehindEnd),
        }
    }

    /// Largest number of data bytes in one packet now.
    pub(crate) fn wanted(&self) -> usize {
        let bytes_max = match self.turn {
            Turn::Owed => self.data_bytes_max,
            Turn::Asked(bytes) => bytes,
            Turn::Quiet | Turn::Ended => 0,
        };
        let left = self.left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
        bytes_max.min(left)
    }

    /// Whether the server waits for a packet, even if it is the end.
    pub(crate) fn is_awaited(&self) -> bool {
        matches!(self.turn, Turn::Owed | Turn::Asked(_))
    }

    pub(crate) fn head(&mut self, bytes: usize) -> [u8; BODY_HEAD_BYTES] {
        assert!(bytes > 0 && bytes <= self.wanted(), "data that nobody waits for");
        self.left = self.left.map(|left| left - bytes as u64);
        self.turn = Turn::Quiet;
        packet_head(bytes)
    }

    pub(crate) fn end(&mut self) -> [u8; BODY_HEAD_BYTES] {
        assert!(matches!(self.turn, Turn::Asked(_)), "an end that nobody waits for");
        assert!(self.left.is_none_or(|left| left == 0), "an end before the body's");
        self.left = Some(0);
        self.turn = Turn::Ended;
        packet_head(0)
    }
}

/// Magic, payload length, data length.
fn packet_head(bytes: usize) -> [u8; BODY_HEAD_BYTES] {
    let ([a, b], [c, d]) = (((bytes + 2) as u16).to_be_bytes(), (bytes as u16).to_be_bytes());
    [TO_SERVER[0], TO_SERVER[1], a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{PACKET_BYTES_DEFAULT, PACKET_BYTES_MAX};

    fn upload(body: BodyFraming) -> Upload {
        Upload::new(body, PACKET_BYTES_DEFAULT)
    }

    #[test]
    fn a_known_length_is_owed_one_packet_and_then_answers() {
        let mut body = upload(BodyFraming::Length(8190));
        assert_eq!((body.wanted(), body.is_awaited()), (8186, true));
        assert_eq!(body.ask(8186), Err(AjpError::AskedTwice));
        assert_eq!(body.head(8186), [0x12, 0x34, 0x1f, 0xfc, 0x1f, 0xfa]);
        assert_eq!((body.wanted(), body.is_awaited()), (0, false));
        assert_eq!(body.ask(8186), Ok(4));
        assert_eq!(body.ask(8186), Err(AjpError::AskedTwice));
        assert_eq!(body.head(4), [0x12, 0x34, 0, 6, 0, 4]);
        assert_eq!((body.ask(8186), body.is_awaited()), (Ok(0), true));
        assert_eq!(body.end(), [0x12, 0x34, 0, 2, 0, 0]);
        assert_eq!(body.ask(8186), Err(AjpError::AskedBehindEnd));
    }

    #[test]
    fn nothing_is_sent_unasked_without_a_length() {
        let mut chunked = upload(BodyFraming::Chunked);
        assert_eq!((chunked.wanted(), chunked.is_awaited()), (0, false));
        assert_eq!(chunked.ask(100), Ok(100));
        chunked.head(100);
        assert_eq!(chunked.ask(60_000), Ok(8186), "never more than fits into our packets");
        chunked.end();
        // A servlet may read the body of a GET.
        let mut none = upload(BodyFraming::None);
        assert_eq!((none.wanted(), none.ask(0)), (0, Err(AjpError::AskedForNothing)));
        assert_eq!((none.ask(8186), none.is_awaited()), (Ok(0), true));
        none.end();
    }

    #[test]
    #[should_panic(expected = "data that nobody waits for")]
    fn two_packets_in_a_row_cannot_be_made() {
        let mut body = upload(BodyFraming::Length(9));
        body.head(3);
        body.head(3);
    }

    #[test]
    #[should_panic(expected = "an end before the body's")]
    fn a_body_cannot_end_early() {
        let mut body = upload(BodyFraming::Length(9));
        body.head(3);
        assert_eq!(body.ask(9), Ok(6));
        body.end();
    }

    #[test]
    fn the_largest_packet_has_a_length() {
        let mut body = Upload::new(BodyFraming::Length(1 << 20), PACKET_BYTES_MAX);
        assert_eq!(body.head(65_530), [0x12, 0x34, 0xff, 0xfc, 0xff, 0xfa]);
    }
}
