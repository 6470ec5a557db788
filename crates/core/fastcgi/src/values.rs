//! GET_VALUES: checks that an application runs and supports FastCGI, without running a script.
//! php-fpm answers it in a worker, and closes the connection after its answer; so it is for checks,
//! on connections of their own.

use crate::FcgiError;
use crate::limits::RECORD_HEAD_BYTES;
use crate::record::{RecordHead, VERSION};

const KIND_GET_VALUES: u8 = 9;
const KIND_RESULT: u8 = 10;
/// Request id of management records (FastCGI 1.0, 3.3).
const NO_REQUEST: u16 = 0;

/// Requests [`ValuesReply`]: whether the application multiplexes, which all applications answer.
pub const GET_VALUES: [u8; 25] = [
    VERSION,
    KIND_GET_VALUES,
    0,
    0,
    0,
    17,
    0,
    0, // 15 bytes of a name, none of a value
    15,
    0,
    b'F',
    b'C',
    b'G',
    b'I',
    b'_',
    b'M',
    b'P',
    b'X',
    b'S',
    b'_',
    b'C',
    b'O',
    b'N',
    b'N',
    b'S',
];

/// Parses the answer to [`GET_VALUES`]: its header is sufficient.
#[derive(Clone, Debug, Default)]
pub struct ValuesReply {
    received: Vec<u8>,
}

impl ValuesReply {
    /// Processes received bytes; returns whether the answer is complete.
    ///
    /// # Errors
    /// The bytes are not such an answer.
    pub fn receive(&mut self, input: &[u8]) -> Result<bool, FcgiError> {
        let missing = RECORD_HEAD_BYTES - self.received.len();
        self.received.extend_from_slice(&input[..missing.min(input.len())]);
        let Ok(head) = <[u8; RECORD_HEAD_BYTES]>::try_from(self.received.as_slice()) else {
            return Ok(false);
        };
        match RecordHead::read(head) {
            RecordHead { version, .. } if version != VERSION => Err(FcgiError::Version(version)),
            RecordHead { request_id: id, .. } if id != NO_REQUEST => Err(FcgiError::RequestId(id)),
            RecordHead { kind: KIND_RESULT, .. } => Ok(true),
            RecordHead { kind, .. } => Err(FcgiError::Type(kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: [u8; 8] = [1, 10, 0, 0, 0, 17, 7, 0];

    #[test]
    fn only_a_result_is_an_answer() {
        assert_eq!(ValuesReply::default().receive(&ANSWER), Ok(true));
        let mut reply = ValuesReply::default();
        assert_eq!(reply.receive(&ANSWER[..5]), Ok(false));
        assert_eq!(reply.receive(&[&ANSWER[5..], b"FCGI"].concat()), Ok(true));
        for (answer, error) in [
            (*b"HTTP/1.1", FcgiError::Version(b'H')),
            ([1, 10, 0, 1, 0, 0, 0, 0], FcgiError::RequestId(1)),
            ([1, 11, 0, 0, 0, 8, 0, 0], FcgiError::Type(11)),
        ] {
            assert_eq!(ValuesReply::default().receive(&answer), Err(error));
        }
    }

    #[test]
    fn the_question_has_one_whole_pair() {
        let head = RecordHead::read([1, 9, 0, 0, 0, 17, 0, 0]);
        assert_eq!(head.content_bytes, GET_VALUES.len() - RECORD_HEAD_BYTES);
        assert_eq!(&GET_VALUES[10..], b"FCGI_MPXS_CONNS");
    }
}
